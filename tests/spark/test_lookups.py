"""Lookups: few rows come back, many are put; and the state stays pinned meanwhile."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, SchemaError
from strandline.shard.settings import Settings
from strandline.spark.jobs import Jobs
from strandline.spark.lookups import EVERYWHERE_BYTES, lookup, told_bytes

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def table(spark, tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        store.shard("t", schema=COLUMNS, key=["k"])
        yield store.table("t")


def noise(number):
    """Text that no compression makes small."""
    return hashlib.sha256(str(number).encode()).hexdigest()


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


@pytest.mark.parametrize("count", [50, 40_000])
def test_tasks_are_not_told_of_more_than_a_few_megabytes_each(spark, tmp_path, count):
    """Rows in the metadata would go to every task; by range, each is told of its own."""
    settings = Settings(inline_max_bytes=2**23, inline_total_bytes=2**24)
    with strandline.open(str(tmp_path / "lake"), upkeep=False, settings=settings) as store:
        shard = store.shard("t", schema=COLUMNS, key=["k"])
        table = store.table("t")
        keys = spark.range(0, count, 1, 3).selectExpr("id * 3 k")
        keys = keys.unionAll(keys.limit(10))
        with shard.writer() as writer:
            writer.append(pa.table({"k": [0], "v": ["first"]}))
            jobs = Jobs(spark, shard.id)
            assert lookup(table._desk, jobs, keys).to_arrow(table._desk).to_pylist() == [
                {"k": 0, "v": "first"}
            ]
            assert (jobs.count, told_bytes(shard.state()) <= EVERYWHERE_BYTES) == (1, True)
            for start in range(1, 150_001, 30_000):
                many = [noise(n) for n in range(start, start + 30_000)]
                writer.append(pa.table({"k": range(start, start + 30_000), "v": many}))
        assert told_bytes(shard.state()) > EVERYWHERE_BYTES
        jobs = Jobs(spark, shard.id)
        found = lookup(table._desk, jobs, keys).to_arrow(table._desk).sort_by("k")
        assert jobs.count == 2
        wanted = [n * 3 for n in range(count)]
        assert found.column("k").to_pylist() == wanted
        assert found.column("v").to_pylist() == ["first", *(noise(n) for n in wanted[1:])]


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
