"""Linear views: one query for all of them, whichever reads which."""

from __future__ import annotations

import pytest
from tests.spark.transactions import Transactions, message

import strandline
from strandline.pipeline.meaning import DIVISION
from strandline.spark.computer import SparkComputer
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


@pytest.mark.spark
def test_a_row_that_raises_is_told_by_what_the_view_sees(tmp_path, spark):
    """As the computer of plain Arrow tells of it, so that both have one answer."""
    text = """
    CREATE TABLE t (id BIGINT, other STRING, n BIGINT, PRIMARY KEY (id)) USING generator;
    CREATE MATERIALIZED VIEW v AS SELECT 12 div n AS q FROM t;
    """
    rows = [message(key, {"id": key, "other": "x", "n": n}) for key, n in ((1, 2), (2, 0))]
    with (
        strandline.open(str(tmp_path / "lake"), upkeep=False) as store,
        SparkComputer(store, spark, str) as computer,
    ):
        shop = Transactions(store, text, computer)
        shop.run(shop.staged("t", rows))
        assert (shop.rows("v"), shop.rows("v_errors")) == (
            [{"q": 6}],
            [{"row": "t: id = 2, n = 0", "reason": DIVISION}],
        )
        shop.run(shop.staged("t", [message(2, {"id": 2, "other": "y", "n": 3})]))
        assert shop.rows("v_errors") == []
        shop.close()
