"""Rows in the metadata survive, also a change of the schema."""

import msgspec
import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.inline import decode_inline, encode_inline
from strandline.parts.part import Inline
from strandline.parts.rows import Checked, check_rows

NARROW = pa.schema(
    [
        ("k", pa.int16()),
        ("s", pa.string()),
        ("f", pa.float32()),
        ("d", pa.decimal128(6, 2)),
        ("l", pa.list_(pa.int32())),
    ]
)
WIDE = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.large_string()),
        ("f", pa.float64()),
        ("d", pa.decimal128(30, 2)),
        ("l", pa.list_(pa.int32())),
        ("new", pa.date32()),
    ]
)
SCHEMA = Schema.create(NARROW, ("k",))
ROWS = [
    {"k": 1, "s": "a", "f": 0.5, "d": None, "l": [1, None]},
    {"k": 2, "s": None, "f": None, "d": None, "l": None},
]


def checked() -> Checked:
    return check_rows(ROWS, SCHEMA, lower=3, upper=Frontier(4))


def inline() -> Inline:
    return encode_inline(checked())


def test_inline_rows_come_back_as_they_were():
    found = decode_inline(inline(), SCHEMA, shard="s")
    assert found.equals(checked().updates, check_metadata=True)
    assert (inline().rows, inline().t_min, inline().t_max) == (2, 3, 3)
    assert inline().total == checked().total


def test_inline_rows_are_read_under_a_later_schema():
    found = decode_inline(inline(), SCHEMA.evolve(WIDE), shard="s")
    assert found.schema.types[:6] == WIDE.types
    assert found.to_pylist()[0] == {**ROWS[0], "new": None, "_time": 3, "_diff": 1}


def test_only_the_columns_asked_for_come_back():
    found = decode_inline(inline(), SCHEMA, shard="s", columns=["s"])
    assert found.column_names == ["s", "_time", "_diff"]


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff\xff", inline().payload[:-80]])
def test_damaged_inline_rows_are_reported(payload: bytes):
    damaged = msgspec.structs.replace(inline(), payload=payload)
    with pytest.raises(CorruptionError, match="shard orders: inline rows"):
        decode_inline(damaged, SCHEMA, shard="orders")


def test_a_wrong_number_of_inline_rows_is_reported():
    with pytest.raises(CorruptionError, match="2 instead of 7"):
        decode_inline(msgspec.structs.replace(inline(), rows=7), SCHEMA, shard="orders")
