"""What a reader asks for."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import SchemaError
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.part import PLACE_MAX, Inline, Part
from strandline.reading.listing import Piece
from strandline.reading.request import Bounds, Request, describe
from strandline.shard.state import State

SCHEMA = Schema.create(pa.schema([("id", pa.int64()), ("name", pa.string())]), ["id"])


def test_names_are_checked_when_they_are_given():
    with pytest.raises(SchemaError, match="nobody"):
        Request.parse(["nobody"], None, SCHEMA)
    with pytest.raises(SchemaError, match="at least one"):
        Request.parse([], None, SCHEMA)
    with pytest.raises(SchemaError, match="twice"):
        Request.parse(["id", "id"], None, SCHEMA)
    with pytest.raises(SchemaError, match="list of names"):
        Request.parse("id", None, SCHEMA)


def test_the_columns_come_in_the_order_asked_for():
    assert Request.parse(["name", "id"], None, SCHEMA).arrow(SCHEMA).names == ["name", "id"]
    assert Request.parse(None, None, SCHEMA).arrow(SCHEMA) == SCHEMA.arrow()


def test_a_key_in_the_filter_decides_on_places():
    assert Request.parse(None, [("id", "=", 1)], SCHEMA).want(SCHEMA).places is not None
    assert Request.parse(None, [("name", "=", "x")], SCHEMA).want(SCHEMA).places is None


def test_two_listings_of_one_piece_have_different_ids():
    part = Part("s/w/p.parquet", 1, 1, 1, b"", 3, 5, False, 0, 0, PLACE_MAX, 1)
    pieces = [Piece(3, part, 3), Piece(3, Inline(1, b"", b"", 3, 5, 1), 3)]
    state = State(name="orders", id="s", schema=SCHEMA, upper=Frontier(9))
    request = Request(None, None)
    wanted = request.want(SCHEMA).filter
    bounds = [Bounds(as_of=4), Bounds(after=5, upto=6), Bounds(after=6)]
    ids = [d.id for each in bounds for d in describe(state, pieces, request, wanted, each)]
    assert len(set(ids)) == 6
