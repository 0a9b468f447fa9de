"""The types of Spark's SQL as Arrow types, and back."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from strandline.model.columntype import kept_type
from strandline.views.sqltext import tokenize
from strandline.views.sqltypes import described, read_type, write_type
from strandline.views.tokens import Cursor
from strandline.views.troubles import Refused

FLAT = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(),
    pa.string(), pa.binary(), pa.date32(), pa.time64("us"), pa.timestamp("us", "UTC"),
    pa.timestamp("us"), pa.duration("us"), pa.decimal128(38, 0), pa.decimal128(12, 2),
]  # fmt: skip
NAMES = st.sampled_from(["a", "B c", "d`e", "select", "ünï"])
TYPES = st.recursive(
    st.sampled_from(FLAT),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(inner, inner).map(lambda pair: pa.map_(*pair)),
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=6,
)


def read(text):
    cursor = Cursor(tokenize(text))
    kind = read_type(cursor)
    cursor.end("the type")
    return kind


@given(TYPES)
def test_every_type_is_read_as_it_was_written_and_can_be_kept(kind):
    assert read(write_type(kind)) == kind
    assert kept_type(kind) == kind


@given(TYPES, TYPES)
def test_only_equal_types_are_described_alike(one, other):
    assert (described(one) == described(other)) is (one == other)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", pa.int32()),
        ("Long", pa.int64()),
        ("DECIMAL", pa.decimal128(10, 0)),
        ("dec(5)", pa.decimal128(5, 0)),
        ("timestamp_ltz", pa.timestamp("us", "UTC")),
        ("STRUCT<a INT, b: STRING>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("INTERVAL DAY TO SECOND", pa.duration("us")),
    ],
)
def test_other_spellings_are_read_too(text, kind):
    assert read(text) == kind


@pytest.mark.parametrize(
    "text",
    ["", "varchar(3)", "uint8", "map<int>", "struct<>", "decimal(0)", "array", "a.b", "'int'"],
)
def test_what_is_no_type_is_refused(text):
    with pytest.raises(Refused):
        read(text)


def test_a_type_without_words_is_refused():
    with pytest.raises(Refused, match="no type uint8"):
        write_type(pa.uint8())
