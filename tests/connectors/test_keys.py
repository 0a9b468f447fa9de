"""A message's key gives the values of the key columns, and no two keys have one text."""

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors.keys import key_parser, key_text
from strandline.connectors.reading import reading

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.string())])


@pytest.mark.parametrize(
    ("columns", "key", "expected"),
    [
        (("id",), b"5", [5]),
        (("id",), b'{"id": 5}', [5]),
        (("id",), b'{"payload": 5}', [5]),
        (("id",), b'{"schema": {}, "payload": {"id": 5, "x": 1}}', [5]),
        (("id",), b'"5"', None),
        (("id",), b"text", None),
        (("id",), b"", None),
        (("id",), b'{"id": "x"}', None),
        (("name",), b"text", ["text"]),
        (("name",), b'"text"', ["text"]),
        (("name",), b"5", ["5"]),
        (("name",), b"\xff", None),
        (("name", "id"), b'{"id": 5, "name": "x"}', ["x", 5]),
        (("name", "id"), b'{"payload": {"id": 5, "name": "x"}}', ["x", 5]),
        (("name", "id"), b'{"id": 5}', [None, 5]),
        (("name", "id"), b"5", None),
    ],
)
def test_keys_are_read_as_they_are_found(columns, key, expected):
    found = key_parser(reading(SCHEMA, columns, {}))(key)
    assert (found and found[0]) == expected


@settings(deadline=None, max_examples=50)
@given(st.binary())
def test_any_bytes_are_a_key_or_none(key):
    for columns in (("id",), ("name",), ("id", "name")):
        key_parser(reading(SCHEMA, columns, {}))(key)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.text("a|\\", max_size=4), st.text("a|\\", max_size=4)), max_size=30))
def test_different_keys_have_different_texts(keys):
    table = pa.table(
        {
            "a": pa.array([a for a, _ in keys], "string"),
            "b": pa.array([b for _, b in keys], "string"),
        }
    )
    assert len(set(key_text(table).to_pylist())) == len(set(keys))


def test_a_key_with_a_null_has_no_text():
    assert key_text(pa.table({"a": [1, None], "b": ["x", "y"]})).to_pylist() == [b"1|x", None]
