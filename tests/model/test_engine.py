"""The Engine port: an engine made of the Arrow kernels answers as the reference does."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings, strategies as st

from strandline.errors import UsageError
from strandline.model.digest import Digest
from strandline.model.engine import Engine, Rules, Written
from strandline.model.frontier import Frontier
from strandline.model.rowhash import row_base
from strandline.model.schema import Schema
from strandline.parts.consolidate import as_of, consolidate, expand, overlay
from strandline.parts.layout import lay_out
from strandline.parts.lookup import Keys, find, take_rows
from strandline.parts.rows import check_rows
from strandline.parts.upsert import resolve
from strandline.testing.reference import ReferenceEngine, Rows, canonical

NAN = float("nan")
SCHEMA = Schema.create(
    pa.schema([("k", pa.int32()), ("v", pa.float64()), ("tags", pa.list_(pa.string()))]), ("k",)
)


@dataclass
class _Kept:
    schema: Schema
    updates: pa.Table
    upper: int = 0


class ArrowEngine:
    """The kernels behind the port, in one process; frames are tables."""

    def __init__(self) -> None:
        self.kept: dict[str, _Kept] = {}

    def create(self, shard: str, schema: Schema) -> None:
        self.kept[shard] = _Kept(schema, schema.updates().empty_table())

    def write(self, shard: str, updates: pa.Table, upper: int) -> Written:
        at = self.kept[shard]
        checked = check_rows(updates, at.schema, lower=at.upper, upper=Frontier(upper))
        at.updates = pa.concat_tables([at.updates, checked.updates])
        at.upper = upper
        return Written(upper, checked.updates.num_rows, checked.total)

    def upsert(self, shard: str, rows: pa.Table, upper: int, rules: Rules) -> Written:
        at = self.kept[shard]
        old = (
            self.lookup(shard, rows, at.upper - 1) if at.upper else at.schema.arrow().empty_table()
        )
        found = resolve(rows, old, at.schema, rules)
        told = self.write(shard, found.updates, upper)
        counts = (found.superseded, found.late, found.unchanged)
        return Written(told.upper, told.updates, told.digest, *counts)

    def read(self, shard: str, as_of: int) -> pa.Table:
        return self._rows(self.kept[shard].updates, as_of)

    def changes(self, shard: str, start: int, end: int) -> pa.Table:
        updates = self.kept[shard].updates
        times = updates["_time"]
        inside = pc.and_(pc.greater_equal(times, start), pc.less(times, end))
        return self.consolidate(updates.filter(inside))

    def lookup(self, shard: str, keys: pa.Table, as_of: int) -> pa.Table:
        at = self.kept[shard]
        laid = lay_out(at.updates, at.schema)
        assert laid.places is not None
        found = find(laid.updates, laid.places, Keys.of(keys, at.schema))
        return self._rows(take_rows(laid.updates, found), as_of)

    def consolidate(self, updates: pa.Table) -> pa.Table:
        return consolidate(updates)

    def digest(self, shard: str, as_of: int) -> Digest:
        rows = self.read(shard, as_of)
        ones = np.ones(rows.num_rows, np.int64)
        return Digest.of(row_base(rows, self.kept[shard].schema.ids), ones)

    @staticmethod
    def _rows(updates: pa.Table, time: int) -> pa.Table:
        settled = as_of(updates, time).drop_columns(["_time"])
        return expand(overlay([], settled, ()), "the shard")


VALUES = {
    "k": st.integers(0, 3),
    "v": st.sampled_from([None, 0.0, -0.0, NAN, 2.0]),
    "tags": st.sampled_from([None, [], ["a"], [None]]),
}
INSERT = st.fixed_dictionaries({**VALUES, "_time": st.integers(0, 2), "_diff": st.just(1)})
UPSERT = st.fixed_dictionaries(
    {**VALUES, "_time": st.integers(0, 2), "_delete": st.booleans(), "_order0": st.integers(0, 2)}
)
STEP = st.one_of(
    st.tuples(st.just("write"), st.lists(INSERT, max_size=3)),
    st.tuples(st.just("upsert"), st.lists(UPSERT, max_size=6)),
)
OWN = {"_time": pa.int64(), "_diff": pa.int64(), "_delete": pa.bool_(), "_order0": pa.int64()}


def as_table(rows: Rows, own: tuple[str, ...]) -> pa.Table:
    fields = [*SCHEMA.arrow(), *(pa.field(name, OWN[name]) for name in own)]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


def counted(rows: Rows) -> Counter:
    return Counter(canonical(row) for row in rows)


def attempt(call: object, *args: object) -> object:
    """What a call gave, or that it was refused; refusals leave nothing behind."""
    try:
        return astuple(call(*args))
    except UsageError:
        return "refused"


@settings(deadline=None, max_examples=100)
@given(st.lists(STEP, min_size=1, max_size=5))
def test_two_engines_agree_on_every_operation(steps: list[tuple[str, Rows]]):
    plain: Engine[Rows] = ReferenceEngine()
    fast: Engine[pa.Table] = ArrowEngine()
    plain.create("t", SCHEMA)
    fast.create("t", SCHEMA)
    upper = 0
    for kind, given_rows in steps:
        rows = [{**row, "_time": row["_time"] + upper} for row in given_rows]
        if kind == "write":
            table = as_table(rows, ("_time", "_diff"))
            told = attempt(plain.write, "t", rows, upper + 3)
            assert attempt(fast.write, "t", table, upper + 3) == told
        else:
            table = as_table(rows, ("_time", "_delete", "_order0"))
            told = attempt(plain.upsert, "t", rows, upper + 3, Rules())
            assert attempt(fast.upsert, "t", table, upper + 3, Rules()) == told
        upper += 0 if told == "refused" else 3
    for time in range(upper):
        assert counted(fast.read("t", time).to_pylist()) == counted(plain.read("t", time))
        assert fast.digest("t", time) == plain.digest("t", time)
        keys: Rows = [{"k": 1}, {"k": 3}]
        found = fast.lookup("t", pa.Table.from_pylist(keys), time).to_pylist()
        assert counted(found) == counted(plain.lookup("t", keys, time))
    changes = plain.changes("t", 1, upper)
    assert counted(fast.changes("t", 1, upper).to_pylist()) == counted(changes)
    twice = as_table([*changes, *changes], ("_time", "_diff"))
    again = plain.consolidate([*changes, *changes])
    assert counted(fast.consolidate(twice).to_pylist()) == counted(again)
