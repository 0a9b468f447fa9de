"""Spark's computer: digest for digest the reference's, in few jobs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.spark.transactions import Transactions, message

import strandline
from strandline.config import resolve_secret
from strandline.spark.computer import SparkComputer

pytestmark = pytest.mark.spark

SHOP = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW larger AS SELECT id, twice + 1 AS more FROM large WHERE twice > 40;
CREATE MATERIALIZED VIEW share AS SELECT id, 100 / customer AS part FROM orders;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
"""


@pytest.fixture
def store(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as made:
        yield made


@pytest.fixture
def computer(store, spark):
    with SparkComputer(store, spark, resolve_secret) as made:
        yield made


def order(key, customer, amount):
    return message(key, {"id": key, "customer": customer, "amount": amount})


def test_a_transaction_is_the_references(store, computer):
    shop = Transactions(store, SHOP, computer)
    assert shop.reference.view_columns(shop.program) == computer.view_columns(shop.program)
    shop.run(shop.staged("orders", [order(1, 2, 50), order(2, 4, 5)], [order(3, 5, 30)]))
    assert shop.rows("large") == [{"id": 1, "twice": 100}, {"id": 3, "twice": 60}]
    assert shop.rows("totals") == [{"orders": 3, "amount": 85}]
    shop.run(shop.staged("orders", [order(1, 2, 5), message(3, None)]))
    assert shop.rows("large") == []
    shop.run(shop.staged("orders", [order(1, 2, 5)]))
    shop.run()
    shop.close()
