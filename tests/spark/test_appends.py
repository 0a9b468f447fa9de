"""Appends of DataFrames: one job, and only orphans of attempts that did not count."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError
from strandline.shard.command import UpperMismatch
from strandline.spark.appends import append, append_at
from strandline.spark.desk import Desk
from strandline.spark.jobs import Jobs

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


class Raced(Jobs):
    """Jobs after each of which somebody else has appended."""

    def __init__(self, spark, shard) -> None:
        super().__init__(spark, shard.id)
        self.shard = shard

    def over(self, *told):
        answers = super().over(*told)
        with self.shard.writer() as writer:
            writer.append(pa.table({"k": [-1], "v": ["theirs"]}))
        return answers


class Overtaken(Desk):
    """A desk that looks twice before others append: when a call begins, and when it commits."""

    looks = 0

    def writable(self):
        state = super().writable()
        self.looks += 1
        if self.looks == 2:
            with self.shard.writer() as writer:
                writer.append(pa.table({"k": [-1], "v": ["theirs"]}))
        return state


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


def parts(store):
    return [entry.key for entry in store.env.blob.list("") if entry.key.endswith(".parquet")]


def test_an_append_that_was_overtaken_takes_the_next_time(spark, store):
    shard = store.shard("t")
    came = spark.range(0, 20_000, 1, 2).selectExpr("id k", "'ours' v")
    done = append(store.table("t")._desk, Raced(spark, shard), came)
    assert (done.time, done.rows, done.upserted, done.updates) == (1, 20_000, 20_000, 20_000)
    assert (done.jobs, done.attempts, done.parts) == (1, 1, len(parts(store)))
    assert shard.snapshot(0).to_arrow()["v"].to_pylist() == ["theirs"]
    assert shard.snapshot(1).count() == 20_001


def test_an_append_that_loses_the_race_says_how_often_it_tried(spark, store):
    shard = store.shard("t")
    desk = Overtaken(store, shard, ("", 0))
    done = append(desk, Jobs(spark, shard.id), spark.range(20_000).selectExpr("id k", "'x' v"))
    assert (done.time, done.jobs, done.attempts) == (1, 1, 2)
    assert shard.snapshot().count() == 20_001
    desk.close()


@pytest.mark.parametrize("rows", [1, 20_000])
def test_a_replica_that_was_overtaken_is_told_so_and_leaves_no_part(spark, store, rows):
    came = spark.range(0, rows, 1, 2).selectExpr("id k", "'ours' v", "0L _time")
    outcome = append_at(store.table("t")._desk, Raced(spark, store.shard("t")), came, (0, 1))
    assert outcome == UpperMismatch(store.shard("t").upper)
    assert parts(store) == []
    # And before it has run a job, if it is late already.
    jobs = Raced(spark, store.shard("t"))
    assert append_at(store.table("t")._desk, jobs, came, (0, 1)) == outcome
    assert jobs.count == 0
    with pytest.raises(BoundsError):
        append_at(store.table("t")._desk, jobs, came, (2, 1))
