"""Views that are computed anew: only the difference comes out, and errors come and go."""

from __future__ import annotations

import pytest
from tests.spark.transactions import Transactions, message

import strandline
from strandline.pipeline.meaning import DIVISION
from strandline.spark.computer import SparkComputer

pytestmark = pytest.mark.spark

TEXT = """
CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT n, SUM(12 / n) AS s FROM t GROUP BY n;
"""


def test_a_view_that_raises_stays_says_why_and_heals(tmp_path, spark):
    def row(key, n):
        return message(key, {"id": key, "n": n})

    with (
        strandline.open(str(tmp_path / "lake"), upkeep=False) as store,
        SparkComputer(store, spark, str) as computer,
    ):
        shop = Transactions(store, TEXT, computer)
        shop.run(shop.staged("t", [row(1, 2), row(2, 3), row(3, 3)]))
        found = shop.run(shop.staged("t", [row(2, 4)]))
        assert found.deltas["v"].digest.count == 1
        before = shop.rows("v")
        shop.run(shop.staged("t", [row(4, 0)]))
        assert (shop.rows("v"), shop.rows("v_errors")) == (
            before,
            [{"row": "", "reason": DIVISION}],
        )
        shop.run(shop.staged("t", [message(4, None)]))
        assert (shop.rows("v"), shop.rows("v_errors")) == (before, [])
        shop.close()
