"""Carries out what tasks are told, against a Blob: in Python workers and in tests alike.

    append   rows become level-0 parts without times, or are given back if they are few
    stage    rows for an upsert are put as slices by place, or given back if they are few
    upsert   for each range: old rows are looked up, differences become parts or are given back
    lookup   for each range: the live rows of keys are given back, or put if they are many

Nothing here knows Spark, and nothing here ever opens Consensus. What is in memory at once is one
flush, or one range with its old rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.columntype import cast
from strandline.model.digest import Digest, per_time
from strandline.model.frontier import Frontier
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import Overlay, as_of, constant, expand
from strandline.parts.layout import places_of
from strandline.parts.lookup import Keys, find, key_columns
from strandline.parts.parquet import Owner
from strandline.parts.rows import check_rows
from strandline.parts.upsert import Rules, resolve
from strandline.spark import slices
from strandline.spark.instruction import Answer, Counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.model.schema import Schema
    from strandline.parts.part import Part
    from strandline.parts.upsert import Resolved
    from strandline.spark.instruction import Errand, RangeWork, Staged
    from strandline.spark.put import Bench

FLUSH_BYTES = 64 * 1024 * 1024
"""Rows that a task gathers before it puts them."""


class PartLookup(Protocol):
    """Finds the updates of keys in a part; see `blocks`."""

    def lookup(
        self, part: Part, schema: Schema, owner: Owner, wanted: Keys, *, as_of: int
    ) -> pa.Table: ...

    def within(
        self, part: Part, schema: Schema, owner: Owner, span: tuple[int, int], *, as_of: int
    ) -> pa.Table: ...


# Append and stage: from rows that Spark computed.


def append(
    bench: Bench, batches: Iterable[pa.RecordBatch], bounds: tuple[int, int] | None, returnable: int
) -> Answer:
    """Put rows as parts; up to `returnable` bytes are given back instead.

    Rows have their own times within `bounds`; without bounds their time is the driver's to
    choose, and their parts are untimed, so that it can choose again.
    """
    parts: list[Part] = []
    digests: dict[int, Digest] = {}
    rows = size = 0
    lower, upper = bounds or (0, 1)
    for table, is_last in flushes(batches):
        checked = check_rows(table, bench.ground.schema, lower=lower, upper=Frontier(upper))
        rows += table.num_rows
        size += table.nbytes
        if is_last and not parts and checked.updates.nbytes <= returnable:
            few = checked.updates if bounds else checked.updates.drop_columns([TIME_COLUMN])
            return Answer(rows=_stream(few), rows_in=rows, bytes_in=size)
        if checked.updates.num_rows:
            parts += bench.put_updates(
                checked.updates, untimed=bounds is None, hashes=checked.hashes
            )
            add_digests(digests, checked.digests)
    return Answer(tuple(parts), packed(digests), rows_in=rows, bytes_in=size)


def stage(bench: Bench, batches: Iterable[pa.RecordBatch], returnable: int) -> Answer:
    """Put rows as slices by place; up to `returnable` bytes are given back instead."""
    staged: list[Staged] = []
    rows = size = 0
    for table, is_last in flushes(batches):
        incoming = accepted(table, bench.ground.schema)
        rows += table.num_rows
        size += table.nbytes
        if is_last and not staged and incoming.nbytes <= returnable:
            return Answer(rows=_stream(incoming), rows_in=rows, bytes_in=size)
        if incoming.num_rows:
            staged.append(put_by_place(bench, incoming))
    return Answer(staged=tuple(staged), rows_in=rows, bytes_in=size)


def put_by_place(bench: Bench, rows: pa.Table) -> Staged:
    places = places_of(rows, bench.ground.schema)
    if places is None:
        places = np.zeros(rows.num_rows, np.uint64)
    order = np.argsort(places, kind="stable")
    return bench.put_rows(rows.take(pa.array(order)), places[order])


def accepted(table: pa.Table, schema: Schema) -> pa.Table:
    """Incoming rows with the shard's columns in its types; others stay as they are.

    Nulls in the key are refused here, where the row is; other nulls by `resolve`, which knows
    which rows delete.
    """
    keys = key_columns(table, schema)
    for at, name in enumerate(table.column_names):
        if name in schema.key:
            table = table.set_column(at, keys.schema.field(name), keys.column(name))
        elif name in schema.names:
            column = cast(table.column(name), schema.field(name).type)
            table = table.set_column(at, pa.field(name, column.type), column)
    return table


def flushes(
    batches: Iterable[pa.RecordBatch], flush_bytes: int = FLUSH_BYTES
) -> Iterator[tuple[pa.Table, bool]]:
    """Batches as tables of a bounded size, each with whether it is the last one."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if size and size + batch.nbytes > flush_bytes:
            yield pa.Table.from_batches(held), False
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
    if held:
        yield pa.Table.from_batches(held), True


# Upsert and lookup: range after range.


@dataclass(slots=True)
class _Outcome:
    """What the ranges of one task have come to so far."""

    parts: list[Part] = field(default_factory=list)
    few: list[pa.Table] = field(default_factory=list)
    digests: dict[int, Digest] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)


def upsert(bench: Bench, blocks: PartLookup, errand: Errand) -> Answer:
    """Resolve what came for each range against the rows that are there."""
    schema = bench.ground.schema
    rules = Rules(errand.compare_stored)
    outcome = _Outcome()
    room = errand.inline_max
    for work in errand.ranges:
        incoming = came_for(bench, work, errand.time)
        if incoming is None:
            continue
        wanted = Keys.of(incoming, schema)
        old = live_rows(bench, blocks, work, wanted, errand.as_of)
        resolved = resolve(incoming, old, schema, rules)
        outcome.counts += counted(resolved)
        updates = resolved.updates
        if not updates.num_rows:
            continue
        if updates.nbytes <= room:
            room -= updates.nbytes
            outcome.few.append(updates)
            continue
        outcome.parts += bench.put_updates(
            updates, untimed=errand.time is not None, hashes=resolved.hashes
        )
        add_digests(outcome.digests, digests_of(resolved))
    return Answer(
        parts=tuple(outcome.parts),
        digests=packed(outcome.digests),
        rows=_stream(pa.concat_tables(outcome.few)) if outcome.few else b"",
        counts=outcome.counts,
    )


def lookup(bench: Bench, blocks: PartLookup, errand: Errand) -> Answer:
    """The live rows of the keys that came for each range."""
    few: list[pa.Table] = []
    staged: list[Staged] = []
    room = errand.inline_max
    for work in errand.ranges:
        keys = came_for(bench, work, None)
        if keys is None:
            continue
        wanted = Keys.of(keys, bench.ground.schema)
        found = live_rows(bench, blocks, work, wanted, errand.as_of)
        if found.nbytes <= room:
            room -= found.nbytes
            few.append(found)
        elif found.num_rows:
            staged.append(put_by_place(bench, found))
    return Answer(rows=_stream(pa.concat_tables(few)) if few else b"", staged=tuple(staged))


def found_rows(bench: Bench, blocks: PartLookup, errand: Errand) -> Iterator[pa.Table]:
    """The same, as they are found."""
    for work in errand.ranges:
        keys = came_for(bench, work, None)
        if keys is not None:
            wanted = Keys.of(keys, bench.ground.schema)
            yield live_rows(bench, blocks, work, wanted, errand.as_of)


def lookup_few(bench: Bench, blocks: PartLookup, errand: Errand, keys: bytes) -> Answer:
    """The live rows of `keys`, over all places; if they are many, `keys` put by place instead."""
    (work,) = errand.ranges
    wanted = Keys.of(slices.from_stream(keys, "keys"), bench.ground.schema)
    found = live_rows(bench, blocks, work, wanted, errand.as_of)
    if found.nbytes <= errand.inline_max:
        return Answer(rows=_stream(found))
    return Answer(staged=(put_by_place(bench, wanted.values),))


def came_for(bench: Bench, work: RangeWork, time: int | None) -> pa.Table | None:
    """The rows that came for a range, all at `time` if it is given; `None` if none did."""
    tables = [slices.from_stream(work.rows, "what came for a range")] if work.rows else []
    for staged in work.staged:
        table = pa.Table.from_batches(bench.unstaged(staged))
        places = places_of(table, bench.ground.schema)
        if places is not None:
            table, _ = slices.between(table, places, work.place_lo, work.place_hi)
        tables.append(table)
    if not any(table.num_rows for table in tables):
        return None
    rows = pa.concat_tables(tables)
    if time is None:
        return rows
    stamp = bench.ground.schema.updates().field(TIME_COLUMN)
    return rows.append_column(stamp, constant(time, rows.num_rows))


def live_rows(
    bench: Bench, blocks: PartLookup, work: RangeWork, wanted: Keys, time: int | None
) -> pa.Table:
    """The rows of `wanted` that were there as of `time`: the columns alone."""
    schema = bench.ground.schema
    if time is None:
        return schema.arrow().empty_table()
    hits = [table for table in _hits(bench, blocks, work, wanted, time) if table.num_rows]
    if not hits:
        return schema.arrow().empty_table()
    names = schema.updates().names
    updates = pa.concat_tables([table.select(names) for table in hits]).combine_chunks()
    # What only inserts has nothing that could cancel; most keys were never changed.
    if pc.min(updates.column(DIFF_COLUMN)).as_py() < 1:
        updates = as_of(updates, time)
    rest = updates.select([*schema.names, DIFF_COLUMN])
    return expand(Overlay((), rest), f"shard {bench.ground.shard} as of {time}")


def all_rows(bench: Bench, blocks: PartLookup, work: RangeWork, time: int | None) -> pa.Table:
    """All rows of a range that were there as of `time`: the columns alone."""
    schema, ground = bench.ground.schema, bench.ground
    if time is None:
        return schema.arrow().empty_table()
    span = (work.place_lo, work.place_hi)
    found = [schema.updates().empty_table()]
    for part in work.parts:
        owner = Owner(ground.shard_id, part.key)
        found.append(_part_within(bench, blocks, part, owner, span, time))
    if work.inline:
        found.append(slices.from_stream(work.inline, "inline rows"))
    updates = pa.concat_tables([table.select(schema.updates().names) for table in found])
    places = places_of(updates, schema)
    if places is not None:
        updates, _ = slices.between(updates, places, *span)
    rest = as_of(updates.combine_chunks(), time).select([*schema.names, DIFF_COLUMN])
    return expand(Overlay((), rest), f"shard {ground.shard} as of {time}")


def _part_within(
    bench: Bench, blocks: PartLookup, part: Part, owner: Owner, span: tuple[int, int], time: int
) -> pa.Table:
    schema = bench.ground.schema
    return bench.patient(lambda: blocks.within(part, schema, owner, span, as_of=time))


def _hits(
    bench: Bench, blocks: PartLookup, work: RangeWork, wanted: Keys, time: int
) -> Iterator[pa.Table]:
    schema = bench.ground.schema
    for part in work.parts:
        keys = wanted.between(part.place_lo, part.place_hi)
        if len(keys):
            owner = Owner(bench.ground.shard_id, part.key)
            yield _part_hits(bench, blocks, part, owner, keys, time)
    if work.inline:
        inline = slices.from_stream(work.inline, "inline rows")
        places = places_of(inline, schema)
        if places is not None:
            yield inline.take(pa.array(find(inline, places, wanted)))


def _part_hits(
    bench: Bench, blocks: PartLookup, part: Part, owner: Owner, keys: Keys, time: int
) -> pa.Table:
    schema = bench.ground.schema
    return bench.patient(lambda: blocks.lookup(part, schema, owner, keys, as_of=time))


def digests_of(resolved: Resolved) -> dict[int, Digest]:
    updates = resolved.updates
    times, diffs = updates.column(TIME_COLUMN).to_numpy(), updates.column(DIFF_COLUMN).to_numpy()
    return per_time(resolved.hashes, times, diffs)


def add_digests(total: dict[int, Digest], more: dict[int, Digest]) -> None:
    for time, digest in more.items():
        total[time] = total.get(time, Digest.ZERO) + digest


def packed(digests: dict[int, Digest]) -> tuple[tuple[int, bytes], ...]:
    return tuple((time, digest.pack()) for time, digest in sorted(digests.items()))


def counted(resolved: Resolved) -> Counts:
    """How many rows were put, and how many keys went: those retracted with nothing in exchange."""
    updates, places = resolved.updates, resolved.places
    times, diffs = updates.column(TIME_COLUMN).to_numpy(), updates.column(DIFF_COLUMN).to_numpy()
    put = int((diffs > 0).sum())
    # Updates lie in order of (place, key, time), a retraction before what takes its place.
    exchanged = (diffs[:-1] < 0) & (diffs[1:] > 0)
    exchanged &= (places[:-1] == places[1:]) & (times[:-1] == times[1:])
    gone = len(diffs) - put - int(exchanged.sum())
    return Counts(put, gone, resolved.unchanged, resolved.late, resolved.superseded)


def _stream(table: pa.Table) -> bytes:
    return slices.to_stream(table) if table.num_rows else b""
