"""The data source in a real session: few tests, each of what Spark itself must be right about."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import strandline
from strandline.errors import SchemaError, SinceError
from strandline.spark.source_cast import arrow_of

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=["k"])
        with shard.writer() as writer:
            writer.append([{"k": n, "v": "old"} for n in range(10)])
        yield store


def read(spark, store, table="t", **options):
    return spark.read.format("strandline").options(**options).load(f"{store.url}/{table}")


def write(frame, store, table="t", mode="append", **options):
    frame.write.format("strandline").mode(mode).options(**options).save(f"{store.url}/{table}")


@pytest.mark.floor
def test_rows_written_by_spark_are_read_by_it_and_by_everybody(spark, store):
    rows = spark.range(3).selectExpr("id AS k", "'new' AS v", "id = 2 AS gone")
    write(rows, store, keys="k", deleteWhen="gone")
    found = {row.k: row.v for row in read(spark, store).collect()}
    assert found == {0: "new", 1: "new", **dict.fromkeys(range(3, 10), "old")}
    assert sorted(found) == sorted(store.shard("t").snapshot().to_arrow()["k"].to_pylist())
    assert read(spark, store, versionAsOf="0").where("v = 'new'").count() == 0
    assert read(spark, store).where("k = 5 AND v = 'old'").count() == 1
    feed = read(spark, store, readChangeFeed="true", startingVersion="1")
    kinds = {(row.k, row._change_type, row._commit_version) for row in feed.collect()}
    assert kinds == {
        (2, "delete", 1),
        *((k, f"update_{image}", 1) for k in (0, 1) for image in ("preimage", "postimage")),
    }


def test_every_type_of_spark_comes_back_as_it_went(spark, store):
    rows = spark.sql(
        """
        SELECT id AS k, id = 1 AS bool, tinyint(id) AS tiny, smallint(id) AS small, int(id) AS i,
               float(id) AS f, double(id) / 3 AS d, decimal(id) / 7 AS dec, string(id) AS s,
               binary(string(id)) AS bin, DATE '2026-01-31' AS day,
               TIMESTAMP '2026-01-31 12:00:00.123456' AS at,
               TIMESTAMP_NTZ '2026-01-31 12:00:00.123456' AS local,
               INTERVAL '1 02:03:04.5' DAY TO SECOND AS took, TIME '12:34:56.123456' AS clock,
               array(id, NULL) AS list, map('a', id) AS dict,
               map(id, array(map('x', decimal(id) / 7))) AS maps,
               array(named_struct('at', TIMESTAMP_NTZ '2026-01-31 12:00:00', 'bin', binary('b'),
                                  'took', INTERVAL '0 0:0:5' DAY TO SECOND,
                                  'clock', TIME '01:02:03')) AS nested,
               named_struct('x', id, 'y', array(named_struct('z', string(id)))) AS deep,
               CASE WHEN id = 2 THEN 'x' END AS maybe
        FROM range(4)
        """
    )
    store.shard("types", arrow_of(rows.schema), key=["k"])
    write(rows, store, "types")
    write(rows.where("k < 2"), store, "types", keys="k")
    found = read(spark, store, "types")
    # Inside nested types everything may be null; only columns promise that nothing is.
    assert found.schema.simpleString() == rows.schema.simpleString()
    assert found.orderBy("k").collect() == rows.orderBy("k").collect()


REFUSED = {
    "variant": "parse_json('[1]')",
    "interval year to month": "INTERVAL '1-2' YEAR TO MONTH",
    "interval": "make_interval(1, 2, 3)",
    "geometry": "ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040')",
    "geography": "ST_GeogFromWKB(X'0101000000000000000000F03F0000000000000040')",
    "string collate UTF8_LCASE": "'a' COLLATE UTF8_LCASE",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_type_that_tables_do_not_keep_is_refused_by_name_on_every_road(spark, store, kind):
    rows = spark.sql(f"SELECT 1L AS k, named_struct('in', {REFUSED[kind]}) AS v")
    words = rf"column '?v\.in'? is of Spark's type {kind}.*tables don't keep"
    table = store.table("t")
    for road in (
        lambda: store.table("new", rows.schema, key=["k"]),
        lambda: table.append(rows),
        lambda: table.upsert(rows),
    ):
        with pytest.raises(SchemaError, match=words):
            road()
    # Of this one Spark says so itself, before it asks us.
    by_spark = 'Cannot use "INTERVAL" type' if kind == "interval" else f"SchemaError: {words}"
    with pytest.raises(PySparkException, match=by_spark):
        write(rows, store)
    assert store.shard("t").snapshot().count() == 10


@pytest.mark.floor
def test_a_stream_goes_from_table_to_table_exactly_once(spark, store, tmp_path):
    target = store.shard("copy", COLUMNS, key=["k"])
    checkpoint = tmp_path / "checkpoint"

    def run():
        source = spark.readStream.format("strandline").option("maxVersionsPerTrigger", "1")
        sink = source.load(f"{store.url}/t").writeStream.format("strandline").option("keys", "k")
        query = (
            sink.option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(f"{store.url}/copy")
        )
        query.awaitTermination(200)
        return [each["batchId"] for each in query.recentProgress if each["numInputRows"]]

    assert run() == [0]
    with store.shard("t").writer() as writer:
        for key in (10, 11):
            writer.append([{"k": key, "v": "later"}])
    assert run() == [1, 2]
    # A batch whose commit Spark did not note is tried again, and counted before.
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    upper = target.upper
    assert run() == [2]
    assert target.upper == upper
    assert target.snapshot().count() == 12


@pytest.mark.floor
def test_sql_creates_reads_and_inserts(spark, store):
    spark.sql("DROP TABLE IF EXISTS sql_t")
    spark.sql(f"CREATE TABLE sql_t USING strandline OPTIONS (path '{store.url}', table 't')")
    try:
        assert spark.sql("SELECT count(*) AS n FROM sql_t").first().n == 10
        spark.sql("INSERT INTO sql_t VALUES (100, 'sql')")
        assert spark.sql("SELECT v FROM sql_t WHERE k = 100").first().v == "sql"
        with pytest.raises(PySparkException, match="UsageError: mode overwrite is refused"):
            spark.sql("INSERT OVERWRITE sql_t VALUES (100, 'sql')")
    finally:
        spark.sql("DROP TABLE sql_t")


def test_errors_carry_our_class_and_text_through_spark(spark, store, tmp_path):
    short = store.shard("short", COLUMNS, key=["k"])
    short.retain("1 version")
    with short.writer() as writer:
        for n in range(4):
            writer.append([{"k": n, "v": "x"}])
    short.compact(full=True)
    with pytest.raises(SinceError, match="the oldest time that can be read is 3") as caught:
        store.table("short").df(spark, as_of=1)
    assert caught.value.oldest == 3
    cases = {
        "NotFoundError: there is no Strandline store": lambda: (
            spark.read.format("strandline").load(str(tmp_path / "nothing" / "t")).collect()
        ),
        "NotFoundError: shard x does not exist": lambda: read(spark, store, "x").collect(),
        "BoundsError: version 9 of table t": lambda: read(spark, store, versionAsOf="9").collect(),
        "SinceError: shard short can't be read as of 1: history before 3 has been merged; the "
        "oldest time that can be read is 3": lambda: read(
            spark, store, "short", versionAsOf="1"
        ).collect(),
        "SinceError: shard short can't be read as of 0: history before 3 has been merged": lambda: (
            read(spark, store, "short", readChangeFeed="true", startingVersion="1").collect()
        ),
        "UsageError: unknown option 'color'": lambda: read(spark, store, color="red").collect(),
        "SchemaError: the rows lack 'v'": lambda: write(spark.range(1).toDF("k"), store),
        "UsageError: key 'k' = 1 has different rows": lambda: write(
            spark.range(2).selectExpr("1L AS k", "string(id) AS v"), store, keys="k"
        ),
        "UsageError: mode overwrite": lambda: write(
            spark.range(1).selectExpr("id AS k", "'' AS v"), store, mode="overwrite"
        ),
    }
    for told, call in cases.items():
        with pytest.raises(PySparkException) as caught:
            call()
        assert told in str(caught.value)


def test_one_loaded_table_may_be_used_with_several_filters(spark, store):
    """Where a reader takes filters, Spark gives every use the rows of the first."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        found = read(spark, store)
        both = found.where("k = 1").union(found.where("k = 2"))
        assert sorted(row.k for row in both.collect()) == [1, 2]
        assert found.count() == 10
    finally:
        spark.conf.unset(name)


@pytest.mark.process
@pytest.mark.spark
def test_connect_does_all_that_a_classic_session_does(store, tmp_path):
    store.shard("copy", COLUMNS)
    program = textwrap.dedent(
        """
        import sys
        import strandline
        from strandline.spark import session
        from strandline.spark.compacts import Carrier
        from strandline.spark.jobs import Jobs

        url, checkpoint = sys.argv[1:]
        spark = session("connected", connect="local[2]")
        print("connect" in type(spark).__module__, spark.conf.get("spark.sql.session.timeZone"))
        rows = spark.range(3).selectExpr("id AS k", "'new' AS v")
        writer = rows.write.format("strandline").mode("append").option("keys", "k")
        writer.save(f"{url}/t")
        found = spark.read.format("strandline").load(f"{url}/t")
        print("new", found.where("v = 'new'").count(), "all", found.count())
        feed = spark.read.format("strandline").options(readChangeFeed="true", startingVersion="1")
        print("changes", feed.load(f"{url}/t").count())
        stream = spark.readStream.format("strandline").load(f"{url}/t").writeStream
        stream = stream.format("strandline").option("checkpointLocation", checkpoint)
        query = stream.trigger(availableNow=True).start(f"{url}/copy")
        query.awaitTermination(200)
        print("copied", spark.read.format("strandline").load(f"{url}/copy").count())
        spark.sql(f"CREATE TABLE sql_t USING strandline OPTIONS (path '{url}', table 't')")
        spark.sql("INSERT INTO sql_t VALUES (100, 'sql')")
        print("sql", spark.sql("SELECT count(*) AS n FROM sql_t WHERE k < 3 OR k = 100").first().n)
        with strandline.open(url, upkeep=False) as opened, opened.table("t") as table:
            before = sorted(map(tuple, table.df(spark).collect()))
            print("df", len(before), table.df(spark, as_of=0).where("v = 'old'").count())
            print("between", table.changes(1, 2, spark=spark).count())
            jobs = Jobs(spark, table.shard.id, slots=2)
            table._desk.compact(full=True, carrier=Carrier(table._desk, jobs, small=0), slots=2)
            table.compact(spark, full=True)
            after = sorted(map(tuple, table.df(spark).collect()))
            print("compacted", jobs.count, after == before)
        spark.stop()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program, store.url, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    told = " ".join(done.stdout.split())
    expected = "True UTC new 3 all 10 changes 6 copied 10 sql 4 df 11 10 between 6 compacted 1 True"
    assert told == expected, done.stderr[-3000:]
