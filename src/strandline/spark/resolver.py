"""Resolves what came for the ranges of several shards, in the tasks of one job.

As `perform.upsert`, with the tombstones of a table beside it: those are a shard of their own, with
its own places, so that a range of the table's places is none of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.model.digest import Digest, per_time
from strandline.model.engine import DELETE_COLUMN, Rules
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.emptied import Emptying, There, resolve_emptied
from strandline.parts.lookup import Keys
from strandline.parts.tombstones import swept
from strandline.spark import slices
from strandline.spark.instruction import Answer, Errand, RangeWork, Site
from strandline.spark.parcels import unwrap
from strandline.spark.perform import add_digests, all_rows, came_for, live_rows, packed
from strandline.spark.worker import bench_of, blocks_of, numbers_in, reporting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.model.schema import Schema
    from strandline.parts.part import Part
    from strandline.spark.perform import PartLookup
    from strandline.spark.put import Bench


class Emptied(msgspec.Struct, frozen=True, array_like=True):
    """What empties a table, on its way to tasks."""

    reload: bool = False
    at: bytes = b""
    floor: bytes = b""

    @classmethod
    def of(cls, emptying: Emptying) -> Emptied:
        at, floor = (
            b"" if each is None else slices.to_stream(each)
            for each in (emptying.at, emptying.floor)
        )
        return cls(emptying.reload, at, floor)

    def emptying(self) -> Emptying:
        at, floor = (
            slices.from_stream(each, "what empties a table") if each else None
            for each in (self.at, self.floor)
        )
        return Emptying(self.reload, at, floor)


class Task(msgspec.Struct, frozen=True, array_like=True):
    """The ranges of one shard that a task resolves."""

    collection: str
    site: bytes
    errand: Errand
    tombs: str = ""
    """The collection of tombstones; empty if the table buries nobody."""
    tombs_site: bytes = b""
    buried: RangeWork = RangeWork(0, 0)
    """Where all tombstones are."""
    emptied: Emptied = Emptied()
    now_ms: int = 0
    """What new tombstones say of when they were made."""
    sweep_before: int | None = None
    """Older tombstones go in this transaction, and count no more."""


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What changes in one collection."""

    collection: str
    answer: Answer


_tasks = msgspec.msgpack.Decoder(Task)
_outcomes = msgspec.msgpack.Decoder(Outcome)
_sites = msgspec.msgpack.Decoder(Site)
_encoder = msgspec.msgpack.Encoder()


def encode_task(task: Task) -> bytes:
    return _encoder.encode(task)


def decode_outcome(encoded: bytes) -> Outcome:
    return _outcomes.decode(encoded)


def resolve_ranges(
    site: bytes, parcels: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of a task; `site` is where tasks are read, if they are long."""
    with reporting():
        for number in numbers_in(batches):
            told = unwrap(parcels).of(number, lambda *at: bench_of(site).get_range(*at))
            task = _tasks.decode(told)
            bench_of(task.site)  # First: it finds out whether the store was made anew.
            blocks = blocks_of(_sites.decode(task.site))
            found = [_encoder.encode(each) for each in resolved(task, blocks, bench_of)]
            yield pa.record_batch([pa.array(found, pa.binary())], ["answer"])


@dataclass(slots=True)
class _Gathering:
    """The updates of one shard, as range after range is resolved."""

    bench: Bench
    room: int
    """How many bytes may still be given back instead of put."""
    few: list[pa.Table] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    digests: dict[int, Digest] = field(default_factory=dict)

    def add(self, updates: pa.Table) -> None:
        if not updates.num_rows:
            return
        if updates.nbytes <= self.room:
            self.room -= updates.nbytes
            self.few.append(updates)
            return
        schema = self.bench.ground.schema
        hashes = row_base(updates.select(list(schema.names)), schema.ids)
        times, diffs = (updates.column(name).to_numpy() for name in (TIME_COLUMN, DIFF_COLUMN))
        self.parts += self.bench.put_updates(updates, untimed=True)
        add_digests(self.digests, per_time(hashes, times, diffs))

    def answer(self) -> Answer:
        rows = slices.to_stream(pa.concat_tables(self.few)) if self.few else b""
        return Answer(tuple(self.parts), packed(self.digests), rows)


def resolved(task: Task, blocks: PartLookup, bench_at: object) -> list[Outcome]:
    """What a task's ranges come to, in its table and its tombstones."""
    errand = task.errand
    table = _Gathering(bench_at(task.site), errand.inline_max)  # type: ignore[operator]
    tombs = None
    if task.tombs:
        tombs = _Gathering(bench_at(task.tombs_site), errand.inline_max)  # type: ignore[operator]
    schema = table.bench.ground.schema
    buried_at = task.now_ms if tombs is not None else None
    rules = Rules(errand.compare_stored, bury=tombs is not None, buried_at=buried_at)
    emptying = task.emptied.emptying()
    for work in errand.ranges:
        incoming = came_for(table.bench, work, errand.time)
        if incoming is None:
            if not emptying.empties:
                continue
            incoming = _nothing(schema, emptying)
        old = _old(table.bench, blocks, work, None if emptying.empties else incoming, errand.as_of)
        buried = None if tombs is None else _buried(task, tombs.bench, blocks, incoming)
        held, time = There(old, buried), errand.time or 0
        updates, gone = resolve_emptied(incoming, held, schema, rules, emptying, time)
        table.add(updates)
        if tombs is not None and gone is not None:
            tombs.add(gone)
    outcomes = [Outcome(task.collection, table.answer())]
    if tombs is not None:
        outcomes.append(Outcome(task.tombs, tombs.answer()))
    return outcomes


def _buried(task: Task, bench: Bench, blocks: PartLookup, came: pa.Table) -> pa.Table:
    """The tombstones of keys that came, those alone that count in this transaction."""
    wanted = Keys.of(came, bench.ground.schema)
    found = live_rows(bench, blocks, task.buried, wanted, task.errand.as_of)
    return found if task.sweep_before is None else swept(found, task.sweep_before)[0]


def _old(
    bench: Bench, blocks: PartLookup, work: RangeWork, came: pa.Table | None, as_of: int | None
) -> pa.Table:
    """The rows that are there of the keys that came, or of all."""
    if came is None:
        return all_rows(bench, blocks, work, as_of)
    return live_rows(bench, blocks, work, Keys.of(came, bench.ground.schema), as_of)


def _nothing(schema: Schema, emptying: Emptying) -> pa.Table:
    """What came for a range for which nothing came."""
    orders = () if emptying.at is None else tuple(emptying.at.schema)
    own = [pa.field(DELETE_COLUMN, pa.bool_()), *orders, pa.field(TIME_COLUMN, pa.int64())]
    return pa.schema([*schema.arrow(), *own]).empty_table()
