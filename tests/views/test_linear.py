"""Queries whose changes are a map of their inputs' changes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.views.answer import answer, changes_of
from strandline.views.linear import NotLinear, branches, text_of
from strandline.views.parse import parse
from strandline.views.sqltext import parse_query, tokenize
from strandline.views.troubles import Refused

COLUMNS = {"t": ("a", "b"), "u": ("c", "d")}
LINEAR = {
    "SELECT a FROM t": "SELECT `a` AS `a` FROM `t`",
    "SELECT * FROM t AS x WHERE x.a > 1": ("SELECT `a` AS `a`, `b` AS `b` FROM `t` WHERE `a` > 1"),
    "SELECT a + 1 AS n, n * 2 AS m FROM t": (
        "SELECT `a` + 1 AS `n`, (`a` + 1) * 2 AS `m` FROM `t`"
    ),
    "SELECT n FROM (SELECT a OR b AS n FROM t) WHERE n AND TRUE": (
        "SELECT (`a` OR `b`) AS `n` FROM `t` WHERE (`a` OR `b`) AND TRUE"
    ),
    "WITH w AS (SELECT a FROM t WHERE a > 1 OR b > 1) SELECT a FROM w WHERE a < 9": (
        "SELECT `a` AS `a` FROM `t` WHERE (`a` > 1 OR `b` > 1) AND (`a` < 9)"
    ),
    "SELECT a, b FROM t UNION ALL (SELECT * FROM u)": (
        "SELECT `a` AS `a`, `b` AS `b` FROM `t` UNION ALL SELECT `c` AS `a`, `d` AS `b` FROM `u`"
    ),
    "SELECT x FROM (SELECT a AS x FROM t UNION ALL SELECT c FROM u)": (
        "SELECT `a` AS `x` FROM `t` UNION ALL SELECT `c` AS `x` FROM `u`"
    ),
    "SELECT a.f.g AS f, t.b.h AS h FROM t": "SELECT `a`.`f`.`g` AS `f`, `b`.`h` AS `h` FROM `t`",
    "SELECT TRANSFORM(a, b -> b + 1) AS l FROM t": (
        "SELECT TRANSFORM(`a`, `b` -> `b` + 1) AS `l` FROM `t`"
    ),
    # Outside of the lambda, a name that one of its parameters has is a column.
    "SELECT x, TRANSFORM(l, x -> x + 1) AS m FROM (SELECT a AS l, b + 1 AS x FROM t)": (
        "SELECT (`b` + 1) AS `x`, TRANSFORM(`a`, `x` -> `x` + 1) AS `m` FROM `t`"
    ),
    "SELECT TRANSFORM(l, y -> y + x) AS m FROM (SELECT a AS l, b + 1 AS x FROM t)": (
        "SELECT TRANSFORM(`a`, `y` -> `y` + (`b` + 1)) AS `m` FROM `t`"
    ),
    "SELECT * EXCEPT (a) FROM t": "SELECT `b` AS `b` FROM `t`",
}


@pytest.mark.parametrize("sql", LINEAR)
def test_queries_inside_are_substituted(sql):
    text = text_of(branches(parse_query(tokenize(sql), sql), COLUMNS))
    assert text == LINEAR[sql].replace("(`a` OR `b`) AS", "`a` OR `b` AS") or text == LINEAR[sql]
    again = text_of(branches(parse_query(tokenize(text), text), COLUMNS))
    assert again == text


def test_a_column_does_not_become_a_parameter_of_a_lambda():
    """`x` is `b + 1`, and inside the lambda `b` would be something else."""
    sql = "SELECT TRANSFORM(l, b -> b + x) AS m FROM (SELECT a AS l, b + 1 AS x FROM t)"
    with pytest.raises(Refused, match="'x' is computed from a column of the same name as a") as no:
        branches(parse_query(tokenize(sql), sql), COLUMNS)
    assert "'b'" in str(no.value)


@pytest.mark.parametrize(
    ("sql", "clause"),
    [
        ("SELECT a FROM t JOIN u ON a = c", "JOIN"),
        ("SELECT a FROM (SELECT a FROM t LIMIT 1)", "LIMIT"),
        ("WITH w AS (SELECT DISTINCT a FROM t) SELECT a FROM w", "DISTINCT"),
        ("SELECT a FROM t UNION ALL SELECT MAX(c) AS m FROM u", "max"),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u)", "a subquery"),
        ("SELECT a FROM t INTERSECT SELECT c FROM u", "INTERSECT"),
        ("SELECT a FROM t LATERAL VIEW EXPLODE(b) x AS y", "LATERAL VIEW"),
        ("SELECT a FROM t HAVING a > 1", "HAVING"),
    ],
)
def test_what_needs_other_rows_is_named(sql, clause):
    with pytest.raises(NotLinear) as found:
        branches(parse_query(tokenize(sql), sql), COLUMNS)
    assert found.value.clause == clause
    assert found.value.reason


PROGRAM = parse(
    """CREATE TABLE t (a BIGINT, b BIGINT) USING http; CREATE TABLE u (c INT, d INT) USING http;
    CREATE MATERIALIZED VIEW v AS
      SELECT a, b - a AS n FROM (SELECT * FROM t WHERE b IS NOT NULL) WHERE a > 1
      UNION ALL SELECT d, CASE WHEN c > 2 THEN d END FROM u WHERE c <> 3 OR d = 1
      UNION ALL SELECT a, a FROM t"""
)
VALUE = st.one_of(st.none(), st.integers(0, 5))
CHANGES = st.lists(st.tuples(VALUE, VALUE, st.integers(-2, 2)), max_size=8)


def rows_of(table):
    counted = {}
    for row in table.to_pylist():
        diff = row.pop("_diff", 1)
        at = tuple(row.values())
        counted[at] = counted.get(at, 0) + diff
    return {row: count for row, count in counted.items() if count}


def relation(names, kind, rows):
    columns = zip(*rows, strict=True) if rows else [[], [], []]
    arrays = [pa.array(list(each), kind) for each in columns]
    return pa.table([arrays[0], arrays[1], arrays[2].cast(pa.int64())], [*names, "_diff"])


@settings(deadline=None)
@given(CHANGES, CHANGES)
def test_changes_of_a_view_are_its_query_of_the_changes(of_t, of_u):
    """For rows that are there: as many as their diffs. The equation holds by linearity for all."""
    view = PROGRAM.view("v")
    tables = {"t": relation("ab", pa.int64(), of_t), "u": relation("cd", pa.int32(), of_u)}
    found = rows_of(changes_of(view, tables))
    expected = {}
    for sign in (1, -1):
        whole = {
            name: table.select([0, 1]).take(
                pa.array([at for at, diff in enumerate(table["_diff"].to_pylist())
                          for _ in range(max(0, diff * sign))], pa.int64())
            )
            for name, table in tables.items()
        }  # fmt: skip
        for row, count in rows_of(answer(view.sql, whole)).items():
            expected[row] = expected.get(row, 0) + sign * count
    assert found == {row: count for row, count in expected.items() if count}
