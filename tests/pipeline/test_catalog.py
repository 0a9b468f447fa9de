"""A program's collections: their shards, their columns, and what is bound to which."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from strandline.errors import JournalError
from strandline.journal.record import Bind
from strandline.journal.standing import Bound, Standing
from strandline.pipeline.catalog import Collection, binds, collections, errors_of, shards
from strandline.testing.computing import ArrowComputer
from strandline.views.parse import parse

TEXT = """
CREATE TABLE orders (id BIGINT, lsn BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (sequenceBy 'lsn');
CREATE TABLE notes (text STRING) USING generator;
CREATE MATERIALIZED VIEW some AS SELECT id FROM orders WHERE id > 3;
"""


def _collections(text: str = TEXT) -> list[Collection]:
    program = parse(text)
    return collections("shop", program, ArrowComputer.view_columns(None, program))


def test_every_table_and_view_has_its_errors_and_a_sequenced_table_its_tombstones() -> None:
    found = {each.name: each for each in _collections()}
    assert list(found) == [
        "orders",
        "orders_errors",
        "orders_tombs",
        "notes",
        "notes_errors",
        "some",
        "some_errors",
    ]
    assert found["orders"].shard == "shop.orders"
    assert found["orders"].key == found["orders_tombs"].key == ("id",)
    assert found["orders_tombs"].columns.names == ["id", "lsn", "_at"]
    assert found["some"].columns.names == ["id"]
    assert found["some"].shard.startswith("shop.some.p")
    assert errors_of("orders") == "orders_errors"


def test_only_what_changes_is_bound() -> None:
    wanted = _collections()
    assert [each.name for each in binds(wanted, {})] == [each.name for each in wanted]
    bound = {each.name: Bound(each.shard, each.role) for each in wanted}
    assert binds(wanted, bound) == []
    moved = {**bound, "some": Bound("shop.some.pother", "view"), "old": Bound("shop.old", "table")}
    now = next(each.shard for each in wanted if each.name == "some")
    assert binds(wanted, moved) == [Bind("old", None, "table"), Bind("some", now, "view")]


def test_a_name_that_means_another_shard_is_refused() -> None:
    wanted = _collections()
    bound = {each.name: Bound(each.shard, each.role) for each in wanted}
    standing = msgspec.structs.replace(Standing.empty("shop"), bindings=bound)
    assert shards(standing, wanted)["orders"] == "shop.orders"
    other = [replace(each, shard="shop.elsewhere") for each in wanted]
    with pytest.raises(JournalError, match=r"orders is bound to shop\.orders"):
        shards(standing, other)
