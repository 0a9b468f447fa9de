"""Lookups: few rows come back, many are put; and the state stays pinned meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, SchemaError

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def table(spark, tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        store.shard("t", schema=COLUMNS, key=["k"])
        yield store.table("t")


def test_a_table_that_was_never_written_has_no_rows(spark, table):
    keys = pa.table({"k": [1]})
    assert table.lookup_arrow(keys, spark=spark).num_rows == 0
    assert table.lookup(spark.range(3).withColumnRenamed("id", "k")).collect() == []
    with pytest.raises(BoundsError, match="can't be read as of 0 yet"):
        table.lookup(keys, 0, spark=spark)


def test_many_rows_are_put_and_read_as_often_as_the_frame_is_used(spark, table):
    wide = "repeat(cast(id as string), 100) v"
    table.append(spark.range(0, 20_000, 1, 2).selectExpr("id k", wide))
    keys = spark.range(0, 40_000, 1, 3).selectExpr("id k")
    found = table.lookup(keys)
    assert found.count() == 20_000
    assert found.where("k = 77").collect()[0].v == "77" * 100
    everything = table.lookup_arrow(pa.table({"k": list(range(20_000))}), spark=spark)
    assert everything.num_rows == 20_000


def test_keys_that_do_not_fit_are_refused_by_name(spark, table):
    with pytest.raises(SchemaError, match="'k'"):
        table.lookup(pa.table({"x": [1]}), spark=spark)
    table.append(spark.createDataFrame([(1, "a")], "k long, v string"))
    with pytest.raises(SchemaError, match="null in 'k'"):
        table.lookup(pa.table({"k": pa.array([None], pa.int64())}), spark=spark)
    with pytest.raises(SchemaError, match="null in 'k'"):
        table.lookup(spark.createDataFrame([(None,)], "k long"))
    with pytest.raises(SchemaError, match="column 'k'"):
        table.lookup(spark.createDataFrame([("a",)], "k string"))
