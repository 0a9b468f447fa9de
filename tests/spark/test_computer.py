"""Spark's computer: digest for digest the reference's, in few jobs."""

from __future__ import annotations

from random import Random

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


def shop_rows(random, time):
    rows = []
    for _ in range(random.randrange(0, 12)):
        key = random.randrange(8)
        # A customer of 0 makes `share` raise; a value that is no JSON is an error of the table.
        some = order(key, random.choice([0, 1, 2, 2, 3]), random.choice([None, 5, 11, 30, 2**62]))
        gone = message(key, None)
        bad = (message(key, None)[0], b"{" if random.random() < 0.5 else b'{"id": "x"}')
        rows.append(random.choices([some, gone, bad], [8, 2, 1 if time > 1 else 0])[0])
    return {"orders": rows}


EVENTS = """
CREATE TABLE clicks (page STRING, ms DOUBLE, at TIMESTAMP) USING generator;
CREATE TABLE views (page STRING, ms DOUBLE) USING generator;
CREATE MATERIALIZED VIEW slow AS SELECT page, ms FROM clicks WHERE ms > 1
  UNION ALL SELECT page, ms * 2 AS ms FROM views;
CREATE MATERIALIZED VIEW numbers AS SELECT CAST(page AS INT) AS n, ms FROM slow;
CREATE MATERIALIZED VIEW pages REFRESH FULL AS
  SELECT page, COUNT(*) AS n, MIN(ms) AS least, MAX(at) AS latest FROM clicks GROUP BY page;
CREATE MATERIALIZED VIEW counted AS SELECT n + 1 AS more FROM pages;
"""


def event_rows(random, time):
    def page():
        return {
            "page": random.choice(["1", "2", "é", None, "77"] if time % 2 else ["1", "2", "77"]),
            "ms": random.choice([0.0, -0.0, 1.5, 2.5, 1e300]),
            "at": f"2024-01-0{random.randrange(1, 9)}T00:00:00Z",
        }

    return {
        "clicks": [message(None, page()) for _ in range(random.randrange(6))],
        "views": [message(None, page()) for _ in range(random.randrange(3))],
    }


CUSTOMERS = """
CREATE TABLE customers (id BIGINT, name STRING, note STRING, lsn BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (envelope 'debezium', sequenceBy 'lsn');
CREATE MATERIALIZED VIEW named AS SELECT id, COALESCE(name, '?') AS name FROM customers WHERE lsn <> 3;
CREATE MATERIALIZED VIEW names REFRESH FULL AS
  SELECT COUNT(*) AS n, MAX(lsn) AS newest, SUM(10 div (id - 6)) AS odd FROM customers;
"""


def customer_rows(random, time):
    rows = []
    for _ in range(random.randrange(1, 10)):
        key, lsn = random.randrange(7), random.randrange(4 * time + 5)
        after = {
            "id": key,
            "name": random.choice(["a", "b", None]),
            "note": random.choice(["n", "__debezium_unavailable_value"]),
            "lsn": lsn,
        }
        op = random.choice("cuud")
        before, after = (after, None) if op == "d" else (None, after)
        change = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
        rows.append(message({"id": key}, change))
    return {"customers": rows}


@pytest.mark.parametrize(
    ("text", "draw", "seed"),
    [
        (text, draw, seed)
        for text, draw in ((SHOP, shop_rows), (EVENTS, event_rows), (CUSTOMERS, customer_rows))
        for seed in range(2)
    ],
    ids=lambda each: each.__name__ if callable(each) else str(each)[:1].strip() or "text",
)
def test_any_history_has_the_references_digests(store, computer, text, draw, seed):
    random = Random(seed)
    shop = Transactions(store, text, computer)
    for time in range(5):
        intakes = [
            shop.staged(table, rows[: len(rows) // 2], rows[len(rows) // 2 :])
            for table, rows in draw(random, time).items()
            if random.random() < 0.9
        ]
        again = computer.compute(shop.work(*intakes, writes=False)).digests()
        assert shop.run(*intakes).digests() == again
    shop.close()
