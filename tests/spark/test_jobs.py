"""Jobs: how many tasks a session runs, errors as themselves, and Spark Connect as well."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from strandline.errors import SchemaError
from strandline.spark.instruction import Answer, encode_answer
from strandline.spark.jobs import Jobs, slots_of
from strandline.spark.relay import wrapped

SHARD = "s" + "0" * 32


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({"spark.master": "local[2]"}, 2),
        ({"spark.master": "local[3,4]"}, 3),
        ({"spark.master": "local[*]"}, 5),
        ({"spark.master": "local[*]", "spark.default.parallelism": "6"}, 6),
        ({"spark.master": "local"}, 1),
        ({"spark.default.parallelism": "6"}, 6),
        ({"spark.executor.instances": "3", "spark.executor.cores": "4"}, 12),
        ({"spark.executor.instances": "3"}, 3),
        ({"spark.master": "spark://host:7077"}, 8),
    ],
)
def test_slots_are_what_the_session_says(settings, slots):
    assert slots_of(settings.get, 5) == slots


def test_the_cores_of_a_server_are_not_those_of_its_client():
    assert slots_of({"spark.master": "local[*]"}.get, None) == 8


def test_answers_come_from_every_task_and_are_counted(spark):
    def answer(count, batches):
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                encoded = encode_answer(Answer(rows_in=count, number=number), SHARD)
                yield pa.record_batch([pa.array([encoded], pa.binary())], ["answer"])

    jobs = Jobs(spark, SHARD)
    assert jobs.slots == 2
    found = jobs.over(jobs.numbers(3), answer, 7)
    assert [(each.number, each.rows_in) for each in found] == [(0, 7), (1, 7), (2, 7)]
    assert jobs.count == 1


def test_an_error_of_ours_comes_out_as_itself_and_others_as_they_are(spark):
    text = str(wrapped(SchemaError("no column 'x'")))

    def ours(batches):
        raise ValueError(text)
        yield from batches

    def others(batches):
        raise ValueError("something else")
        yield from batches

    jobs = Jobs(spark, SHARD)
    with pytest.raises(SchemaError, match="no column 'x'"):
        jobs.over(jobs.numbers(1), ours)
    with pytest.raises(Exception, match="something else"):
        jobs.over(jobs.numbers(1), others)


CONNECTED = """
    import pyarrow as pa, strandline, sys
    from pyspark.sql import SparkSession, functions as F

    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "localhost")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    with strandline.open(sys.argv[1], upkeep=False) as store:
        store.shard("t", schema=pa.schema([("k", pa.int64()), ("v", pa.string())]), key=["k"])
        table = store.table("t")
        table.append(spark.range(20_000).selectExpr("id k", "'x' v"))
        came = spark.range(10).selectExpr("id k", "'y' v", "id % 2 = 0 gone")
        done = table.upsert(came, deleteWhen=F.col("gone"), sequenceBy="k")
        assert (done.upserted, done.deleted, done.jobs) == (5, 5, 2), done
        keys = spark.range(8, 12).selectExpr("id k")
        found = sorted(map(tuple, table.lookup(keys).collect()))
        assert found == [(9, "y"), (10, "x"), (11, "x")], found
        try:
            table.upsert(spark.createDataFrame([(None, "a")], "k long, v string"))
        except strandline.SchemaError as error:
            assert "null in 'k'" in str(error)
        else:
            raise SystemExit("a null key was taken")
        print("connected")
    spark.stop()
"""


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
def test_a_session_of_spark_connect_does_as_well(tmp_path):
    script = tmp_path / "connected.py"
    script.write_text(textwrap.dedent(CONNECTED))
    # A process has either kind of session, never both; the test's own is a classic one. The
    # variable lets the server take any free port.
    env = {**os.environ, "SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path / "lake")],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "connected" in done.stdout, done.stderr[-3000:]
