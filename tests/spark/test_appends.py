"""Appends of DataFrames: one job, and only orphans of attempts that did not count."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as opened:
        opened.shard("t", schema=COLUMNS, key=["k"])
        yield opened


def test_rows_of_many_tasks_few_and_many_are_one_append(spark, store):
    large = spark.range(0, 30_000, 1, 2).selectExpr("id k", "concat('row ', id) v")
    small = spark.createDataFrame([(-1, "a"), (-2, "b")], "k long, v string")
    done = store.table("t").append(large.union(small))
    assert (done.time, done.rows, done.jobs) == (0, 30_002, 1)
    assert done.parts == 3
    shard = store.shard("t")
    assert shard.snapshot().count() == 30_002
    assert done.digest == shard.state().total


def test_diffs_may_be_given_and_times_may_not(spark, store):
    table = store.table("t")
    table.append(spark.createDataFrame([(1, "a"), (2, "b")], "k long, v string"))
    table.append(spark.createDataFrame([(1, "a", -1)], "k long, v string, _diff long"))
    assert store.shard("t").snapshot().to_arrow().to_pylist() == [{"k": 2, "v": "b"}]
    with pytest.raises(strandline.SchemaError, match="_time"):
        table.append(spark.createDataFrame([(1, "a", 1)], "k long, v string, _time long"))


def test_an_interval_is_settled_with_rows_at_their_own_times(spark, store):
    timed = spark.range(0, 20_000, 1, 2).selectExpr("id k", "'x' v", "3 + id % 2 _time")
    table = store.table("t")
    table.shard.writer().advance(3)
    done = table.append(timed, lower=3, upper=6)
    assert (done.upper.time, done.rows) == (6, 20_000)
    assert table.shard.snapshot(3).count() == 10_000
    assert table.shard.snapshot(5).count() == 20_000
