"""A table is reloaded from a source: all that it has now, the last row of a key, or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

import strandline
from strandline.errors import NotFoundError, SchemaError, UsageError
from strandline.pipeline.pipeline import Pipeline
from strandline.testing.engines import arrow_engine

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, seq BIGINT, PRIMARY KEY (id))
  USING http OPTIONS (sequenceBy 'seq', keepDeleted '1d');
CREATE TABLE stock (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE TABLE lines (note STRING, amount BIGINT) USING http;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM stock WHERE amount > 10;
"""
SETTINGS = strandline.PipelineSettings(delay_ms=0, poll_ms=1)
COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("more", pa.string())])


@pytest.fixture
def shop() -> Iterator[Pipeline]:
    with strandline.open("memory://", upkeep=False) as store:
        yield store.pipeline("shop", TEXT, settings=SETTINGS, engine=arrow_engine)


def held(shop: Pipeline, name: str = "stock") -> list[tuple[object, ...]]:
    table = shop.collection(name).snapshot(as_of=shop.committed.last()).to_arrow()
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def changed(shop: Pipeline) -> int:
    (last,) = shop.history(1)
    return len(last.changes)


def shard_of(shop: Pipeline, name: str, *rows: tuple[int, int], key: str = "id") -> None:
    shard = shop.store.shard(name, COLUMNS, [key])
    with shard.writer("a test") as writer:
        some = [{"id": one, "amount": two, "more": "x"} for one, two in rows]
        writer.append(pa.Table.from_pylist(some, schema=COLUMNS))


# ---- shards


def test_a_shard_is_taken_as_of_its_last_time_and_only_what_differs_is_seen(shop: Pipeline) -> None:
    shop.reload("stock", [{"id": 1, "amount": 50}, {"id": 9, "amount": 1}])
    shard_of(shop, "other", (1, 50), (2, 5))
    shard_of(shop, "other", (3, 70))
    source = ("strandline", {"shard": "other"})
    time = shop.reload("stock", source)
    assert held(shop) == [(1, 50), (2, 5), (3, 70)]
    assert held(shop, "large") == [(1, 50), (3, 70)]
    assert shop.reload("stock", source) == time + 1
    assert changed(shop) == 0
    assert [each.t for each in shop.replay()] == [0, time, time + 1]


def test_another_table_of_the_same_pipeline_is_a_shard_too(shop: Pipeline) -> None:
    shop.reload("stock", [{"id": 1, "amount": 5}, {"id": 2, "amount": 20}])
    shop.reload("stock", ("strandline", {"shard": shop.collection("large").name}))
    assert held(shop) == [(2, 20)]


def test_a_shard_that_does_not_fit_is_refused_by_name(shop: Pipeline) -> None:
    shop.reload("stock", [{"id": 1, "amount": 5}])
    shard_of(shop, "other", (1, 1))
    shard_of(shop, "keyed", (1, 1), key="amount")
    for table, shard, error, reason in (
        ("stock", "nowhere", NotFoundError, "nowhere"),
        ("orders", "other", SchemaError, "no column 'seq'"),
        ("stock", "keyed", SchemaError, r"the key \(amount\)"),
    ):
        with pytest.raises(error, match=reason):
            shop.reload(table, ("strandline", {"shard": shard}))
    with pytest.raises(UsageError, match="needs the option shard"):
        shop.reload("stock", ("strandline", {}))
    assert held(shop) == [(1, 5)]


# ---- what else there is


def test_a_generator_with_an_end(shop: Pipeline) -> None:
    source = ("generator", {"rows": "40", "keys": "20", "deletes": "0.3", "seed": "3"})
    shop.reload("stock", source)
    found = held(shop)
    assert 0 < len(found) < 20, "some keys were deleted, and the last row of the others counts"
    shop.reload("stock", source)
    assert changed(shop) == 0
    list(shop.replay())


def test_files_by_their_connector(shop: Pipeline, tmp_path) -> None:
    (tmp_path / "a.csv").write_text("note;amount\na;1\n")
    shop.reload("lines", ("files", {"path": str(tmp_path / "a.csv"), "csv.delimiter": ";"}))
    assert held(shop, "lines") == [("a", 1)]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (("http", {}), "can't be reloaded from 'http'"),
        (("nothing", {}), "use one of files, generator, kafka, strandline"),
        (("generator", {"keys": "3"}), "has no end"),
        (("kafka", {"subscribe": "x", "envelope": "debezium"}), "which follow each other"),
        (("kafka", {"subscribe": "x", "envelope": "nothing"}), "envelope is 'nothing'"),
    ],
)
def test_what_can_not_be_what_a_table_holds_is_refused(
    shop: Pipeline, source: tuple[str, dict[str, str]], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        shop.reload("stock", source)


# ---- a real topic


def of_topic(topics, name: str, **more: str) -> tuple[str, dict[str, str]]:
    return "kafka", {"kafka.bootstrap.servers": topics.address, "subscribe": name, **more}


def send(topics, name: str, partition: int, *rows: tuple[int, dict[str, int] | None]) -> None:
    for key, row in rows:
        value = None if row is None else json.dumps({"id": key, **row}).encode()
        topics.write(name, [value], partition, key=str(key).encode())


def test_a_topic_is_taken_up_to_its_end_and_the_last_row_of_a_key_counts(
    broker, topics, shop: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.pipeline.bringing.CHUNK_BYTES", 100)
    name = topics.make(2)
    shop.reload("stock", [{"id": 7, "amount": 7}])
    send(topics, name, 0, (2, {"amount": 1}), (4, {"amount": 2}), (2, {"amount": 30}), (4, None))
    send(topics, name, 1, (1, {"amount": 11}), (3, None), (5, {"amount": 5}))
    told: list[int] = []
    shop.reload(
        "stock",
        of_topic(topics, name, maxRecordsPerPartition="2"),
        told=lambda done, *_: told.append(done),
    )
    assert held(shop) == [(1, 11), (2, 30), (5, 5)]
    assert held(shop, "large") == [(1, 11), (2, 30)]
    assert told[-1] == 7
    assert len(told) > 2, "in chunks"
    # It is what there was: the table does not follow the topic.
    send(topics, name, 0, (2, {"amount": 99}))
    shop.run(until_idle=True)
    assert held(shop) == [(1, 11), (2, 30), (5, 5)]
    list(shop.replay())


def test_a_topic_of_rows_that_have_sequences(broker, topics, shop: Pipeline) -> None:
    name = topics.make()
    send(topics, name, 0, (1, {"amount": 2, "seq": 5}), (1, {"amount": 1, "seq": 4}))
    shop.reload("orders", of_topic(topics, name))
    assert held(shop, "orders") == [(1, 2, 5)]
    list(shop.replay())


def test_a_topic_with_a_value_that_is_no_row_or_with_nothing_changes_nothing(
    broker, topics, shop: Pipeline
) -> None:
    shop.reload("stock", [{"id": 7, "amount": 7}])
    before = {entry.key for entry in shop.store.env.blob.list("journal/")}
    bad, empty = topics.make(), topics.make()
    send(topics, bad, 0, (1, {"amount": 1}))
    topics.write(bad, [b"no json"], key=b"1")
    with pytest.raises(SchemaError, match=r"kafka, partition '0' at 1 is no row"):
        shop.reload("stock", of_topic(topics, bad))
    for name in (empty, bad):
        with pytest.raises(UsageError, match="there are no rows"):
            shop.reload("stock", of_topic(topics, name, startingOffsets="latest"))
    assert held(shop) == [(7, 7)]
    assert {entry.key for entry in shop.store.env.blob.list("journal/")} == before


def test_a_table_is_reloaded_from_its_own_topic_without_saying_it_again(broker, topics) -> None:
    name = topics.make()
    send(topics, name, 0, (1, {"amount": 1}), (2, {"amount": 2}), (1, None))
    text = f"""CREATE TABLE stock (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING kafka
      OPTIONS (kafka.bootstrap.servers '{topics.address}', subscribe '{name}');"""
    with (
        strandline.open("memory://", upkeep=False) as store,
        store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine) as shop,
    ):
        shop.run(until_idle=True)
        with shop.transaction() as work:
            work.insert("stock", [{"id": 8, "amount": 8}, {"id": 2, "_delete": True}])
        shop.reload("stock", ("kafka", {}))
        assert held(shop) == [(2, 2)]
        assert all(each.noted == () for each in shop.replay())
