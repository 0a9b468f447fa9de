"""A part's description that travels."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError, NameRefusedError
from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.parts.filters import parse_filter
from strandline.parts.part import PLACE_MAX, Inline, Part
from strandline.reading.descriptor import PartDescriptor, decode_descriptor, encode_descriptor

SCHEMA = Schema.create(pa.schema([("id", pa.int64()), ("x", pa.float64())]), ["id"])
ZERO = Digest.ZERO.pack()
PART = Part("s/w/p.parquet", 10, 1, 2, ZERO, 3, 5, False, 0, 0, PLACE_MAX, 1)
INLINE = Inline(2, b"rows", ZERO, 3, 5, 1)


def _descriptor(piece: Part | Inline = PART, **fields: object) -> PartDescriptor:
    return PartDescriptor(
        **{
            "id": "p",
            "shard": "orders",
            "shard_id": "s" + "0" * 32,
            "schema": SCHEMA,
            "piece": piece,
            "owed": 3,
            **fields,
        }
    )


@pytest.mark.parametrize(
    "descriptor",
    [
        _descriptor(as_of=7),
        _descriptor(INLINE, after=3, upto=9),
        _descriptor(columns=("x",), filter=parse_filter([("id", "in", [1, 2])], SCHEMA)),
        _descriptor(
            filter=parse_filter([[("x", "=", float("nan"))], [("id", "is null", None)]], SCHEMA)
        ),
    ],
)
def test_a_descriptor_survives_the_journey(descriptor):
    assert decode_descriptor(encode_descriptor(descriptor)) == descriptor


def test_every_damaged_byte_is_noticed():
    encoded = encode_descriptor(_descriptor(as_of=7))
    for at in range(len(encoded)):
        with pytest.raises(CorruptionError):
            decode_descriptor(encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :])


def test_names_from_elsewhere_are_checked():
    with pytest.raises(NameRefusedError):
        decode_descriptor(encode_descriptor(_descriptor(shard="../etc")))
    with pytest.raises(NameRefusedError):
        decode_descriptor(encode_descriptor(_descriptor(shard_id="s1")))


@pytest.mark.parametrize(
    ("bounds", "whole"),
    [
        ({"as_of": 5}, True),
        ({"as_of": 4}, False),
        ({"after": 3}, True),
        ({"after": 3, "upto": 6}, True),
        ({"after": 3, "upto": 5}, False),
        ({"after": 4}, False),
    ],
)
def test_a_piece_is_whole_if_all_of_its_times_are_asked_for(bounds, whole):
    assert _descriptor(**bounds).whole is whole


def test_it_says_what_it_is():
    assert str(_descriptor()) == "part s/w/p.parquet of shard orders"
    assert _descriptor().size == 10
    assert _descriptor(INLINE).size == 4
