"""Tests of the store handle: shards, timelines, and what belongs to a process."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from strandline.errors import (
    CorruptionError,
    HandleClosedError,
    NameRefusedError,
    NotFoundError,
    SchemaError,
)
from strandline.handles.store import Store
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.store.consensus import Versioned
from strandline.testing.lab import COLUMNS, Lab, new_store, rows


@pytest.fixture
def store(lab: Lab) -> Iterator[Store]:
    with new_store(lab) as opened:
        yield opened


def test_a_shard_is_created_once_and_opened_by_name(lab: Lab, store: Store) -> None:
    first = store.shard("orders", schema=COLUMNS, key=["id"])
    with new_store(lab) as other:
        again = other.shard("orders", schema=COLUMNS, key=["id"])
        assert again.state().id == first.state().id
        assert other.shard("orders").key == ("id",)
        assert other.id == store.id
    assert store.shards() == ["orders"]


def test_a_shard_that_is_not_there_is_named(store: Store) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        store.shard("nowhere")
    with pytest.raises(NameRefusedError):
        store.shard("../orders", schema=COLUMNS)


def test_another_schema_or_key_is_refused(store: Store) -> None:
    store.shard("orders", schema=COLUMNS, key=["id"])
    with pytest.raises(SchemaError, match="other columns"):
        store.shard("orders", schema=pa.schema([("id", pa.int32())]))
    with pytest.raises(SchemaError, match="key"):
        store.shard("orders", key=["name"])


def test_a_dropped_shard_is_gone_and_its_name_is_free(store: Store) -> None:
    old = store.shard("orders", schema=COLUMNS, key=["id"])
    with old.writer() as writer:
        writer.append(rows(1))
    store.drop("orders")
    assert store.shards() == []
    with pytest.raises(NotFoundError, match="dropped"):
        store.shard("orders")
    new = store.shard("orders", schema=COLUMNS, key=["id"])
    assert new.upper == Frontier(0)
    assert new.state().batches == ()
    for use in (old.snapshot, old.writer, old.reader, old.subscribe, lambda: old.upper):
        with pytest.raises(NotFoundError, match="created anew"):
            use()


def test_timelines_move_shards_together(store: Store) -> None:
    orders = store.shard("orders", schema=COLUMNS, key=["id"])
    stock = store.shard("stock", schema=COLUMNS, key=["id"])
    shop = store.timeline("shop")
    shop.attach(orders)
    shop.attach(stock)
    with shop.own() as owner:
        owner.stage("orders", rows(1, 2))
        owner.commit()
    assert shop.upper == orders.upper == stock.upper == Frontier(1)
    assert shop.shards == ("orders", "stock")
    assert store.timelines() == ["shop"]
    assert orders.snapshot(0).count() == 2
    assert stock.snapshot(0).count() == 0


def test_a_closed_store_says_so(lab: Lab) -> None:
    opened = new_store(lab)
    opened.close()
    opened.close()
    with pytest.raises(HandleClosedError, match="closed"):
        opened.shard("orders")


def test_closing_gives_back_readers_and_writers(lab: Lab) -> None:
    with new_store(lab) as opened:
        shard = opened.shard("orders", schema=COLUMNS, key=["id"])
        with shard.writer() as writer:
            writer.append(rows(1))
        shard.snapshot().to_arrow()
        assert shard.state().readers
    with new_store(lab) as other:
        state = other.shard("orders").state()
        assert state.readers == {}
        assert state.writers == {}


def test_a_damaged_mark_is_refused(lab: Lab) -> None:
    lab.consensus.compare_and_set("store", Versioned(SeqNo(0), b"STRL something else"))
    with pytest.raises(CorruptionError, match="store's mark"):
        new_store(lab)
