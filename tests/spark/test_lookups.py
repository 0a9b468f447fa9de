"""Lookups: few rows come back, many are put; and the state stays pinned meanwhile."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from pyspark.sql.functions import spark_partition_id

import strandline
from strandline.errors import BoundsError, SchemaError, SinceError
from strandline.shard import command as c
from strandline.shard.settings import Settings
from strandline.spark.jobs import Jobs
from strandline.spark.lookups import EVERYWHERE_BYTES, lookup, told_bytes

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


class Tended(Jobs):
    """Jobs before each of which all of the table is merged, and what nobody needs is deleted."""

    def __init__(self, spark, shard) -> None:
        super().__init__(spark, shard.id)
        self.shard = shard

    def over(self, *told):
        self.shard.compact(full=True)
        return super().over(*told)


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
    del found
    table.close()
    blob = table.shard.machine.env.blob
    before = {entry.key for entry in blob.list("")}
    for asked in (pa.table({"k": list(range(20_000))}), keys):
        everything = table.lookup_arrow(asked, spark=spark)
        assert sorted(everything["k"].to_pylist()) == list(range(20_000))
    # What a call puts on its way, it deletes; the writer keeps its ground.
    after = {entry.key for entry in blob.list("")} - before
    assert {key.rpartition(".")[2] for key in after} == {"ground"}


@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_a_key_that_several_tasks_ask_for_is_found_once_whatever_the_others_ask(spark, table, many):
    """If one task has so many that it puts them, those of the others are not forgotten."""
    table.append(spark.range(0, 20_000, 1, 2).selectExpr("id k", "repeat('x', 100) v"))
    few = spark.createDataFrame([(1,), (19_999,)], "k long").coalesce(1)
    # In two tasks, for Spark puts together what has as many partitions.
    more = spark.range(0, 15_000 if many else 3, 1, 2).selectExpr("id k")
    assert few.union(more).select(spark_partition_id()).distinct().count() > 2
    found = table.lookup_arrow(few.union(more))["k"].to_pylist()
    assert sorted(found) == [*range(15_000 if many else 3), 19_999]


@pytest.mark.parametrize("kind", ["arrow", "frame"])
def test_what_is_looked_up_outlives_its_compaction(spark, table, kind):
    shard = table.shard
    with shard.writer() as writer:
        for step in range(3):
            ids = range(step * 5_000, step * 5_000 + 5_000)
            writer.append(pa.table({"k": list(ids), "v": [f"v{step}"] * 5_000}))
    shard.retain("1 versions")
    keys = pa.table({"k": [1, 7_000, 14_999]})
    asked = (
        keys if kind == "arrow" else spark.createDataFrame([(1,), (7_000,), (14_999,)], "k long")
    )
    before = shard.state()
    found = lookup(table._desk, Tended(spark, shard), asked).to_arrow(table._desk)
    assert sorted(found["v"].to_pylist()) == ["v0", "v1", "v2"]
    assert shard.state().batches != before.batches


def test_a_time_that_was_merged_is_refused(spark, table):
    with table.shard.writer() as writer:
        for step in range(3):
            writer.append(pa.table({"k": [step], "v": ["x"]}))
    table.shard.retain("1 versions")
    table.shard.machine.demand(c.AdvanceSince(now_ms=10**15))
    with pytest.raises(SinceError):
        table.lookup(pa.table({"k": [1]}), 0, spark=spark)
    assert table.lookup_arrow(pa.table({"k": [1]}), 2, spark=spark).num_rows == 1


def test_a_lookup_as_of_a_time_sees_rows_and_parts_of_that_time(spark, table):
    """Times 0 to 2 are in one part, and the one after them is in rows beside it."""
    ids = list(range(5_000))
    settled = pa.table({"k": ids, "v": ["0"] * 5_000, "_time": [0] * 5_000, "_diff": [1] * 5_000})
    for time in (1, 2):
        told = {"k": [5, 5], "v": [f"{time - 1}", f"{time}"], "_time": [time] * 2, "_diff": [-1, 1]}
        settled = pa.concat_tables([settled, pa.table(told)])
    with table.shard.writer() as writer:
        writer.compare_and_append(settled, lower=0, upper=3)
        writer.append(pa.table({"k": [5, 5], "v": ["2", "3"], "_diff": [-1, 1]}))
    for asked in (pa.table({"k": [5]}), spark.createDataFrame([(5,)], "k long")):
        for time in range(4):
            found = table.lookup_arrow(asked, time, spark=spark)
            assert found["v"].to_pylist() == [f"{time}"]


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
