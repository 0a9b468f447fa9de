"""Transactions of a program by hand: two computers do the same work, and the result is landed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pyarrow as pa

from strandline.connectors.raw import raw_batch
from strandline.handles.store import Store
from strandline.journal.staging import stage
from strandline.pipeline.catalog import collections
from strandline.pipeline.compute import Computed, Computer, Intake, Work
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.rows import staged_rows
from strandline.testing.computing import ArrowComputer
from strandline.views.parse import parse

PIPELINE = "shop"
Message = tuple[bytes | None, bytes | None]
"""A key and a value."""


def message(key: object, value: object) -> Message:
    return json.dumps(key).encode(), None if value is None else json.dumps(value).encode()


def raw(messages: list[Message], first: int = 0, partition: str = "0") -> pa.Table:
    """Messages as a source gives them."""
    keys, values = [key for key, _ in messages], [value for _, value in messages]
    offsets = range(first, first + len(messages))
    return pa.Table.from_batches([raw_batch(values, partition, offsets, keys=keys)])


@dataclass
class Transactions:
    """The shards of a program on a store, moved on one time after the other."""

    store: Store
    text: str
    computer: Computer
    time: int = 0
    offset: int = 0
    clock: int = 1_700_000_000_000
    writers: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.program = parse(self.text)
        self.reference = ArrowComputer(self.store)
        columns = self.computer.view_columns(self.program)
        self.collections = collections(PIPELINE, self.program, columns)
        for each in self.collections:
            shard = self.store.shard(each.shard, each.columns, each.key)
            self.writers[each.name] = shard.writer()

    def staged(self, table: str, *chunks: list[Message]) -> Intake:
        refs = []
        for chunk in chunks:
            rows = raw(chunk, self.offset)
            self.offset += len(chunk)
            payload = packed_rows(rows)
            refs.append(stage(self.store.env, PIPELINE, payload, rows=rows.num_rows))
        return Intake(f"of.{table}", table, staged=tuple(refs))

    def reloaded(self, table: str, *chunks: list[dict]) -> Intake:
        """What a reload of a table brings, typed and checked as its user's process does it."""
        declared = self.program.table(table)
        refs = []
        for number, chunk in enumerate(chunks):
            rows = staged_rows(chunk, declared, number)
            payload = packed_rows(rows)
            refs.append(stage(self.store.env, PIPELINE, payload, rows=rows.num_rows))
        return Intake(f"of.{table}", table, staged=tuple(refs), replace=True)

    def work(self, *intakes: Intake, writes: bool = True, builds: frozenset = frozenset()) -> Work:
        return Work(
            PIPELINE,
            self.time,
            self.clock + self.time,
            self.program,
            intakes,
            {each.name: each.shard for each in self.collections},
            writers=self.writers if writes else {},
            builds=builds,
            # As a replica says it, whatever columns a table has got meanwhile.
            seen={each.name: tuple(each.columns.names) for each in self.program.tables},
        )

    def run(self, *intakes: Intake, builds: frozenset = frozenset()) -> Computed:
        """Both compute it and must agree; then it is landed."""
        expected = self.reference.compute(self.work(*intakes, builds=builds))
        found = self.computer.compute(self.work(*intakes, builds=builds))
        assert found.inputs == expected.inputs
        assert found.undecoded == expected.undecoded
        mine, theirs = found.digests(), expected.digests()
        differ = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        assert not differ, [(name, _shown(found, name), _shown(expected, name)) for name in differ]
        self.land(found)
        return found

    def land(self, computed: Computed) -> None:
        for name, writer in self.writers.items():
            delta = computed.deltas.get(name)
            bounds = {"lower": self.time, "upper": self.time + 1}
            if delta is None:
                writer.advance(self.time + 1)
            elif delta.batch is not None:
                writer.commit_parts(delta.batch, {self.time: delta.digest}, **bounds)
            else:
                writer.compare_and_append(delta.updates, **bounds)
        self.time += 1

    def rows(self, name: str) -> list[dict]:
        shard = next(each.shard for each in self.collections if each.name == name)
        table = self.store.shard(shard).snapshot(as_of=self.time - 1).to_arrow()
        return sorted(table.to_pylist(), key=str)

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()


def _shown(computed: Computed, name: str) -> object:
    delta = computed.deltas.get(name)
    if delta is None or delta.updates is None:
        return delta if delta is None else delta.digest
    return sorted(delta.updates.slice(0, 20).to_pylist(), key=str)
