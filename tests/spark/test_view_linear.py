"""Linear views: one query for all of them, whichever reads which."""

from __future__ import annotations

from strandline.spark.view_linear import united_sql
from strandline.views.parse import parse

PROGRAM = """
CREATE TABLE t (id BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW v AS SELECT id, id + 1 AS n FROM t;
CREATE MATERIALIZED VIEW w AS SELECT n FROM v WHERE n > 3;
"""


def test_views_stand_side_by_side_and_later_ones_read_earlier_ones():
    views = parse(PROGRAM).views
    sql = united_sql(views, {"t": "changes_of_t"})
    inner, _, outer = sql.partition(") SELECT 0 AS")
    assert "FROM `changes_of_t`" in inner
    assert "FROM `strandline_view_0`" in inner
    assert outer.count("NULL AS") == 3
    assert outer.count("`_diff`") == 2
