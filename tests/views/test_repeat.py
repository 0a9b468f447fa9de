"""Queries that would answer differently when they are computed again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.views.repeat import Exactness, made_exact, uses_clock
from strandline.views.sqltext import parse_query, tokenize, write
from strandline.views.troubles import Refused

SCHEMA = pa.schema(
    [("k", pa.int64()), ("v", pa.string()), ("f", pa.float64()), ("d", pa.decimal128(9, 2)),
     ("l", pa.list_(pa.float32()))]
)  # fmt: skip


def exact():
    found = Exactness()
    found.learn_table("t", SCHEMA, ("k",))
    found.learn_table("u", pa.schema([("a", pa.int64())]), ())
    return found


def query(text):
    return parse_query(tokenize(text), text)


SAME = [
    "SELECT SUM(d) AS s FROM t",
    "SELECT SUM(k) AS s FROM t",
    "SELECT AVG(d) AS s FROM t",
    "SELECT SUM(CAST(f AS DECIMAL(10, 2))) AS s FROM t",
    "SELECT MIN(f) AS s, MAX(f) AS m, COUNT(f) AS n FROM t",
    "SELECT SUM(IF(f > 1, 1, 0)) AS s FROM t",
    "SELECT SUM(CASE v WHEN 'a' THEN 1 ELSE 0 END) AS s FROM t",
    "SELECT SUM(LENGTH(v)) AS s FROM t",
    "SELECT SUM(CAST(v AS DECIMAL(10, 2))) AS s FROM t",
    "SELECT AVG(at - at) AS s FROM t",
    "SELECT SUM(d / 3) AS s FROM t",
    "SELECT SORT_ARRAY(COLLECT_LIST(f)) AS s FROM t",
    "SELECT RANK() OVER (ORDER BY v) AS r FROM t",
    "SELECT SUM(k) OVER (PARTITION BY v) AS r FROM t",
    "SELECT ROW_NUMBER() OVER (PARTITION BY v ORDER BY d, k) AS r FROM t",
    "SELECT LAG(v) OVER (PARTITION BY k ORDER BY v) AS r FROM t",
]
DIFFERENT = [
    ("SELECT SUM(f) AS s FROM t", "sum over floats"),
    ("SELECT SUM(d * f) AS s FROM t", "sum over floats"),
    ("SELECT SUM(k / 3) AS s FROM t", "sum over floats"),
    ("SELECT SUM(SQRT(k)) AS s FROM t", "sum over floats"),
    ("SELECT SUM(1e0) AS s FROM t", "sum over floats"),
    ("SELECT SUM(CAST(v AS DOUBLE)) AS s FROM t", "sum over floats"),
    ("SELECT AVG(l[0]) AS s FROM t", "avg over floats"),
    ("SELECT SUM(v) AS s FROM t", "sum over text"),
    ("SELECT SUM(DISTINCT t.v) AS s FROM t", "sum over text"),
    ("SELECT AVG(CONCAT(k, '1')) AS s FROM t", "avg over text"),
    ("SELECT SUM(COALESCE(k || '.5', '0')) AS s FROM t", "sum over text"),
    ("SELECT SUM(y) AS s FROM (SELECT CAST(k AS STRING) AS y FROM t)", "sum over text"),
    ("SELECT SUM(y) AS s FROM (SELECT x + 1 AS y FROM (SELECT f AS x FROM t))", "sum over floats"),
    ("SELECT COLLECT_SET(k) AS s FROM t", "an order that nobody chose"),
    ("SELECT SIZE(SORT_ARRAY(k)) AS n, COLLECT_LIST(k) AS s FROM t", "nobody chose"),
    ("SELECT ROW_NUMBER() OVER (ORDER BY v) AS r FROM t", "tied rows"),
    ("SELECT ROW_NUMBER() OVER (ORDER BY a) AS r FROM u", "tied rows"),
    ("SELECT ROW_NUMBER() OVER (ORDER BY k + 1) AS r FROM t", "tied rows"),
    ("SELECT ROW_NUMBER() OVER (ORDER BY k) AS r FROM t JOIN u ON TRUE", "tied rows"),
    (
        "SELECT SUM(k) OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS r FROM t",
        "tied",
    ),
    ("SELECT RANK() OVER w AS r FROM t WINDOW w AS (ORDER BY v)", "a window by name"),
    ("SELECT k FROM t WHERE k IN (SELECT k FROM t LIMIT 1)", "LIMIT without ORDER BY"),
    ("SELECT k FROM t OFFSET 3", "LIMIT without ORDER BY"),
    ("SELECT * FROM t ORDER BY v LIMIT 1", r"a LIMIT with \*"),
]


@pytest.mark.parametrize("sql", SAME)
def test_what_has_one_answer_stays_as_it_is(sql):
    assert write(made_exact(query(sql), exact())) == write(query(sql))


@pytest.mark.parametrize(("sql", "phrase"), DIFFERENT)
def test_what_has_several_answers_is_refused(sql, phrase):
    with pytest.raises(Refused, match=phrase):
        made_exact(query(sql), exact())


def test_ties_are_broken_by_all_columns_once():
    once = made_exact(query("SELECT k, v FROM t ORDER BY d DESC, 2 LIMIT 3"), exact())
    assert write(once) == "SELECT `k`, `v` FROM `t` ORDER BY `d` DESC, 2, 1 LIMIT 3"
    assert write(made_exact(once, exact())) == write(once)


def test_ties_of_a_union_are_broken_too():
    union = query("SELECT k FROM t UNION ALL SELECT a FROM u ORDER BY k LIMIT 3")
    assert write(made_exact(union, exact())).endswith("ORDER BY `k`, 1 LIMIT 3")


@pytest.mark.parametrize(
    ("sql", "asks"),
    [
        ("SELECT now() AS n FROM t", True),
        ("SELECT k FROM t WHERE v < CURRENT_DATE", True),
        ("SELECT current_timestamp AS c FROM t", True),
        ("SELECT unix_timestamp() AS u FROM t", True),
        ("SELECT 'now()' AS n FROM t", False),
    ],
)
def test_who_asks_for_the_time_is_known(sql, asks):
    assert uses_clock(query(sql)) is asks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AVG(k)", "CAST(AVG(CAST(`k` AS DECIMAL(38, 6))) AS DOUBLE)"),
        ("MEAN(k + 1)", "CAST(MEAN(CAST(`k` + 1 AS DECIMAL(38, 6))) AS DOUBLE)"),
        ("AVG(DISTINCT k)", "CAST(AVG(DISTINCT CAST(`k` AS DECIMAL(38, 6))) AS DOUBLE)"),
        (
            "AVG(NVL(k, 0)) FILTER(WHERE k > 2)",
            "CAST(AVG(CAST(COALESCE(`k`, 0) AS DECIMAL(38, 6))) FILTER(WHERE `k` > 2) AS DOUBLE)",
        ),
        (
            "AVG(LENGTH(v)) OVER (PARTITION BY k)",
            "CAST(AVG(CAST(LENGTH(`v`) AS DECIMAL(38, 6))) OVER (PARTITION BY `k`) AS DOUBLE)",
        ),
    ],
)
def test_averages_of_whole_numbers_are_added_exactly(text, expected):
    found = write(made_exact(query(f"SELECT {text} AS s FROM t"), exact()))
    assert found == f"SELECT {expected} AS `s` FROM `t`"
    inner = f"SELECT x FROM (SELECT {text} AS x FROM t)"
    assert expected in write(made_exact(query(inner), exact()))
