"""Shards are made once, and widened by whoever finds on record that they should be."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

import strandline
from strandline.errors import SchemaError
from strandline.handles.shard import Shard
from strandline.pipeline.catalog import TABLE, VIEW, Collection
from strandline.pipeline.collected import open_collection

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
    with pytest.raises(SchemaError, match="exists with other columns"):
        open_collection(store, TABLES, {})


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
