"""Shards are made once, and widened by whoever finds on record that they should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import strandline
from strandline.errors import SchemaError, UsageError
from strandline.handles.shard import Shard
from strandline.model.frontier import Frontier
from strandline.pipeline.catalog import TABLE, VIEW, Collection
from strandline.pipeline.collected import check_collection, open_collection
from strandline.shard.command import Attach

COLUMNS = pa.schema([("id", pa.int64()), ("n", pa.int64())])
TABLES = Collection("t", "shop.t", TABLE, COLUMNS, ("id",))
NOTE, BOTH = {"t": {"note": "STRING"}}, {"t": {"note": "STRING", "size": "DOUBLE"}}


@pytest.fixture
def store() -> Iterator[strandline.Store]:
    with strandline.open("memory://", upkeep=False) as opened:
        yield opened


def test_a_table_has_the_columns_that_are_on_record(store: strandline.Store) -> None:
    assert open_collection(store, TABLES, {}).schema == COLUMNS
    assert open_collection(store, TABLES, NOTE).schema.names == ["id", "n", "note"]
    assert open_collection(store, TABLES, BOTH).schema.names == ["id", "n", "note", "size"]
    # Somebody whose record is older takes nothing away.
    found = open_collection(store, TABLES, NOTE)
    assert found.schema.names == ["id", "n", "note", "size"]
    assert (found.key, found.state().schema.version) == (("id",), 3)


def test_a_table_that_is_made_late_has_them_at_once(store: strandline.Store) -> None:
    assert open_collection(store, TABLES, BOTH).state().schema.version == 1


def test_columns_of_a_view_or_of_another_type_are_refused(store: strandline.Store) -> None:
    view = Collection("t", "shop.v", VIEW, COLUMNS)
    assert open_collection(store, view, BOTH).schema == COLUMNS
    open_collection(store, TABLES, NOTE)
    with pytest.raises(SchemaError, match="'note' can't change from string to int64"):
        open_collection(store, TABLES, {"t": {"note": "BIGINT"}})
    # Whoever has not read of a column yet leaves it.
    assert open_collection(store, TABLES, {}).schema.names == ["id", "n", "note"]


def test_a_table_has_the_columns_that_are_declared_since(store: strandline.Store) -> None:
    open_collection(store, TABLES, {})
    wider = pa.schema([COLUMNS.field(0), ("y", pa.string()), COLUMNS.field(1)])
    found = open_collection(store, replace(TABLES, columns=wider), {})
    assert found.schema.names == ["id", "n", "y"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"columns": COLUMNS.remove(1)}, "'n' is missing"),
        ({"columns": pa.schema([("id", pa.int64()), ("n", pa.string())])}, "'n' can't change"),
        ({"columns": COLUMNS.append(pa.field("ID", pa.int64()))}, "ID"),
        ({"columns": COLUMNS.append(pa.field("y", pa.int64(), nullable=False))}, "not-null"),
        ({"key": ()}, "the key can't change"),
        ({"role": VIEW, "columns": COLUMNS.remove(1)}, "other columns"),
    ],
)
def test_what_could_not_be_opened_is_refused_and_nothing_changes(
    store: strandline.Store, change: dict[str, Any], reason: str
) -> None:
    attach = Attach("pipeline:shop", Frontier(3), 2)
    check_collection(store, TABLES, {}, attach)
    assert not store.shards()
    before = open_collection(store, TABLES, {}).state()
    check_collection(store, TABLES, NOTE, attach)
    with pytest.raises(SchemaError, match=reason):
        check_collection(store, replace(TABLES, **change), {}, attach)
    assert store.shard("shop.t").state() == before


def test_a_column_keeps_its_type_and_a_shard_its_timeline(store: strandline.Store) -> None:
    narrow = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    shard = open_collection(store, replace(TABLES, columns=narrow), {})
    with pytest.raises(SchemaError, match="from int32 to int64"):
        check_collection(store, TABLES, {}, Attach("pipeline:shop", Frontier(3), 2))
    store.timeline("other").attach(shard)
    with pytest.raises(UsageError, match="attached to timeline other"):
        check_collection(store, TABLES, {}, Attach("pipeline:shop", Frontier(3), 2))


def test_who_finds_it_widened_at_the_same_moment_goes_on(
    store: strandline.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_collection(store, TABLES, NOTE)
    evolve = Shard.evolve

    def late(self: Shard, schema: pa.Schema) -> None:
        monkeypatch.setattr(Shard, "evolve", evolve)
        open_collection(store, TABLES, {"t": {"size": "DOUBLE"}})
        self.evolve(schema)

    monkeypatch.setattr(Shard, "evolve", late)
    assert set(open_collection(store, TABLES, NOTE).schema.names) == {"id", "n", "note", "size"}
