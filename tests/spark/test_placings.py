"""A large append is put by place before it is committed: the same rows, found in few parts."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.errors import CorruptionError, UsageError
from strandline.parts.ranges import deepest
from strandline.shard.command import UpperMismatch
from strandline.shard.settings import Settings
from strandline.spark import worker
from strandline.spark.appends import append, append_at
from strandline.spark.jobs import Jobs

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = 24_000
EAGER = Settings(place_bytes=1, fanout=1)


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False, settings=EAGER) as opened:
        opened.shard("t", schema=COLUMNS, key=["k"])
        yield opened


def frame(spark, partitions=4, rows=ROWS):
    # Each third key comes twice: once more as it is, which an append does not mind.
    return spark.range(0, rows, 1, partitions).selectExpr(
        "if(id % 3 = 0, id + 1, id) k", "concat('row ', if(id % 3 = 0, id + 1, id)) v"
    )


def parts_of(shard):
    return [part for batch in shard.state().batches for part in batch.parts]


def depth(shard):
    return deepest([(part.place_lo, part.place_hi) for part in parts_of(shard)])[1]


def objects(store):
    return {entry.key for entry in store.env.blob.list("") if entry.key.endswith(".parquet")}


class Failing(Jobs):
    """Jobs of which the second one does not come to its end."""

    def over(self, frame, task, *told):
        if task is worker.place_parts:
            raise InterruptedError("the executors are gone")
        return super().over(frame, task, *told)


class Forgetful(Jobs):
    """Jobs of which the second one loses what a task has put."""

    def over(self, frame, task, *told):
        answers = super().over(frame, task, *told)
        return answers[1:] if task is worker.place_parts else answers


def test_the_same_rows_as_in_one_job_whatever_the_partitions(spark, tmp_path):
    found = {}
    with strandline.open(str(tmp_path / "many"), upkeep=False, settings=EAGER) as store:
        for adaptive in ("true", "false"):
            before = spark.conf.get("spark.sql.adaptive.enabled")
            spark.conf.set("spark.sql.adaptive.enabled", adaptive)
            try:
                for partitions in (1, 2, 4):
                    for by_place in (False, None):
                        name = f"t{adaptive}{partitions}{by_place}"
                        shard = store.shard(name, schema=COLUMNS, key=["k"])
                        done = store.table(name).append(frame(spark, partitions), by_place=by_place)
                        assert (done.rows, done.updates, done.upserted) == (ROWS, ROWS, ROWS)
                        assert done.digest == shard.state().total
                        assert done.jobs == (2 if partitions > 1 and by_place is None else 1)
                        assert depth(shard) == (1 if by_place is None else partitions)
                        found[name] = (done.digest, done.updates)
            finally:
                spark.conf.set("spark.sql.adaptive.enabled", before)
        assert len(set(found.values())) == 1
        snapshots = [store.shard(name).snapshot().to_arrow().sort_by("k") for name in found]
        assert all(each.equals(snapshots[0]) for each in snapshots)


def test_nothing_is_left_of_the_first_parts_and_lookups_find_every_row(spark, store):
    table = store.table("t")
    small = spark.createDataFrame([(-1, "a"), (-2, "b")], "k long, v string")
    done = table.append(frame(spark).union(small))
    assert (done.jobs, done.rows) == (2, ROWS + 2)
    assert objects(store) == {part.key for part in parts_of(table.shard)}
    assert done.parts == len(parts_of(table.shard))
    keys = pa.table({"k": [-2, 1, 2, 3, 4, ROWS - 1]})
    rows = table.lookup_arrow(keys, spark=spark).to_pylist()
    counts = {k: sum(row["k"] == k for row in rows) for k in keys["k"].to_pylist()}
    assert counts == {-2: 1, 1: 2, 2: 1, 3: 0, 4: 2, ROWS - 1: 1}
    # And what was placed is changed like any other row.
    table.upsert(spark.createDataFrame([(2, "new")], "k long, v string"))
    assert table.lookup_arrow(pa.table({"k": [2]}), spark=spark)["v"].to_pylist() == ["new"]


def test_rows_with_times_of_their_own_keep_them(spark, store):
    timed = spark.range(0, ROWS, 1, 3).selectExpr("id k", "'x' v", "id % 2 _time")
    done = store.table("t").append(timed, lower=0, upper=2)
    shard = store.shard("t")
    assert (done.jobs, done.upper.time, depth(shard)) == (2, 2, 1)
    assert shard.snapshot(0).count() == ROWS // 2
    assert shard.snapshot(1).count() == ROWS


def test_a_replica_that_was_overtaken_leaves_neither_first_nor_placed_parts(spark, store):
    class Raced(Jobs):
        def over(self, frame, task, *told):
            answers = super().over(frame, task, *told)
            if task is worker.place_parts:
                store.shard("t").writer().append(pa.table({"k": [-1], "v": ["theirs"]}))
            return answers

    shard = store.shard("t")
    came = spark.range(0, ROWS, 1, 2).selectExpr("id k", "'ours' v", "0L _time")
    outcome = append_at(store.table("t")._desk, Raced(spark, shard.id), came, (0, 1))
    assert outcome == UpperMismatch(shard.upper)
    assert objects(store) == set()


@pytest.mark.parametrize(
    ("jobs", "error", "orphans"),
    [(Failing, InterruptedError, False), (Forgetful, CorruptionError, True)],
)
def test_an_append_whose_second_job_fails_has_not_happened(spark, store, jobs, error, orphans):
    shard = store.shard("t")
    with pytest.raises(error):
        append(store.table("t")._desk, jobs(spark, shard.id), frame(spark))
    assert shard.state().upper.time == 0
    # What the tasks of the second job have put are orphans, as ever; the first parts are gone.
    assert bool(objects(store)) is orphans
    assert store.table("t").append(frame(spark)).rows == ROWS
    assert shard.snapshot().count() == ROWS


def test_small_appends_and_tables_without_a_key_stay_one_job(spark, tmp_path):
    with strandline.open(str(tmp_path / "plain"), upkeep=False) as store:
        store.shard("keyed", schema=COLUMNS, key=["k"])
        assert store.table("keyed").append(frame(spark)).jobs == 1
        assert store.table("keyed").append(frame(spark), by_place=True).jobs == 2
    with strandline.open(str(tmp_path / "eager"), upkeep=False, settings=EAGER) as store:
        store.shard("loose", schema=COLUMNS)
        assert store.table("loose").append(frame(spark)).jobs == 1
        with pytest.raises(UsageError, match="no key"):
            store.table("loose").append(frame(spark), by_place=True)


def test_bad_rows_are_refused_as_in_one_job(spark, store):
    with pytest.raises(strandline.SchemaError, match="null"):
        store.table("t").append(
            spark.range(0, ROWS, 1, 2).selectExpr("if(id = 9, null, id) k", "'x' v")
        )
    assert store.shard("t").state().upper.time == 0
