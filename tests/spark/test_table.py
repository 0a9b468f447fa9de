"""Tables for Spark's users: appends, upserts and lookups of DataFrames, and what is refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812

import strandline
from strandline.errors import BoundsError, SchemaError, UsageError
from strandline.shard.command import UpperMismatch
from strandline.spark.table import frame_of

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int64())])
DDL = "k long, v string, n long"


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as opened:
        opened.shard("t", schema=COLUMNS, key=["k"])
        yield opened


@pytest.fixture
def table(store):
    return store.table("t")


def held(store, as_of=None):
    return sorted(
        map(tuple, (r.values() for r in store.shard("t").snapshot(as_of).to_arrow().to_pylist()))
    )


def test_a_table_is_one_for_each_name(store):
    assert store.table("t") is store.table("t")
    with pytest.raises(strandline.NotFoundError):
        store.table("nothing")


def test_few_rows_are_appended_inline_and_many_as_parts(spark, store, table):
    few = table.append(spark.createDataFrame([(1, "a", 1)], DDL))
    assert (few.time, few.rows, few.parts, few.jobs) == (0, 1, 0, 1)
    many = table.append(spark.range(10, 20_000, 1, 2).selectExpr("id k", "'x' v", "id n"))
    assert (many.time, many.rows, many.jobs) == (1, 19_990, 1)
    assert many.parts == 2
    assert many.bytes > 0
    assert store.shard("t").snapshot().count() == 19_991
    keys = [entry.key for entry in store.env.blob.list(f"{table.shard.id}/")]
    assert sum(key.endswith(".parquet") for key in keys) == 2


def test_nothing_to_append_moves_no_time(spark, store, table):
    done = table.append(spark.createDataFrame([], DDL))
    assert (done.time, done.rows) == (None, 0)
    assert table.shard.upper.time == 0


@pytest.mark.floor
def test_an_upsert_inserts_replaces_deletes_and_leaves_alone(spark, store, table):
    table.append(spark.createDataFrame([(1, "a", 1), (2, "b", 1), (3, "c", 1)], DDL))
    came = spark.createDataFrame(
        [
            (1, "A", 1, "u"),
            (2, "b", 1, "u"),
            (3, None, None, "d"),
            (4, "d", 1, "u"),
            (9, "", 0, "d"),
        ],
        f"{DDL}, op string",
    )
    done = table.upsert(came, deleteWhen="op = 'd'")
    assert (done.upserted, done.deleted, done.unchanged, done.jobs) == (2, 1, 2, 2)
    assert held(store) == [(1, "A", 1), (2, "b", 1), (4, "d", 1)]
    assert held(store, 0) == [(1, "a", 1), (2, "b", 1), (3, "c", 1)]
    again = table.upsert(came, deleteWhen=F.col("op") == "d")
    assert (again.time, again.unchanged) == (None, 5)


def test_the_last_row_of_a_key_wins_by_an_order_that_need_not_be_stored(spark, store, table):
    came = spark.createDataFrame(
        [(1, "old", 1, 7), (1, "new", 1, 9), (2, "x", 1, 1)], f"{DDL}, lsn long"
    )
    done = table.upsert(came.repartition(3), sequenceBy="lsn")
    assert (done.upserted, done.superseded) == (2, 1)
    assert held(store) == [(1, "new", 1), (2, "x", 1)]
    table.upsert(came.where("k = 1"), sequenceBy=["-lsn", "v"])
    assert held(store) == [(1, "old", 1), (2, "x", 1)]


def test_a_row_that_comes_late_is_dropped_where_the_order_is_stored(spark, store, table):
    table.upsert(spark.createDataFrame([(1, "new", 5)], DDL), sequenceBy="n")
    done = table.upsert(spark.createDataFrame([(1, "late", 4), (2, "x", 1)], DDL), sequenceBy="n")
    assert (done.late, done.upserted) == (1, 1)
    assert held(store) == [(1, "new", 5), (2, "x", 1)]


@pytest.mark.parametrize(
    ("rows", "ddl", "options", "refusal"),
    [
        ([(1, "a")], "k long, v string", {}, (SchemaError, "lack 'n'")),
        ([(1, "a", 1, 2)], f"{DDL}, x int", {}, (SchemaError, "no column 'x'")),
        ([(1, "a", 1, 2)], f"{DDL}, x int", {"sequenceBy": "y"}, (SchemaError, "no column 'x'")),
        ([(1, 2, 1)], "k long, v int, n long", {}, (SchemaError, "column 'v'")),
        ([(1, "a", 1)], DDL, {"keys": ["v"]}, (UsageError, "has the key 'k'")),
        ([(1, "a", 1)], DDL, {"sequenceBy": "nope + 1"}, (UsageError, "can't be understood")),
        ([(1, "a", 1)], DDL, {"lower": 0}, (UsageError, "go together")),
        ([(None, "a", 1)], DDL, {}, (SchemaError, "null in 'k'")),
        ([(7, "a", 1), (7, "b", 1)], DDL, {}, (UsageError, "key 'k' = 7 has different rows")),
    ],
)
def test_what_does_not_fit_is_refused_by_name(spark, table, rows, ddl, options, refusal):
    error, reason = refusal
    with pytest.raises(error, match=reason):
        table.upsert(spark.createDataFrame(rows, ddl), **options)
    assert table.shard.upper.time == 0


def test_a_replica_settles_an_interval_or_is_told_who_did(spark, store, table):
    timed = spark.createDataFrame(
        [(1, "a", 1, 0), (1, "b", 1, 2), (2, "x", 1, 1)], f"{DDL}, _time long"
    )
    done = table.upsert(timed, lower=0, upper=3)
    assert (done.time, done.upserted) == (2, 3)
    assert held(store, 0) == [(1, "a", 1)]
    assert held(store, 2) == [(1, "b", 1), (2, "x", 1)]
    assert table.upsert(timed, lower=0, upper=3) == UpperMismatch(done.upper)
    assert table.append(timed, lower=0, upper=3) == UpperMismatch(done.upper)
    nothing = spark.createDataFrame([], f"{DDL}, _time long")
    assert table.upsert(nothing, lower=3, upper=5).upper.time == 5


@pytest.mark.floor
def test_keys_are_looked_up_as_of_a_time_from_arrow_and_from_spark(spark, store, table):
    table.append(spark.range(0, 30_000, 1, 2).selectExpr("id k", "'old' v", "id n"))
    table.upsert(spark.createDataFrame([(5, "new", 0)], DDL))
    keys = pa.table({"k": [5, 6, 99_999]})
    assert sorted(map(tuple, table.lookup(keys, spark=spark).collect())) == [
        (5, "new", 0),
        (6, "old", 6),
    ]
    assert table.lookup_arrow(keys, 0, spark=spark)["v"].to_pylist() == ["old", "old"]
    # A key that several tasks look up is found once.
    asked = spark.createDataFrame([(5,), (5,), (6,), (6,)], "k long").repartition(4)
    assert sorted(map(tuple, table.lookup(asked).collect())) == [(5, "new", 0), (6, "old", 6)]
    with pytest.raises(SchemaError, match="the keys lack 'k'"):
        table.lookup(spark.range(3))


def test_a_shard_in_memory_is_refused_by_name(spark):
    with strandline.open("memory://", upkeep=False) as store:
        store.shard("t", schema=COLUMNS, key=["k"])
        with pytest.raises(UsageError, match="workers can't see it"):
            store.table("t").append(spark.createDataFrame([(1, "a", 1)], DDL))


def test_a_table_without_a_key_takes_appends_alone(spark, store):
    store.shard("log", schema=COLUMNS)
    log = store.table("log")
    assert log.append(spark.range(3).selectExpr("id k", "'x' v", "id n")).rows == 3
    with pytest.raises(UsageError, match="has no key"):
        log.upsert(spark.createDataFrame([(1, "a", 1)], DDL))


TYPED = [
    (pa.bool_(), True),
    (pa.int8(), -1),
    (pa.int16(), -1),
    (pa.int32(), -1),
    (pa.uint8(), 255),
    (pa.uint16(), 2**16 - 1),
    (pa.uint32(), 2**32 - 1),
    (pa.float32(), 1.5),
    (pa.float64(), float("-inf")),
    (pa.large_string(), "é"),
    (pa.large_binary(), b"\x00\xff"),
    (pa.binary(3), b"abc"),
    (pa.date32(), dt.date(1969, 12, 31)),
    (pa.timestamp("us", "UTC"), dt.datetime(2024, 5, 6, 7, 8, 9, 10, dt.UTC)),
    (pa.timestamp("ms"), dt.datetime(2024, 5, 6, 7, 8, 9)),  # noqa: DTZ001
    (pa.duration("us"), dt.timedelta(days=-1, microseconds=3)),
    (pa.decimal128(12, 2), Decimal("-1.25")),
    (pa.decimal256(38, 2), Decimal("-1.25")),
    (pa.list_(pa.uint8()), [1, None]),
    (pa.large_list(pa.large_string()), ["a"]),
    (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    (pa.struct([("a", pa.float32()), ("b", pa.list_(pa.string()))]), {"a": 1.5, "b": ["x"]}),
]


@pytest.mark.floor
def test_values_of_every_type_go_through_a_table_and_come_back(spark, store):
    columns = {f"c{at}": pa.array([None, value], kind) for at, (kind, value) in enumerate(TYPED)}
    rows = pa.table({"k": [1, 2], **columns})
    shard = store.shard("typed", schema=rows.schema, key=["k"])
    table = store.table("typed")
    table.append(frame_of(spark, rows))
    assert shard.snapshot().to_arrow().sort_by("k").to_pylist() == rows.to_pylist()
    assert table.upsert(frame_of(spark, rows)).unchanged == 2
    found = table.lookup(pa.table({"k": [2, 1]}), spark=spark).toArrow().sort_by("k")
    assert found.to_pylist() == rows.to_pylist()


def test_rows_after_an_empty_chunk_are_not_lost(spark):
    some, none, rest = (pa.table({"a": pa.array(each, pa.int64())}) for each in ([1], [], [2]))
    frame = frame_of(spark, pa.concat_tables([some, none, rest]))
    assert frame.toArrow()["a"].to_pylist() == [1, 2]


def test_a_table_that_is_closed_is_read_as_before(spark, store, table):
    table.append(spark.createDataFrame([(1, "a", 1), (2, "b", 2)], DDL))
    with store.shard("t").writer() as writer:
        writer.advance(None)
    wanted = pa.table({"k": [1, 2]})
    assert sorted(row.k for row in table.df(spark).collect()) == [1, 2]
    assert table.lookup_arrow(wanted, spark=spark).num_rows == 2
    assert table.lookup(spark.createDataFrame([(2,)], "k long")).count() == 1
    assert table.changes(0, spark=spark).count() == 2


@pytest.mark.parametrize("start", [-1, 3])
def test_changes_from_a_place_that_is_not_the_tables_are_refused(spark, table, start):
    table.append(spark.createDataFrame([(1, "a", 1)], DDL))
    table.append(spark.createDataFrame([(2, "a", 1)], DDL))
    assert table.changes(2, spark=spark).count() == 0
    with pytest.raises(BoundsError, match=str(start)):
        table.changes(start, spark=spark)


def test_changes_up_to_where_they_begin_are_none(spark, table):
    """As in a loop that asks for what is new, where nothing is."""
    assert table.changes(0, 0, spark=spark).count() == 0
    table.append(spark.createDataFrame([(1, "a", 1)], DDL))
    table.append(spark.createDataFrame([(2, "a", 1)], DDL))
    table.compact(spark, full=True)
    for start, end in ((2, 2), (1, 1), (0, 0), (2, 1), (2, 0)):
        assert table.changes(start, end, spark=spark).count() == 0
    assert table.changes(0, 2, spark=spark).count() == 2
    for start, end in ((3, 3), (2, 3), (0, 3)):
        with pytest.raises(BoundsError, match=r"settled up\s+to \{2\}"):
            table.changes(start, end, spark=spark)


@pytest.mark.parametrize(
    ("given", "named"),
    [([1, 2], "list"), ({"k": 1}, "dict"), (pa.array([1]), r"pyarrow\.Int64Array")],
)
def test_what_is_no_frame_is_refused_by_name(spark, table, given, named):
    for call in (table.append, table.upsert):
        with pytest.raises(UsageError, match=rf"takes a DataFrame of Spark, not {named}: make one"):
            call(given)
    for call in (table.lookup, table.lookup_arrow):
        with pytest.raises(UsageError, match=rf"lookup takes .*, not {named}: write pa\.table"):
            call(given)
    with pytest.raises(UsageError, match=r"append takes a DataFrame of Spark, not pyarrow\.Table"):
        table.append(pa.table({"k": [1]}))
