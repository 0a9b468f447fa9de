"""The engine that others are compared with, checked by hand."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import BoundsError, SchemaError, UsageError
from strandline.model.digest import Digest
from strandline.model.engine import Rules
from strandline.model.rowhash import row_base
from strandline.model.schema import Schema
from strandline.testing.reference import ReferenceEngine

NAN = float("nan")
SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.float64())]), ("k",))


@pytest.fixture
def engine() -> ReferenceEngine:
    made = ReferenceEngine()
    made.create("t", SCHEMA)
    return made


def row(k: int | None, v: float | None, **own: object) -> dict[str, object]:
    return {"k": k, "v": v, **{f"_{name}": value for name, value in own.items()}}


def test_rows_are_what_the_updates_until_then_add_up_to(engine: ReferenceEngine):
    engine.write("t", [row(1, 1.0), row(1, 1.0), row(2, 5.0)], 1)
    engine.write("t", [row(1, 1.0, time=3, diff=-1), row(2, 6.0, time=2)], 5)
    assert engine.read("t", 0) == [row(1, 1.0), row(1, 1.0), row(2, 5.0)]
    assert engine.read("t", 2) == [row(1, 1.0), row(1, 1.0), row(2, 5.0), row(2, 6.0)]
    assert engine.read("t", 4) == [row(1, 1.0), row(2, 5.0), row(2, 6.0)]
    assert engine.lookup("t", [{"k": 2}, {"k": 2}, {"k": 9}], 4) == [row(2, 5.0), row(2, 6.0)]
    assert engine.changes("t", 2, 4) == [row(1, 1.0, time=3, diff=-1), row(2, 6.0, time=2, diff=1)]


def test_equal_updates_are_summed_as_the_row_hash_sees_them(engine: ReferenceEngine):
    updates = [row(1, v, diff=1) for v in (0.0, -0.0, NAN, NAN, None)]
    found = engine.consolidate([*updates, row(1, None, diff=-1)])
    assert [each["_diff"] for each in found] == [2, 2]


def test_the_digest_is_that_of_the_rows(engine: ReferenceEngine):
    rows = [row(1, 2.0), row(2, None)]
    told = engine.write("t", [*rows, row(9, 9.0), row(9, 9.0, diff=-1)], 1)
    table = pa.Table.from_pylist(rows, schema=SCHEMA.arrow())
    expected = Digest.of(row_base(table, SCHEMA.ids), pa.array([1, 1]).to_numpy())
    assert told.digest == expected
    assert engine.digest("t", 0) == expected


def test_an_upsert_goes_through_times_and_keys(engine: ReferenceEngine):
    engine.write("t", [row(1, 1.0), row(2, 2.0)], 1)
    came = [
        row(1, 5.0, time=1, order0=1),
        row(1, 6.0, time=1, order0=2),
        row(1, None, time=2, order0=3, delete=True),
        row(2, 2.0, time=1, order0=1),
        row(3, None, time=1, order0=1, delete=True),
        row(4, 4.0, time=3, order0=1),
    ]
    told = engine.upsert("t", came, 4, Rules())
    assert (told.upper, told.updates) == (4, 4)
    assert (told.superseded, told.late, told.unchanged) == (1, 0, 2)
    assert engine.changes("t", 1, 4) == [
        row(1, 1.0, time=1, diff=-1),
        row(1, 6.0, time=1, diff=1),
        row(1, 6.0, time=2, diff=-1),
        row(4, 4.0, time=3, diff=1),
    ]


def test_a_stored_row_of_higher_order_stays(engine: ReferenceEngine):
    engine.write("t", [row(1, 7.0), row(2, None)], 1)
    came = [row(1, 6.0, order0=6.0), row(2, NAN, order0=NAN), row(3, None, order0=None)]
    told = engine.upsert("t", came, 2, Rules(("v",)))
    assert (told.late, told.updates) == (1, 3)
    assert {each["k"] for each in engine.changes("t", 1, 2)} == {2, 3}


REFUSED = [
    (lambda e: e.upsert("t", [row(None, 1.0)], 2, Rules()), SchemaError, "null in k"),
    (lambda e: e.upsert("t", [row(5, 1.0), row(5, 2.0)], 2, Rules()), UsageError, "different rows"),
    (lambda e: e.upsert("t", [row(1, 1.0)], 2, Rules()), UsageError, "more than one row"),
    (lambda e: e.write("t", [row(5, 1.0, time=0)], 2), BoundsError, "outside"),
    (lambda e: e.write("t", [row(5, 1.0, time=2)], 2), BoundsError, "outside"),
    (lambda e: e.write("t", [row(5, 1.0, time=None)], 2), SchemaError, "whole number"),
    (lambda e: e.read("t", 1), BoundsError, "not settled"),
]


@pytest.mark.parametrize(("call", "error", "why"), REFUSED)
def test_what_makes_no_sense_is_refused(engine: ReferenceEngine, call, error, why):
    engine.write("t", [row(1, 1.0), row(1, 1.0)], 1)
    with pytest.raises(error, match=why):
        call(engine)
    assert engine.read("t", 0) == [row(1, 1.0), row(1, 1.0)]


def test_a_collection_that_owes_rows_is_no_table(engine: ReferenceEngine):
    engine.write("t", [row(1, 1.0, diff=-1)], 1)
    with pytest.raises(UsageError, match="retracted more often"):
        engine.read("t", 0)
