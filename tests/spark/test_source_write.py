"""Writers as Spark calls them, without Spark: planner, tasks, committer."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

import strandline
from strandline.errors import ReplicaDivergedError, SchemaError, UsageError
from strandline.model.digest import Digest
from strandline.shard import command as c
from strandline.spark.source import StrandlineSource
from strandline.spark.source_write import app_name

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
K, V = StructField("k", LongType()), StructField("v", StringType())
ROWS = StructType([K, V])
GONE = StructField("gone", BooleanType())
ORDER = StructField("n", LongType())


@pytest.fixture(params=[10**6, 0], ids=["few rows", "parts"])
def shard(request, tmp_path, monkeypatch):
    monkeypatch.setattr("strandline.spark.source_stage.RETURNED_BYTES", request.param)
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=["k"])
        shard.path = str(tmp_path / "lake" / "t")
        yield shard


def source(shard, **options):
    return StrandlineSource({"path": shard.path, **options})


def batches(rows, schema):
    types = {"k": pa.int64(), "v": pa.string(), "gone": pa.bool_(), "n": pa.int64()}
    wanted = pa.schema([(name, types[name]) for name in schema.names])
    return iter(pa.Table.from_pylist(rows, wanted).to_batches())


def write(shard, *tasks, schema=ROWS, **options):
    writer = source(shard, **options).writer(schema, overwrite=False)
    writer.commit([writer.write(batches(rows, schema)) for rows in tasks])


def content(shard):
    return {row["k"]: row["v"] for row in shard.snapshot().to_arrow().to_pylist()}


def objects(shard):
    return [entry.key for entry in shard.machine.env.blob.list("")]


def test_an_append_of_many_tasks_is_one_version(shard):
    write(shard, [{"k": 1, "v": "a"}], [{"k": 2, "v": "b"}], [])
    assert content(shard) == {1: "a", 2: "b"}
    assert shard.upper.time == 1
    assert not shard.state().writers


def test_an_upsert_replaces_and_deletes_by_key(shard):
    write(shard, [{"k": n, "v": "old"} for n in range(5)])
    changed = [{"k": 1, "v": "new", "gone": False}, {"k": 2, "v": None, "gone": True}]
    schema = StructType([K, V, GONE])
    write(shard, changed[:1], changed[1:], schema=schema, keys="k", deleteWhen="gone")
    assert content(shard) == {0: "old", 1: "new", 3: "old", 4: "old"}
    assert not [key for key in objects(shard) if key.endswith(".rows")]


def test_the_last_row_of_a_key_counts_by_order(shard):
    rows = [{"k": 1, "v": f"v{n}", "n": n} for n in (2, 3, 1)]
    schema = StructType([K, V, ORDER])
    write(shard, rows[:1], rows[1:], schema=schema, keys="k", sequenceBy="n")
    assert content(shard) == {1: "v3"}
    with pytest.raises(UsageError, match=r"key 'k' = 1 .*sequenceBy"):
        write(shard, *([{"k": 1, "v": value}] for value in "xy"), keys="k")
    assert content(shard) == {1: "v3"}


def test_a_row_that_comes_late_is_dropped_where_the_order_is_stored(shard):
    shard.evolve(pa.schema([*COLUMNS, ("n", pa.int64())]))
    schema = StructType([K, V, ORDER])
    for value, order in (("second", 2), ("first", 1), ("third", 3)):
        row = {"k": 1, "v": value, "n": order}
        write(shard, [row], schema=schema, keys="k", sequenceBy="n")
        assert content(shard) == {1: "third" if order == 3 else "second"}


def test_a_write_without_tasks_leaves_no_writer(shard):
    source(shard).writer(ROWS, overwrite=False).commit([None])
    assert not shard.state().writers
    assert shard.upper.time == 0


def test_columns_are_told_apart_by_name(shard):
    for options in ({}, {"keys": "k"}):
        write(shard, [{"k": 1, "v": "a"}], schema=StructType([V, K]), **options)
    assert content(shard) == {1: "a"}


def test_an_upsert_that_changes_nothing_makes_no_version(shard):
    write(shard, [{"k": 1, "v": "a"}], keys="k")
    upper = shard.upper
    write(shard, [{"k": 1, "v": "a"}], keys="k")
    assert shard.upper == upper


def test_another_writer_only_delays_an_upsert(shard):
    writer = source(shard, keys="k").writer(ROWS, overwrite=False)
    message = writer.write(batches([{"k": 1, "v": "late"}], ROWS))
    with shard.writer() as other:
        other.append([{"k": 1, "v": "early"}])
    writer.commit([message])
    assert content(shard) == {1: "late"}


def test_a_batch_of_an_application_counts_once(shard):
    told = {"txnAppId": "job", "txnVersion": "3"}
    for _ in range(2):
        write(shard, [{"k": 1, "v": "a"}], **told)
    assert shard.snapshot().count() == 1
    with pytest.raises(ReplicaDivergedError, match="batch 3 of application job"):
        write(shard, [{"k": 1, "v": "b"}], **told)
    write(shard, [{"k": 2, "v": "c"}], **{**told, "txnVersion": "2"})
    assert content(shard) == {1: "a"}


def test_a_micro_batch_that_comes_again_is_the_same_or_an_error(shard):
    def once(rows, batch):
        planner = source(shard, keys="k", txnAppId="q").streamWriter(ROWS, overwrite=False)
        planner.__getstate__()  # As Spark does when it sends it to the tasks.
        message = planner.write(batches(rows, ROWS))
        committer = source(shard, keys="k", txnAppId="q").streamWriter(ROWS, overwrite=False)
        committer.commit([message, None], batch)

    once([{"k": 1, "v": "a"}], 0)
    once([{"k": 1, "v": "b"}], 1)
    once([{"k": 1, "v": "b"}], 1)
    with pytest.raises(UsageError, match=r"batch 0 of stream q was not written .*was reset"):
        once([{"k": 2, "v": "new"}], 0)
    assert content(shard) == {1: "b"}
    with pytest.raises(ReplicaDivergedError):
        once([{"k": 1, "v": "c"}], 1)
    assert content(shard) == {1: "b"}
    assert not shard.state().writers


@pytest.fixture
def once(shard):
    """Writes a micro-batch of an upsert as Spark does."""

    def written(rows, batch, schema):
        given = source(shard, keys="k", sequenceBy="n", txnAppId="q")
        writer = given.streamWriter(schema, overwrite=False)
        writer.__getstate__()
        writer.commit([writer.write(batches(rows, schema))], batch)

    return written


def test_a_micro_batch_is_the_same_after_its_table_got_a_column(shard, once):
    row = {"k": 1, "v": "a", "n": 5}
    once([row], 0, StructType([K, V, ORDER]))
    shard.evolve(pa.schema([*COLUMNS, ("gone", pa.bool_())]))
    wider = StructType([K, V, GONE, ORDER])
    once([row], 0, wider)
    with pytest.raises(ReplicaDivergedError):
        once([{**row, "gone": True}], 0, wider)
    once([row, {"k": 2, "v": "b", "gone": True, "n": 6}], 1, wider)
    assert content(shard) == {1: "a", 2: "b"}


def test_a_micro_batch_on_record_by_the_positions_of_columns_is_known_again(
    shard, once, monkeypatch
):
    schema, row = StructType([K, V, ORDER]), {"k": 1, "v": "a", "n": 5}

    def by_positions(messages, _recorded):
        (message,) = messages
        return Digest.unpack(message.former)

    with monkeypatch.context() as before:
        before.setattr("strandline.spark.source_write.digest_of", by_positions)
        once([row], 0, schema)
    once([row], 0, schema)
    with pytest.raises(ReplicaDivergedError):
        once([{**row, "n": 6}], 0, schema)
    once([{**row, "n": 6}], 1, schema)
    assert shard.state().txns["q"].batch == 1


@pytest.mark.parametrize("options", [{}, {"keys": "k"}], ids=["append", "upsert"])
def test_a_micro_batch_without_rows_is_compared_like_any_other(shard, options):
    def once(rows, batch):
        writer = source(shard, txnAppId="q", **options).streamWriter(ROWS, overwrite=False)
        writer.__getstate__()
        writer.commit([writer.write(batches(rows, ROWS))], batch)

    once([], 0)
    once([{"k": 1, "v": "a"}], 1)
    with pytest.raises(ReplicaDivergedError):
        once([], 1)
    upper = shard.upper
    once([], 2)
    once([], 2)
    assert shard.upper == upper, "nothing is no version"
    with pytest.raises(UsageError, match="was reset"):
        once([], 0)
    once([{"k": 2, "v": "b"}], 2)
    once([{"k": 2, "v": "b"}], 2)
    assert content(shard) == {1: "a", 2: "b"}
    assert not shard.state().writers


def test_a_stream_writer_is_one_writer_however_often_it_is_sent_and_ends_when_given_up(shard):
    planner = source(shard, txnAppId="q").streamWriter(ROWS, overwrite=False)
    assert planner.__getstate__() == planner.__getstate__()
    assert len(shard.state().writers) == 1
    message = planner.write(batches([{"k": 1, "v": "a"}], ROWS))
    other = source(shard, txnAppId="q").streamWriter(ROWS, overwrite=False)
    other.abort([None], 0)
    assert len(shard.state().writers) == 1
    other.abort([message, None], 0)
    assert not shard.state().writers
    assert shard.upper.time == 0


def test_giving_up_leaves_nothing_that_the_collector_does_not_find(shard):
    for options in ({}, {"keys": "k"}):
        writer = source(shard, **options).writer(ROWS, overwrite=False)
        message = writer.write(batches([{"k": 1, "v": "a"}], ROWS))
        writer.abort([message, None])
    assert not [key for key in objects(shard) if key.endswith(".rows")]
    shard._upkeep.collector.sweep(shard.machine, delete=True)
    assert objects(shard) == []
    assert not shard.state().writers
    assert shard.upper.time == 0


def test_giving_up_after_a_commit_that_counted_deletes_nothing(shard):
    writer = source(shard).writer(ROWS, overwrite=False)
    message = writer.write(batches([{"k": 1, "v": "a"}], ROWS))
    writer.commit([message])
    writer.abort([message])
    assert content(shard) == {1: "a"}


@pytest.mark.parametrize(
    ("schema", "options", "error", "told"),
    [
        ([K], {}, SchemaError, "the rows lack 'v'"),
        ([K, V, GONE], {}, SchemaError, "no column 'gone'"),
        ([K, V], {"keys": "k", "deleteWhen": "gone"}, SchemaError, "lack 'gone'"),
        ([K, V], {"keys": "k", "deleteWhen": "v"}, SchemaError, "'v', which is a string and not"),
        ([K, V], {"keys": "k", "deleteWhen": "k = 'D'"}, SchemaError, "compares column 'k'"),
        ([K, V], {"keys": "v"}, UsageError, "has the key 'k', not 'v'"),
        ([StructField("k", StringType()), V], {}, SchemaError, "column 'k' of the rows"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_runs(
    shard, schema, options, error, told
):
    with pytest.raises(error, match=told):
        source(shard, **options).writer(StructType(schema), overwrite=False)
    assert not shard.state().writers


@pytest.mark.parametrize("options", [{}, {"keys": "k"}])
def test_a_null_in_a_key_is_refused(shard, options):
    with pytest.raises(SchemaError, match="null"):
        write(shard, [{"k": None, "v": "a"}], **options)
    assert shard.upper.time == 0


def test_a_write_that_outlives_its_term_does_not_count(shard):
    writer = source(shard, leaseMs="1").writer(ROWS, overwrite=False)
    message = writer.write(batches([{"k": 1, "v": "a"}], ROWS))
    (name,) = shard.state().writers
    shard.machine.commit(c.Release(writers=(name,)))
    with pytest.raises(strandline.StrandlineError):
        writer.commit([message])
    assert shard.upper.time == 0


def test_names_of_applications_are_texts_or_their_hashes():
    assert app_name("/data/checkpoints/a") == "/data/checkpoints/a"
    assert app_name("/dätä") == app_name("/dätä")
    assert app_name("/" + "x" * 200).startswith("hashed ")
