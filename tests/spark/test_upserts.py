"""Upserts that race: rows are looked up again, and none is ever lost."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.errors import BoundsError, UsageError
from strandline.shard.command import UpperMismatch
from strandline.spark.incoming import Meaning
from strandline.spark.jobs import Jobs
from strandline.spark.upserts import upsert, upsert_at

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
DDL = "k long, v string"


class Raced(Jobs):
    """Jobs during which somebody else appends, as often as there is something to append."""

    def __init__(self, spark, shard, rivals) -> None:
        super().__init__(spark, shard.id)
        self.shard = shard
        self.rivals = list(rivals)

    def errands(self, *told):
        answers = super().errands(*told)
        if self.rivals:
            with self.shard.writer() as writer:
                writer.append(self.rivals.pop(0))
        return answers


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as opened:
        opened.shard("t", schema=COLUMNS, key=["k"])
        yield opened


def held(store):
    return sorted(store.shard("t").snapshot().to_arrow().to_pylist(), key=str)


def change(*updates):
    names = ("k", "v", "_diff")
    return pa.table({name: [u[at] for u in updates] for at, name in enumerate(names)})


@pytest.mark.parametrize("rows", [1, 5000])
def test_a_lost_race_looks_the_old_rows_up_again(spark, store, rows):
    table = store.table("t")
    table.append(spark.range(rows).selectExpr("id k", "'old' v"))
    rivals = [change((0, "old", -1), (0, "theirs", 1)), change((0, "theirs", -1), (-1, "x", 1))]
    jobs = Raced(spark, store.shard("t"), rivals)
    came = spark.range(rows).selectExpr("id k", "'ours' v")
    done = upsert(table._desk, jobs, came, Meaning())
    assert (done.attempts, done.jobs, done.time) == (3, 4, 3)
    assert (done.rows, done.upserted) == (rows, rows)
    expected = [{"k": -1, "v": "x"}, *({"k": k, "v": "ours"} for k in range(rows))]
    assert held(store) == sorted(expected, key=str)


def left_over(store):
    """Objects of a kind that no call may leave behind."""
    keys = [entry.key for entry in store.env.blob.list("")]
    return [key for key in keys if not key.endswith(".ground")]


@pytest.mark.parametrize("rows", [2, 6_000, 20_000], ids=["few", "errands put", "rows put"])
def test_a_replica_that_loses_drops_its_rows(spark, store, rows):
    jobs = Raced(spark, store.shard("t"), [change((1, "theirs", 1))])
    came = spark.range(0, rows, 1, 2).selectExpr("id k", "repeat('ours', 30) v", "0L _time")
    outcome = upsert_at(store.table("t")._desk, jobs, came, Meaning(), (0, 1))
    assert isinstance(outcome, UpperMismatch)
    assert outcome.upper.time == 1
    assert held(store) == [{"k": 1, "v": "theirs"}]
    assert left_over(store) == []
    with pytest.raises(BoundsError):
        upsert_at(store.table("t")._desk, jobs, came, Meaning(), (5, 4))


def test_a_table_without_a_key_is_refused_before_any_job(spark, store):
    shard = store.shard("log", schema=COLUMNS)
    jobs = Raced(spark, shard, [])
    with pytest.raises(UsageError, match="has no key"):
        upsert(store.table("log")._desk, jobs, spark.createDataFrame([(1, "a")], DDL), Meaning())
    assert jobs.count == 0


def test_a_large_batch_is_staged_and_never_passes_the_driver(spark, store):
    table = store.table("t")
    count = 200_000
    first = table.upsert(spark.range(0, count, 1, 2).selectExpr("id k", "concat('row ', id) v"))
    assert (first.upserted, first.jobs) == (count, 2)
    came = spark.range(0, count, 1, 3).selectExpr(
        "id k", "if(id % 2 = 0, 'new', concat('row ', id)) v"
    )
    done = table.upsert(came, deleteWhen="k % 1000 = 0")
    assert (done.deleted, done.upserted, done.unchanged) == (200, count // 2 - 200, count // 2)
    assert store.shard("t").snapshot().count() == count - 200
    left = [entry.key for entry in store.env.blob.list(f"{table.shard.id}/")]
    assert not [key for key in left if key.endswith((".rows", ".errands"))]
