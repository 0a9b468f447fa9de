"""The reference's expressions and Spark's: the same values, types and errors for the same rows."""

# ruff: noqa: E501 - expressions and queries are easier to read on one line
from __future__ import annotations

import math
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.errors import PySparkException

from strandline.errors import UsageError
from strandline.spark.arrowtypes import spark_type
from strandline.views.allow import check_query
from strandline.views.answer import answer
from strandline.views.arithmetic import Raised

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("t", pa.int8()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.decimal128(12, 2)),
        ("e", pa.decimal128(38, 10)),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("day", pa.date32()),
    ]
)
ROWS = [
    (1, 2, 3, Decimal("4.50"), Decimal("0.0000000001"), 0.5, "a", True, date(2024, 2, 29)),
    (0, 0, 0, Decimal(0), Decimal(0), -0.0, "", False, date(1970, 1, 1)),
    (-7, -3, 10, Decimal("-1.25"), Decimal("123456.789"), 1e300, "7", None, date(1999, 12, 31)),
    (None,) * 9,
    (5, 100000, -(2**40), Decimal("9999999999.99"), None, math.inf, " 12 ", True, None),
    (100, -1, 7, Decimal("0.01"), Decimal(3), 2.0, "true", False, date(2024, 3, 1)),
]
EXTREMES = [
    (
        127,
        2**31 - 1,
        2**63 - 1,
        Decimal("-9999999999.99"),
        Decimal("1e27"),
        math.nan,
        "é",
        True,
        None,
    )
]


def table(rows):
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


@st.composite
def number(draw, depth=2):
    leaves = ["t", "i", "l", "d", "e", "x", "1", "-3", "0", "2.50", "0.001", "1e1", "3000000000"]
    if depth == 0:
        return draw(st.sampled_from(leaves))
    inner = number(depth=depth - 1)
    form = draw(st.integers(0, 7))
    if form <= 2:
        op = draw(st.sampled_from(["+", "-", "*", "/", "%"]))
        return f"({draw(inner)} {op} {draw(inner)})"
    return {
        3: lambda: (
            f"CASE WHEN {draw(boolean(depth=depth - 1))} THEN {draw(inner)} ELSE {draw(inner)} END"
        ),
        4: lambda: f"COALESCE({draw(inner)}, {draw(inner)})",
        5: lambda: (
            f"CAST({draw(inner)} AS {draw(st.sampled_from(['INT', 'BIGINT', 'DOUBLE', 'DECIMAL(20, 3)']))})"
        ),
        6: lambda: f"NULLIF({draw(inner)}, {draw(inner)})",
        7: lambda: draw(st.sampled_from(leaves)),
    }[form]()


@st.composite
def boolean(draw, depth=2):
    if depth == 0:
        return draw(st.sampled_from(["b", "TRUE", "CAST(NULL AS BOOLEAN)", "s = 'a'", "i > 1"]))
    inner, value = boolean(depth=depth - 1), number(depth=depth - 1)
    form = draw(st.integers(0, 6))
    return {
        0: lambda: f"({draw(inner)} {draw(st.sampled_from(['AND', 'OR']))} {draw(inner)})",
        1: lambda: f"(NOT {draw(inner)})",
        2: lambda: (
            f"({draw(value)} {draw(st.sampled_from(['=', '<>', '<', '<=', '>', '>=', '<=>']))} "
            f"{draw(value)})"
        ),
        3: lambda: f"({draw(value)} IS NULL)",
        4: lambda: f"({draw(value)} IN ({draw(value)}, {draw(value)}))",
        5: lambda: f"({draw(value)} NOT BETWEEN {draw(value)} AND {draw(value)})",
        6: lambda: draw(st.sampled_from(["day < DATE '2000-01-01'", "s <= 'b'", "b IS NOT TRUE"])),
    }[form]()


def same(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return one == other


def ours(sql, rows):
    """Our answer, the reason why we raise, or `None` for what the reference does not know."""
    try:
        return answer(sql, {"v": table(rows)})
    except Raised as raised:
        return str(raised)
    except UsageError:
        return None


def assert_agrees(spark, expressions, rows):
    """Returns how many expressions were compared."""
    found = {}
    for expression in expressions:
        sql = check_query(f"SELECT {expression} AS r FROM v", ["v"])
        found[sql] = ours(sql, rows)
    for sql in [sql for sql, mine in found.items() if isinstance(mine, str)]:
        with pytest.raises(PySparkException):
            pytest.fail(f"{sql}: we raise {found[sql]}, Spark: {spark.sql(sql).toArrow()['r']}")
    good = {sql: mine for sql, mine in found.items() if isinstance(mine, pa.Table)}
    if good:
        # One query for all: a session of Spark takes longer to start a query than to answer it.
        chosen = [sql.removeprefix("SELECT ").removesuffix(" AS `r` FROM `v`") for sql in good]
        listed = ", ".join(f"{each} AS r{place}" for place, each in enumerate(chosen))
        spark_answer = spark.sql(f"SELECT {listed} FROM v").toArrow()
        for place, (sql, mine) in enumerate(good.items()):
            assert_same(sql, mine["r"], spark_answer[f"r{place}"])
    return sum(mine is not None for mine in found.values())


def assert_same(sql, mine, theirs):
    assert spark_type(mine.type) == theirs.type, sql
    pairs = zip(mine.to_pylist(), theirs.to_pylist(), strict=True)
    for place, (one, other) in enumerate(pairs):
        assert same(one, other), f"{sql} row {place}: {one} and Spark's {other}"


@pytest.fixture(scope="module")
def one_partition(spark):
    """Registers rows as `v`.

    Spark's elimination of common parts is off: it computes what a condition guards before the
    condition, so that one expression of a list makes another one raise.
    """
    setting = "spark.sql.subexpressionElimination.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "false")

    def register(rows):
        spark.createDataFrame(table(rows)).coalesce(1).createOrReplaceTempView("v")

    yield register
    spark.conf.set(setting, before)
    spark.catalog.dropTempView("v")


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(number(), boolean()), min_size=12, max_size=12), st.booleans())
def test_any_expression_has_sparks_value_and_type_or_raises_where_spark_does(
    spark, one_partition, expressions, extreme
):
    rows = ROWS + EXTREMES if extreme else ROWS
    one_partition(rows)
    assert_agrees(spark, expressions, rows)


CASTS = [
    "CAST(s AS STRING)", "CAST('12' AS INT)", "CAST(' -7 ' AS BIGINT)", "CAST('1.5' AS INT)",
    "CAST('1.555' AS DECIMAL(5, 2))", "CAST('x' AS DECIMAL(5, 2))", "CAST('1e2' AS DECIMAL(5, 0))",
    "CAST(i AS STRING)", "CAST(d AS STRING)", "CAST(e AS STRING)", "CAST(b AS STRING)",
    "CAST(b AS INT)", "CAST(i AS BOOLEAN)", "CAST('yes' AS BOOLEAN)", "CAST('maybe' AS BOOLEAN)",
    "CAST(d AS INT)", "CAST(x AS INT)", "CAST(2.5 AS INT)", "CAST(-2.5 AS INT)",
    "CAST(d AS DECIMAL(4, 1))", "CAST(300 AS TINYINT)", "CAST(2.5e0 AS BIGINT)",
    "CAST(0.1e0 AS DECIMAL(10, 4))", "CAST(day AS STRING)", "CAST('2024-02-30' AS DATE)",
    "CAST(x AS DECIMAL(20, 3))", "CASE WHEN x > 1e299 THEN 0 ELSE CAST(x AS DECIMAL(20, 3)) END",
    "CASE WHEN i > 50000 THEN CAST(x AS DECIMAL(20, 3)) ELSE 1 END", "CAST(1e300 AS DECIMAL(38, 0))",
    "CAST(1.25e0 AS DECIMAL(2, 1))", "CAST(12345 AS DECIMAL(3, 0))", "CAST(b AS DECIMAL(3, 1))",
]  # fmt: skip
EDGES = [
    "l + 1", "i * 2", "t + t", "t * t", "-l", "-t", "-(i)", "9223372036854775807 + 1", "l div 0", "l div -1", "i % 0",
    "i % -3", "-7 % 3", "-7.5 % 2", "x % 3", "x / 0", "1 / 3", "7 div 2", "-7 div 2", "1.0 / 3",
    "d / 3", "d / d", "e * e", "e / e", "e + e", "e % d", "d * 12345678901234567890", "x + d",
    "CASE i WHEN 2 THEN 'two' WHEN 0 THEN 'none' END", "IF(b, i, d)", "s || s", "NULL IS NULL",
    "i IN (2, NULL)", "i NOT IN (2, NULL)", "NULL AND b", "NULL OR b", "b <=> NULL", "x = x",
    "x > 1e308", "x = 0", "s = 'A'", "s > 'z'", "1 = 1.0", "d = 4.5", "l = x", "t BETWEEN 0 AND 5",
    "CASE WHEN i = 0 THEN 0 ELSE 10 div i END", "i <> 0 AND 10 / i > 1", "i = 0 OR 10 / i > 1",
    "COALESCE(i, 1 / 0)", "COALESCE(NULL, NULL, l)", "-2147483648", "2147483648", "1.10", ".5",
    "100000000000000000000 + 1", "CAST(NULL AS INT) + 1", "NULLIF(i, 0)", "NULLIF(d, 4.5)",
    "NULLIF(e, 0) / (3000000000 / i)", "(3 / i) / NULLIF(i, 0)", "(7 % i) % NULLIF(i, 0)",
    "NULLIF(i, 0) + (3 / i)", "(3 / i) + NULLIF(i, 0)", "(7 div l) div NULLIF(l, 0)",
    "0.1 + 0.2", "0.1e0 + 0.2e0", "(5) * d", "5 * d", "-5 * d", "5 + 1.5", "t + 1.5", "l * 1.5",
]  # fmt: skip


@pytest.mark.parametrize("expressions", [CASTS, EDGES], ids=["casts", "edges"])
def test_edges_are_sparks(spark, one_partition, expressions):
    one_partition(ROWS)
    assert assert_agrees(spark, expressions, ROWS) > 0.9 * len(expressions)
    rows = ROWS + EXTREMES
    one_partition(rows)
    sound = [
        each
        for each in expressions
        if not isinstance(ours(f"SELECT {each} AS r FROM v", ROWS), str)
    ]
    assert_agrees(spark, sound, rows)


GROUPS = [
    "SELECT b, SUM(i) AS s, COUNT(*) AS n, COUNT(i) AS c, MIN(d) AS lo, MAX(s) AS hi FROM v GROUP BY b",
    "SELECT COUNT(DISTINCT t) AS n, SUM(d) AS s, MIN(day) AS m FROM v",
    "SELECT COUNT(*) AS n, SUM(l) AS s, MAX(x) AS m FROM v WHERE i = 77",
    "SELECT i % 2 AS odd, SUM(d) + 1 AS s FROM v WHERE i IS NOT NULL GROUP BY i % 2 HAVING COUNT(*) > 1",
    "SELECT odd, COUNT(*) AS n FROM (SELECT i % 2 AS odd FROM v) GROUP BY odd",
    "WITH w AS (SELECT i, d FROM v WHERE b) SELECT i AS a, d FROM w UNION ALL SELECT d, l FROM v",
    "SELECT x, COUNT(*) AS n FROM v GROUP BY 1",
    "SELECT SUM(l) AS s FROM v",
]  # fmt: skip


@pytest.mark.parametrize("extreme", [False, True])
def test_groups_and_unions_are_sparks(spark, one_partition, extreme):
    rows = ROWS + EXTREMES if extreme else ROWS
    one_partition(rows)
    for sql in GROUPS:
        safe = check_query(sql, ["v"])
        mine = ours(safe, rows)
        assert mine is not None, sql
        if isinstance(mine, str):
            with pytest.raises(PySparkException):
                spark.sql(safe).toArrow()
            continue
        theirs = spark.sql(safe).toArrow()
        assert mine.schema.types == theirs.schema.types, sql
        assert sorted(map(repr, mine.to_pylist())) == sorted(map(repr, theirs.to_pylist())), sql
