"""A view's query over the relations of one transaction, with its time put in."""

from __future__ import annotations

import pytest

from strandline.errors import UsageError
from strandline.views.parse import parse
from strandline.views.rewrite import delta_sql, query_sql

PROGRAM = parse(
    """CREATE TABLE t (k INT, v STRING, PRIMARY KEY (k)) USING http;
    CREATE TABLE u (a INT, b STRING) USING http;
    CREATE MATERIALIZED VIEW l AS SELECT k FROM t WHERE k > 1 UNION ALL SELECT a FROM u;
    CREATE MATERIALIZED VIEW f REFRESH FULL AS WITH w AS (SELECT * FROM t)
      SELECT COUNT(*) AS n, MAX(now()) AS m, MIN(current_date) AS d FROM w JOIN u ON w.k = u.a"""
)


def test_changes_of_a_linear_view_pass_diffs_on():
    assert delta_sql(PROGRAM.view("l"), {"t": "t`1", "u": "u1"}) == (
        "SELECT `k` AS `k`, `_diff` FROM `t``1` WHERE `k` > 1 "
        "UNION ALL SELECT `a` AS `k`, `_diff` FROM `u1`"
    )


def test_a_full_view_reads_relations_at_the_time_of_begin():
    assert query_sql(PROGRAM.view("f").sql, {"t": "t1", "u": "u1"}, 1_700_000_000_007) == (
        "WITH `w` AS (SELECT * FROM `t1` AS `t`) SELECT COUNT(*) AS `n`, "
        "MAX(CAST('2023-11-14 22:13:20.007+00:00' AS TIMESTAMP)) AS `m`, "
        "MIN(CAST('2023-11-14' AS DATE)) AS `d` FROM `w` JOIN `u1` AS `u` ON `w`.`k` = `u`.`a`"
    )


def test_without_a_time_the_clock_is_left_to_the_engine():
    assert "NOW()" in query_sql(PROGRAM.view("f").sql, {"t": "t1", "u": "u1"})


def test_a_collection_without_a_relation_is_never_looked_up_elsewhere():
    with pytest.raises(UsageError, match="no relation for collection u"):
        query_sql(PROGRAM.view("f").sql, {"t": "t1"})
    with pytest.raises(UsageError, match="no relation for collection u"):
        delta_sql(PROGRAM.view("l"), {"t": "t1"})
    with pytest.raises(UsageError, match="computed in full"):
        delta_sql(PROGRAM.view("f"), {"t": "t1", "u": "u1"})
