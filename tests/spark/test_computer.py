"""Spark's computer: digest for digest the reference's, in few jobs."""

# ruff: noqa: E501 - names of Spark's own

from __future__ import annotations

from random import Random

import pytest
from tests.spark.jobs import last_job
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
CREATE MATERIALIZED VIEW named AS
  SELECT id, COALESCE(name, '?') AS name FROM customers WHERE lsn <> 3;
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
        op = random.choice("cucuducut")
        before, after = (after, None) if op == "d" else (None, after)
        if op == "t":
            before = after = None
        change = {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}
        rows.append(message({"id": key}, change))
    return {"customers": rows}


def reloads(random):
    """What tables are reloaded with: some of what they hold, and something else."""
    keys = random.sample(range(8), 4)
    return {
        "orders": [{"id": k, "customer": k % 3, "amount": random.choice([5, 30])} for k in keys],
        "clicks": [{"page": random.choice("127"), "ms": 2.5} for _ in range(4)],
        "views": [],
        "customers": [{"id": k, "name": "a", "note": "n", "lsn": k} for k in keys],
    }


@pytest.mark.parametrize(
    ("text", "draw", "seed"),
    [
        (text, draw, seed)
        for text, draw in ((SHOP, shop_rows), (EVENTS, event_rows), (CUSTOMERS, customer_rows))
        for seed in range(1)
    ],
    ids=lambda each: each.__name__ if callable(each) else str(each)[:1].strip() or "text",
)
def test_any_history_has_the_references_digests(store, computer, text, draw, seed):
    random = Random(seed)
    shop = Transactions(store, text, computer)
    for time in range(4):
        intakes = [
            shop.staged(table, rows[: len(rows) // 2], rows[len(rows) // 2 :])
            for table, rows in draw(random, time).items()
            if random.random() < 0.9
        ]
        if time == 2:
            rows = reloads(random)
            intakes = [shop.reloaded(each.name, rows[each.name]) for each in shop.program.tables]
        again = computer.compute(shop.work(*intakes, writes=False)).digests()
        assert shop.run(*intakes).digests() == again
    shop.close()


LARGE = """
CREATE TABLE orders (id BIGINT, note STRING, amount BIGINT, PRIMARY KEY (id)) USING generator;
CREATE TABLE lines (note STRING, amount BIGINT) USING generator;
CREATE MATERIALIZED VIEW big AS SELECT id, note, amount FROM orders WHERE amount > 10
  UNION ALL SELECT amount AS id, note, 0 AS amount FROM lines;
CREATE MATERIALIZED VIEW bigger AS SELECT id, note FROM big WHERE amount > 90;
CREATE MATERIALIZED VIEW copies REFRESH FULL AS SELECT note, id FROM big;
"""


def large_rows(first, count, kind):
    note = "n" * 150
    return [
        message(key, {"id": key, "note": f"{note}{key}{kind}", "amount": key % 100})
        for key in range(first, first + count)
    ]


def typed_rows(first, count, kind):
    note = "n" * 150
    return [
        {"id": key, "note": f"{note}{key}{kind}", "amount": key % 100}
        for key in range(first, first + count)
    ]


def without_id(row):
    return {name: value for name, value in row.items() if name != "id"}


def changes_in(delta):
    if delta.batch is None:
        return delta.updates.num_rows
    return sum(part.rows for part in delta.batch.parts)


def test_many_rows_travel_as_parts_and_mean_the_same(store, computer):
    shop = Transactions(store, LARGE, computer)
    found = shop.run(
        shop.staged("orders", large_rows(0, 12_000, "a"), large_rows(12_000, 8_000, "a")),
        shop.staged("lines", large_rows(0, 9_000, "l")),
    )
    for name in ("orders", "lines", "big", "copies"):
        assert found.deltas[name].batch is not None, name
    found = shop.run(shop.staged("orders", large_rows(5_000, 18_000, "b")))
    assert found.deltas["orders"].batch is not None
    found = shop.run(
        shop.reloaded("orders", typed_rows(4_000, 12_000, "b"), typed_rows(16_000, 9_000, "c")),
        shop.reloaded("lines", [without_id(row) for row in typed_rows(2_000, 12_000, "l")]),
    )
    # 11,000 of 23,000 orders and 7,000 of 9,000 lines are there already: they are no changes.
    assert [changes_in(found.deltas[name]) for name in ("orders", "lines")] == [22_000, 7_000]
    few = shop.staged("orders", [message(key, None) for key in range(50)])
    before = sum(1 for _ in store.env.blob.list(""))
    again = computer.compute(shop.work(few, writes=False))
    assert sum(1 for _ in store.env.blob.list("")) <= before + len(GROUNDS)
    assert shop.run(few).digests() == again.digests()
    shop.close()


GROUNDS = ("orders", "orders_errors", "big", "bigger", "copies")
"""Collections for which a computer that nobody lent a writer takes one of its own."""


SETTINGS = [
    {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"},
    {"spark.sql.shuffle.partitions": "4", "spark.sql.leafNodeDefaultParallelism": "4"},
    {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    },
]
GROUPED = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id)) USING generator;
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT customer, COUNT(*) AS n, SUM(amount) AS amount FROM orders GROUP BY customer;
"""


def test_digests_do_not_depend_on_how_spark_computes(store, computer, spark):
    shop = Transactions(store, GROUPED, computer)
    others = [SparkComputer(store, spark, resolve_secret, settings=each) for each in SETTINGS]
    for time in range(2):
        random = Random(time)
        some = [[order(random.randrange(9), key % 3, key) for key in range(9)] for _ in range(4)]
        intake = shop.staged("orders", *some)
        work = shop.work(intake, writes=False)
        expected = shop.run(intake)
        for other in others:
            found = other.compute(work)
            assert (found.inputs, found.digests()) == (expected.inputs, expected.digests())
    for other in others:
        other.close()
    shop.close()


def test_a_keyed_table_and_a_linear_view_cost_three_jobs(store, computer, spark):
    text = "".join(SHOP.partition("CREATE MATERIALIZED VIEW larger")[:1])
    shop = Transactions(store, text, computer)
    for time in range(3):
        intake = shop.staged("orders", [order(key, 1, time + key) for key in range(30)])
        before = last_job(spark)
        shop.land(computer.compute(shop.work(intake)))
        assert last_job(spark) - before == 3
        assert computer.jobs == 3
    shop.close()


@pytest.mark.parametrize(
    ("rows", "jobs"),
    [
        (None, 0),
        ([], 1),
        ([(b"1", b"no json")], 3),
    ],
    ids=["no intake", "an empty intake", "an error, which is looked at twice"],
)
def test_what_has_nothing_to_do_costs_no_job(store, computer, rows, jobs):
    text = "".join(SHOP.partition("CREATE MATERIALIZED VIEW totals")[:1])
    shop = Transactions(store, text, computer)
    shop.run(*([] if rows is None else [shop.staged("orders", rows)]))
    assert computer.jobs == jobs
    shop.close()
