"""The changes of a shard that feeds tables: tasks read them as one process does."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.transactions import Transactions

import strandline
from strandline.connectors.source import Split
from strandline.errors import SourceGoneError
from strandline.pipeline.compute import Intake
from strandline.shard.state import Retention
from strandline.spark.computer import SparkComputer
from strandline.spark.premises import Desks, Premises
from strandline.spark.upstream import listed
from strandline.testing.computing import ArrowComputer

TEXT = """
CREATE TABLE copy (k BIGINT, v STRING, PRIMARY KEY (k))
  USING strandline OPTIONS (shard 'numbers');
CREATE TABLE bag (v STRING) USING strandline OPTIONS (shard 'numbers');
"""
MANY = 3_000
FEW = pa.schema([("k", pa.int64()), ("other", pa.bool_()), ("v", pa.string())])


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as opened:
        yield opened


def put(store, keys, before, after, *, key):
    """Settle one more time of shard `numbers`: these keys lose one value and get another."""
    updates = [
        {"k": each, "other": True, "v": f"{value} of {each}", "_diff": diff}
        for each in keys
        for value, diff in ((before, -1), (after, 1))
        if value is not None
    ]
    shard = store.shard("numbers", FEW, key)
    schema = FEW.append(pa.field("_diff", pa.int64()))
    with shard.writer() as writer:
        writer.append(pa.Table.from_pylist(updates, schema))


def intakes(start, stop):
    splits = {
        "copy": Split("shard", {"shard": "numbers", "columns": '["k", "v"]', "key": '["k"]'},
                      "t", start, stop),
        "bag": Split("shard", {"shard": "numbers", "columns": '["v"]'}, "t", start, stop),
    }  # fmt: skip
    return [Intake(name, name, (split,)) for name, split in splits.items()]


@pytest.mark.spark
@pytest.mark.parametrize("key", [["k"], []], ids=["keyed", "bag"])
def test_tasks_give_what_one_process_gives(store, spark, key):
    put(store, range(MANY), None, "first", key=key)
    put(store, range(0, MANY, 2), "first", "second", key=key)
    put(store, range(0, MANY, 4), "second", None, key=key)
    if not key:
        store.shard("numbers").compact(full=True)
    with SparkComputer(store, spark, str) as computer:
        shop = Transactions(store, TEXT, computer)
        shop.run(*intakes(0, 1))
        assert len(shop.rows("copy")) == len(shop.rows("bag")) == MANY
        shop.run(*intakes(1, 3))
        held = {row["k"]: row["v"] for row in shop.rows("copy")}
        assert held == {
            each: f"{'first' if each % 2 else 'second'} of {each}"
            for each in range(MANY)
            if each % 4
        }
        assert sorted(held.values()) == sorted(row["v"] for row in shop.rows("bag"))
        shop.run(*intakes(3, 4))
        shop.close()


def test_a_range_that_is_merged_is_gone(store):
    for value in range(4):
        put(store, [1], None if value == 0 else value - 1, value, key=["k"])
    shard = store.shard("numbers")
    shop = Transactions(store, TEXT, ArrowComputer(store))
    desks = Desks(store)
    with Premises(desks, shop.work()) as premises:
        (work,) = listed(premises, intakes(2, 3)[0].splits[0])
        assert len(work.pieces) == 1
        assert listed(premises, intakes(7, 9)[0].splits[0]) == []
    shard.retain(Retention(None, 1))
    shard.compact(full=True)
    with (
        Premises(desks, shop.work()) as premises,
        pytest.raises(SourceGoneError, match="from 1 to 3 can't be read any more"),
    ):
        listed(premises, intakes(1, 3)[0].splits[0])
    desks.close()
    shop.close()
