"""Queries of views: Spark's types, trouble with values as a reason, all else as it is."""

from __future__ import annotations

import logging
import threading

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from strandline.errors import ProgramError
from strandline.pipeline.meaning import DIVISION
from strandline.spark.queries import (
    Raised,
    own_session,
    raising,
    view_columns,
    yours_stays_active,
)
from strandline.spark.relations import relations
from strandline.views.parse import parse
from strandline.views.rewrite import query_sql

pytestmark = pytest.mark.spark

PROGRAM = """
CREATE TABLE t (id BIGINT, d DECIMAL(12,2), at TIMESTAMP, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW v AS SELECT id + 1 AS n, d * 2 AS twice, at, NULL AS none FROM t;
CREATE MATERIALIZED VIEW w REFRESH FULL AS SELECT COUNT(*) AS n, SUM(twice) AS s FROM v;
"""


@pytest.fixture(autouse=True)
def _shared_stays_active(spark):
    """Others look for sources in the session that is active, and are of the same process."""
    with yours_stays_active():
        yield


def test_types_are_sparks_and_every_column_may_be_null(spark):
    found = view_columns(own_session(spark, {}), parse(PROGRAM))
    assert found["v"] == pa.schema(
        [
            ("n", pa.int64()),
            ("twice", pa.decimal128(14, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("none", pa.string()),
        ]
    )
    assert found["w"] == pa.schema([("n", pa.int64()), ("s", pa.decimal128(24, 2))])


def test_views_that_spark_can_not_type_are_told_by_line_all_at_once(spark, capfd):
    text = """CREATE TABLE t (id BIGINT, d BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW a REFRESH FULL AS
  SELECT COUNT(nothing) AS n FROM t;
CREATE MATERIALIZED VIEW good AS SELECT id FROM t;
CREATE MATERIALIZED VIEW b AS SELECT id + ARRAY(1) AS x FROM t;
CREATE MATERIALIZED VIEW c AS SELECT x FROM b;"""
    with pytest.raises(ProgramError, match="the program has 2 errors") as caught:
        view_columns(own_session(spark, {}), parse(text))
    (first, why, _), (second, other, _) = caught.value.troubles
    assert (first, second) == (2, 5)
    assert why.startswith("view 'a': A column, variable, or function parameter with name `nothing`")
    assert other.startswith("view 'b': Cannot resolve")
    assert "SQLSTATE" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("source", ["range(3)", "range(0, 100, 1, 4)"])
def test_trouble_with_values_is_a_reason(spark, source):
    mine = own_session(spark, {"spark.sql.ansi.enabled": "false"})
    with pytest.raises(Raised, match=DIVISION), raising():
        mine.sql(f"SELECT 1 / id AS x FROM {source}").toArrow()


def test_other_trouble_stays_what_it_is(spark):
    with pytest.raises(PySparkException), raising():
        own_session(spark, {}).sql("SELECT nothing FROM range(3)").toArrow()


def test_two_that_expect_trouble_at_once_leave_sparks_loggers_as_they_were():
    """The one that came first goes first; who expects none is logged meanwhile and ever after."""
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    steps = {each: threading.Event() for each in ("first in", "both in", "first out")}
    kept: list[bool] = []

    def kept_here() -> bool:
        record = logging.LogRecord(log.name, logging.ERROR, "", 0, "", None, None)
        return bool(not log.disabled and log.filter(record))

    def first():
        with raising():
            steps["first in"].set()
            assert steps["both in"].wait(30)
        steps["first out"].set()

    def second():
        assert steps["first in"].wait(30)
        with raising():
            steps["both in"].set()
            kept.append(kept_here())
            assert steps["first out"].wait(30)
            kept.append(kept_here())
        kept.append(kept_here())

    tasks = [threading.Thread(target=each) for each in (first, second)]
    for each in tasks:
        each.start()
    assert steps["both in"].wait(30)
    others = kept_here()
    for each in tasks:
        each.join(30)
    assert (kept, others, kept_here()) == ([False, False, True], True, True)


def test_the_callers_session_is_the_active_one_after_a_program_used_its_own(spark):
    """Spark looks for sources, and `format("strandline")`, in the active one."""
    spark.createDataFrame(pa.table({"x": [1]}))
    asked = own_session(spark, {"spark.sql.shuffle.partitions": "7"})

    def shuffles():
        return type(spark).getActiveSession().conf.get("spark.sql.shuffle.partitions")

    before = shuffles()
    with yours_stays_active():
        view_columns(asked, parse(PROGRAM))
        assert shuffles() == "7"
    assert shuffles() == before


def test_averages_of_whole_numbers_are_the_same_however_rows_are_divided(spark):
    text = """CREATE TABLE t (k BIGINT, n BIGINT, PRIMARY KEY (k)) USING generator;
    CREATE MATERIALIZED VIEW v REFRESH FULL AS
      SELECT AVG(n) AS a, AVG(DISTINCT n) AS d, AVG(n) FILTER (WHERE k < 9) AS f FROM t;"""
    program, mine = parse(text), own_session(spark, {})
    doubles = [pa.float64()] * 3
    assert view_columns(mine, program)["v"].types == doubles
    rows = pa.table({"k": range(4), "n": [2**53, 1, 1, 1]})
    found = []
    for partitions in (1, 4):
        frame = mine.createDataFrame(rows).repartition(partitions)
        with relations(mine, {"t": frame}) as named:
            found += mine.sql(query_sql(program.views[0].sql, named, 0)).toArrow().to_pylist()
    assert found[0] == found[1]
    assert found[0]["a"] == found[0]["f"] == float((2**53 + 3) / 4)
