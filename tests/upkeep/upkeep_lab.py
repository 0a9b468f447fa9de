"""What tests of upkeep share: a shard with a plain model beside it, read at every time."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from strandline.handles.write import Writer
from strandline.model.digest import Digest
from strandline.model.rowhash import row_base
from strandline.model.schema import Schema
from strandline.parts.inline import decode_inline
from strandline.parts.layout import places_of
from strandline.parts.parquet import Owner, decode_part
from strandline.shard import command as c
from strandline.shard.chunks import Chunks
from strandline.shard.machine import Machine
from strandline.shard.state import Retention, check_whole
from strandline.upkeep.rounds import Rounds

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEEP_ALL = Retention(None, None)


class Table:
    """A shard, and what it should hold: the model is a list of (id, name, time, diff)."""

    def __init__(self, lab, *, key=("id",), name="orders", env=None, leases=None, **settings):
        self.lab = lab
        self.env = env or lab.env(**settings)
        self.machine = Machine(self.env, name)
        schema = Schema.create(COLUMNS, key)
        self.machine.commit(c.Create(name, f"s{self.env.random.token()}", schema, lab.clock.now))
        self.leases = leases or lab.leases(self.env)
        self.rounds = Rounds(self.env, self.leases)
        self.writer = Writer(self.machine, self.leases.writer(self.machine))
        self.model: list[tuple[int, str, int, int]] = []
        self.time = 0

    @property
    def state(self):
        return self.machine.refresh()

    def append(self, *rows: tuple[int, str, int]) -> None:
        """One append of (id, name, diff) at the next time."""
        table = pa.table(
            {
                "id": pa.array([r[0] for r in rows], pa.int64()),
                "name": pa.array([r[1] for r in rows], pa.string()),
                "_diff": pa.array([r[2] for r in rows], pa.int64()),
            }
        )
        self.writer.compare_and_append(table, lower=self.time, upper=self.time + 1)
        self.model += [(r[0], r[1], self.time, r[2]) for r in rows if r[2]]
        self.time += 1
        self.lab.clock.now += 10

    def retain(self, count: int | None = None, duration_ms: int | None = None) -> None:
        self.machine.demand(c.Retain(Retention(duration_ms, count)))

    def expected(self, as_of: int) -> Counter:
        found: Counter = Counter()
        for row_id, name, time, diff in self.model:
            if time <= as_of:
                found[row_id, name] += diff
        return Counter({row: n for row, n in found.items() if n})

    def stored(self, as_of: int, updates=None) -> Counter:
        found: Counter = Counter()
        for row_id, name, time, diff in self.updates() if updates is None else updates:
            if time <= as_of:
                found[row_id, name] += diff
        return Counter({row: n for row, n in found.items() if n})

    def updates(self):
        columns = ("id", "name", "_time", "_diff")
        return [
            row
            for table in self.tables()
            for row in zip(*(table[name].to_pylist() for name in columns), strict=True)
        ]

    def parts(self):
        state = self.state
        chunks = Chunks(self.env, state.name)
        found = [part for batch in state.batches for part in batch.parts]
        for batch in state.batches:
            for chunk in batch.chunks:
                found += chunks.table(chunk, shard_id=state.id, stats=True).parts(with_stats=True)
        return found

    def tables(self):
        state = self.state
        for batch in state.batches:
            if batch.inline is not None:
                yield decode_inline(batch.inline, state.schema, shard=state.name)
        for part in self.parts():
            encoded = self.lab.blob.get(part.key)
            assert encoded is not None, f"{part.key} is gone"
            yield decode_part(encoded, part, state.schema, owner=Owner(state.id, part.key))

    def check(self) -> None:
        """Every readable time reads as it should, and every part is what it says."""
        state = self.state
        check_whole(state)
        updates = self.updates()
        for as_of in range(state.readable_from(), self.time):
            assert self.stored(as_of, updates) == self.expected(as_of), f"as of {as_of}"
        for part in self.parts():
            self.check_part(part)

    def check_part(self, part) -> None:
        state = self.state
        encoded = self.lab.blob.get(part.key)
        table = decode_part(encoded, part, state.schema, owner=Owner(state.id, part.key))
        times, diffs = table["_time"].to_numpy(), table["_diff"].to_numpy()
        assert (times.min(), times.max()) == (part.t_min, part.t_max)
        rows = table.select(list(state.schema.names))
        assert Digest.of(row_base(rows, state.schema.ids), diffs) == part.total
        if part.only_inserts:
            assert (diffs == 1).all()
        places = places_of(rows, state.schema)
        if places is not None:
            assert (places[1:] >= places[:-1]).all()
            assert (int(places[0]), int(places[-1])) == (part.place_lo, part.place_hi)

    def objects(self) -> set[str]:
        return {entry.key for entry in self.lab.blob.list("")}
