"""What may happen between the steps of a write: the schema, the history or an answer changes."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from pyspark.sql.functions import col

import strandline
from strandline.errors import BoundsError, ConflictError
from strandline.handles.stage import TIMES_MAX
from strandline.model.digest import Digest
from strandline.parts.part import Batch
from strandline.shard import command as c
from strandline.shard.command import UpperMismatch
from strandline.spark.incoming import Meaning
from strandline.spark.jobs import Jobs
from strandline.spark.upserts import upsert, upsert_at

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
WIDER = pa.schema([("k", pa.int64()), ("v", pa.string()), ("note", pa.string())])


class Interrupted(Jobs):
    """Jobs after the first of which somebody does something."""

    def __init__(self, spark, shard, meanwhile) -> None:
        super().__init__(spark, shard.id)
        self.meanwhile = meanwhile

    def over(self, *told):
        answers = super().over(*told)
        self.meanwhile()
        return answers


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as opened:
        opened.shard("t", schema=COLUMNS, key=["k"])
        yield opened


@pytest.mark.parametrize("rows", [1, 5000])
def test_an_upsert_does_not_retract_rows_without_a_column_that_was_added_meanwhile(
    spark, store, rows
):
    table = store.table("t")
    shard = store.shard("t")

    def meanwhile() -> None:
        shard.evolve(WIDER)
        with shard.writer() as writer:
            writer.append(pa.table({"k": [0], "v": ["old"], "note": ["kept"]}))

    jobs = Interrupted(spark, shard, meanwhile)
    came = spark.range(rows).selectExpr("id k", "'ours' v")
    with pytest.raises(ConflictError, match="schema"):
        upsert(table._desk, jobs, came, Meaning())
    found = store.shard("t").snapshot().to_arrow().to_pylist()
    assert found == [{"k": 0, "v": "old", "note": "kept"}]


def test_a_replica_that_lost_is_told_so_although_history_was_merged_meanwhile(spark, store):
    table = store.table("t")
    shard = store.shard("t")

    def meanwhile() -> None:
        with shard.writer() as writer:
            for n in range(3):
                writer.append(pa.table({"k": [n], "v": ["theirs"]}))
        shard.retain("0s")
        shard.machine.demand(c.AdvanceSince(now_ms=10**15))
        assert shard.since.time == 3

    jobs = Interrupted(spark, shard, meanwhile)
    with shard.writer() as writer:
        writer.append(pa.table({"k": [100], "v": ["first"]}))
    came = spark.createDataFrame([(1, "ours", 1)], "k long, v string, _time long")
    outcome = upsert_at(table._desk, jobs, came, Meaning(), (1, 2))
    assert isinstance(outcome, UpperMismatch)
    assert outcome.upper.time == 4


@pytest.mark.parametrize("rows", [1, 5000])
@pytest.mark.parametrize("time", [0, 7])
def test_rows_of_an_upsert_outside_its_interval_are_refused_by_name(spark, store, rows, time):
    table = store.table("t")
    with store.shard("t").writer() as writer:
        writer.advance(3)
    came = spark.range(rows).selectExpr("id k", "'ours' v", f"{time}L _time")
    with pytest.raises(BoundsError):
        table.upsert(came, lower=3, upper=5)


@pytest.mark.parametrize("how", ["lsn", "LSN", "`lsn`", "column"])
def test_a_late_row_is_dropped_however_the_column_of_its_order_is_written(spark, tmp_path, how):
    with strandline.open(str(tmp_path / "l"), upkeep=False) as store:
        columns = pa.schema([("k", pa.int64()), ("lsn", pa.int64())])
        store.shard("o", schema=columns, key=["k"])
        order = col("lsn") if how == "column" else how
        table = store.table("o")
        table.upsert(spark.createDataFrame([(1, 10)], "k long, lsn long"), sequenceBy=order)
        table.upsert(spark.createDataFrame([(1, 5)], "k long, lsn long"), sequenceBy=order)
        assert store.shard("o").snapshot().to_arrow().to_pylist() == [{"k": 1, "lsn": 10}]


def test_copies_of_a_store_whose_schemas_went_different_ways_share_no_block(spark, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with strandline.open(str(one), upkeep=False) as store:
        shard = store.shard("t", schema=COLUMNS, key=["k"])
        with shard.writer() as writer:
            writer.append(pa.table({"k": range(5000), "v": [f"v{n}" for n in range(5000)]}))
    shutil.copytree(one, two)
    keys = pa.table({"k": [7]})
    for folder, column in ((one, ("x", pa.int64())), (two, ("y", pa.string()))):
        with strandline.open(str(folder), upkeep=False) as store:
            store.shard("t").evolve(pa.schema([*COLUMNS, column]))
            found = store.table("t").lookup_arrow(keys, spark=spark).to_pylist()
            assert found == [{"k": 7, "v": "v7", column[0]: None}]


def test_parts_at_more_times_than_an_append_may_have_are_refused(store):
    digests = dict.fromkeys(range(TIMES_MAX + 1), Digest.ZERO)
    with store.shard("t").writer() as writer, pytest.raises(BoundsError, match="several steps"):
        writer.commit_parts(Batch(0, 10**6), digests, lower=0, upper=10**6)
