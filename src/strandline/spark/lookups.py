"""Looks keys up: one job, whatever the table's size; only hits leave its tasks.

    keys in Arrow        are divided by place among the tasks of a range job
    keys in a DataFrame  are looked up where Spark computes them; if they are many, or there is more
                         to tell than each task should be told, tasks give them back or put them by
                         place instead, and a range job follows

The state is pinned until the job is done. Few rows come back; many are put, and are read from there
by whoever asks for them, until the table is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from strandline.errors import BoundsError
from strandline.parts.layout import lay_out
from strandline.parts.lookup import Keys, find, key_columns
from strandline.reading.listing import check_since, newest_time
from strandline.spark import slices, worker
from strandline.spark.errands import send
from strandline.spark.incoming import to_look_up
from strandline.spark.instruction import Answer, Errand
from strandline.spark.plan import Gathered, everywhere, ranges
from strandline.spark.schedule import RETURNED_BYTES, RETURNED_TASKS

EVERYWHERE_BYTES = 4 * 1024 * 1024
"""What each task is told of where rows may be, at most about, if it may ask for any key."""
_PART_BYTES = 190
"""One part in an errand, about."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.reading.view import View
    from strandline.shard.state import State
    from strandline.spark.desk import Desk
    from strandline.spark.instruction import Staged
    from strandline.spark.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of keys: here if they are few, otherwise in objects of the table's writer."""

    schema: Schema
    rows: pa.Table
    staged: tuple[Staged, ...]
    site: bytes

    @property
    def told(self) -> bytes:
        """What tasks have to be told to read `staged`."""
        return msgspec.msgpack.encode(self.staged)

    def to_arrow(self, desk: Desk) -> pa.Table:
        """All rows, here."""
        bench = desk.stand(self.schema).bench
        many = [pa.Table.from_batches(bench.unstaged(each)) for each in self.staged]
        rows = pa.concat_tables([self.rows, *many])
        desk.discard(each.key for each in self.staged)
        return rows


def lookup(desk: Desk, jobs: Jobs, keys: DataFrame | pa.Table, as_of: Time | None = None) -> Found:
    """The rows whose key occurs in `keys`, as of a settled time; by default the newest."""
    desk.check_visible()
    with desk.view() as view:
        time = settled_time(desk.name, view, as_of)
        schema = view.state.schema
        site = desk.stand(schema).site
        if isinstance(keys, pa.Table):
            wanted = Keys.of(key_columns(keys, schema), schema)
            came = Gathered(wanted.values, wanted.places)
            answers = _by_range(desk, jobs, view, came, time)
        else:
            answers = _in_place(desk, jobs, view, to_look_up(keys, schema), time)
    tables = [slices.from_stream(each.rows, "a task's rows") for each in answers if each.rows]
    rows = pa.concat_tables([schema.arrow().empty_table(), *tables])
    return Found(schema, rows, tuple(s for each in answers for s in each.staged), site)


def settled_time(table: str, view: View, as_of: Time | None) -> Time | None:
    """The time to read; `None` if nothing was ever settled."""
    if as_of is None:
        # What is closed has no last settled time, and everything that it ever held.
        settled = view.upper.is_closed or view.upper.last() is not None
        return newest_time(view.state, view.upper) if settled else None
    check_since(view.state, as_of)
    if not view.upper.settled(as_of):
        raise BoundsError(
            f"table {table} can't be read as of {as_of} yet: it is settled up to {view.upper}"
        )
    return as_of


def _by_range(
    desk: Desk, jobs: Jobs, view: View, came: Gathered, time: Time | None
) -> list[Answer]:
    """Keys that are here or staged, divided by place."""
    if not came or time is None:
        return []
    there = desk.stored(view.state, time, came)
    works = ranges(came, there, jobs.slots)
    # All tasks together return no more than the driver takes, however many there are.
    most = min(RETURNED_BYTES, RETURNED_TASKS * RETURNED_BYTES // max(1, len(works)))
    errands = [Errand(tuple(work), time, inline_max=most) for work in works]
    return _sent(desk, jobs, view.state.schema, errands)


def _sent(desk: Desk, jobs: Jobs, schema: Schema, errands: Sequence[Errand]) -> list[Answer]:
    stand = desk.stand(schema)
    sent = send(errands, desk.shard.id, stand.bench.put_object)
    try:
        return jobs.errands(worker.lookup_ranges, stand.site, sent)
    finally:
        desk.discard([sent.key] if sent.key else ())


def _in_place(
    desk: Desk, jobs: Jobs, view: View, keys: DataFrame, time: Time | None
) -> list[Answer]:
    """Keys that Spark computes: each task looks its own up, or puts them if they are many."""
    if time is None:
        return []
    schema = view.state.schema
    is_told = told_bytes(view.state) <= EVERYWHERE_BYTES
    answers = (_looked_up if is_told else _taken_in)(desk, jobs, view, keys, time)
    staged = [each for answer in answers for each in answer.staged]
    tables = [slices.from_stream(each.rows, "a task's rows") for each in answers if each.rows]
    if is_told and not staged:
        rows = _once(tables, schema)
        return [Answer(rows=slices.to_stream(rows))] if rows is not None else []
    try:
        # A key may be in several tasks, so those whose rows are here are looked up with the rest.
        again = [key_columns(table, schema) for table in tables]
        return _by_range(desk, jobs, view, Gathered.of(again, staged, schema), time)
    finally:
        desk.discard(each.key for each in staged)


def told_bytes(state: State) -> int:
    """How much there is to tell a task that may ask for any key, about."""
    parts = sum(batch.part_count for batch in state.batches)
    return state.inline_bytes() + parts * _PART_BYTES


def _looked_up(desk: Desk, jobs: Jobs, view: View, keys: DataFrame, time: Time) -> list[Answer]:
    """Each task is told of everything there is, and answers with rows, or with keys if many."""
    stand = desk.stand(view.state.schema)
    there = desk.stored(view.state, time, None)
    errand = Errand((everywhere(there),), time, inline_max=RETURNED_BYTES)
    sent = send([errand], desk.shard.id, stand.bench.put_object)
    try:
        told = (stand.site, msgspec.msgpack.encode(sent), RETURNED_BYTES)
        return jobs.over(keys, worker.lookup_rows, *told)
    finally:
        desk.discard([sent.key] if sent.key else ())


def _taken_in(desk: Desk, jobs: Jobs, view: View, keys: DataFrame, _: Time) -> list[Answer]:
    """Each task answers with its keys."""
    stand = desk.stand(view.state.schema)
    return jobs.over(keys, worker.stage_rows, stand.site, RETURNED_BYTES)


def _once(tables: Sequence[pa.Table], schema: Schema) -> pa.Table | None:
    """The rows that several tasks have found; those of a key that two have found, once."""
    kept: list[pa.Table] = []
    for table in tables:
        laid = lay_out(table, schema)
        rows, places = laid.updates, laid.places
        for before in kept:
            if places is None:
                break
            again = find(rows, places, Keys.of(before, schema))
            fresh = np.ones(rows.num_rows, np.bool_)
            fresh[again] = False
            rows, places = rows.filter(pa.array(fresh)), places[fresh]
        kept.append(rows)
    return pa.concat_tables(kept) if kept else None
