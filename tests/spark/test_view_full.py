"""Views that are computed anew: only the difference comes out, and errors come and go."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.transactions import Transactions, message

import strandline
from strandline.pipeline.meaning import DIVISION
from strandline.spark import view_full
from strandline.spark.computer import SparkComputer

pytestmark = pytest.mark.spark

TEXT = """
CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW v REFRESH FULL AS SELECT n, SUM(12 div n) AS s FROM t GROUP BY n;
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


LINEAR = """
CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING generator;
CREATE TABLE u (n BIGINT) USING generator;
CREATE MATERIALIZED VIEW w AS SELECT id, 12 div n AS q FROM t UNION ALL SELECT n, 1 div n FROM u;
"""


def test_a_linear_view_that_is_built_has_an_error_for_each_row_that_raises(
    tmp_path, spark, monkeypatch
):
    monkeypatch.setattr(view_full, "BUCKET_ROWS", 3)
    with (
        strandline.open(str(tmp_path / "lake"), upkeep=False) as store,
        SparkComputer(store, spark, str) as computer,
    ):
        shop = Transactions(store, LINEAR, computer)
        rows = [message(key, {"id": key, "n": key % 3}) for key in range(5)]
        shop.run(shop.staged("t", rows), shop.staged("u", [message(None, {"n": 0})] * 2))
        more = shop.staged("t", [message(5, {"id": 5, "n": 0}), message(1, {"id": 1, "n": 4})])
        # The table has got a column that the view does not see.
        shard = next(each for each in store.shards() if each.endswith(".t"))
        wider = store.shard(shard).schema.append(pa.field("later", pa.string()))
        store.shard(shard).evolve(wider)
        shop.run(more, builds=frozenset({"w"}))
        assert shop.rows("w") == [{"id": 1, "q": 3}, {"id": 2, "q": 6}, {"id": 4, "q": 12}]
        errors = [each["row"] for each in shop.rows("w_errors")]
        assert errors == [*(f"t: id = {key}, n = 0" for key in (0, 3, 5)), "u: n = 0", "u: n = 0"]
        shop.close()
