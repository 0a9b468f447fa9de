"""Tables that are emptied, on Spark: the reference's digests, and what a person would expect."""

from __future__ import annotations

import pytest
from tests.spark.transactions import Transactions, message

import strandline
from strandline.spark.computer import SparkComputer

pytestmark = pytest.mark.spark

TEXT = """
CREATE TABLE plain (id BIGINT, v STRING, PRIMARY KEY (id))
  USING generator OPTIONS (envelope 'debezium');
CREATE TABLE ordered (id BIGINT, v STRING, lsn BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (envelope 'debezium', sequenceBy 'lsn');
CREATE TABLE lines (v STRING) USING generator;
"""


def put(key, value, lsn=0):
    row = {"id": key, "v": value, "lsn": lsn}
    return message({"id": key}, {"op": "c", "after": row, "source": {"lsn": lsn}})


def truncate(lsn=0):
    return None, message(None, {"op": "t", "source": {"lsn": lsn}})[1]


def keys(shop, name):
    return [row["id"] for row in shop.rows(name)]


def test_truncations_and_reloads_of_all_kinds_of_tables(tmp_path, spark):
    with (
        strandline.open(str(tmp_path / "lake"), upkeep=False) as store,
        SparkComputer(store, spark, str) as computer,
    ):
        shop = Transactions(store, TEXT, computer)
        bad = (b'{"id": 8}', b"no json")
        shop.run(
            shop.staged("plain", [put(1, "a"), put(2, "a"), bad]),
            shop.staged("ordered", [put(1, "a", 1), put(2, "a", 2), put(3, "a", 9), bad]),
            shop.staged("lines", [message(None, {"v": each}) for each in "aab"]),
        )
        # In the middle of a batch, in two chunks that different tasks take in.
        shop.run(
            shop.staged("plain", [put(3, "b"), truncate()], [put(2, "a"), put(4, "b")]),
            shop.staged("ordered", [put(6, "b", 8), put(4, "b", 4)], [truncate(5), put(7, "b", 5)]),
            shop.reloaded("lines", [{"v": "a"}, {"v": "c"}, {"v": "c"}]),
        )
        assert keys(shop, "plain") == [2, 4]
        assert keys(shop, "ordered") == [3, 6, 7]
        assert shop.rows("plain_errors") == shop.rows("ordered_errors") == []
        assert [row["v"] for row in shop.rows("lines")] == ["a", "c", "c"]
        assert shop.rows("ordered_floor") == [{"lsn": 5}]
        # Late ones of keys that went, and of one that nobody has seen.
        found = shop.run(
            shop.staged("ordered", [put(1, "late", 3), put(9, "late", 4)]),
            shop.reloaded("plain", []),
            shop.reloaded("lines", []),
        )
        assert keys(shop, "ordered") == [3, 6, 7]
        assert "ordered" not in found.deltas
        assert keys(shop, "plain") == shop.rows("lines") == []
        # A truncation alone, older than some of what is there.
        shop.run(shop.staged("ordered", [truncate(8)]))
        assert keys(shop, "ordered") == [3]
        shop.close()
