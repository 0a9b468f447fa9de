"""A message's key gives the values of the key columns, and no two keys have one text."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors.keys import key_parser, key_text, named_by
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


@pytest.mark.parametrize(
    ("columns", "row", "keys"),
    [
        (
            ("id",),
            {"id": 5},
            [
                b"5", b" 5", b'{"id":5}', b'{"id": 5}', b'{"id" : 5, "x": 1}', b'{"payload": 5}',
                b'{"schema": {"type": "struct"}, "payload": {"id": 5}}',
            ],
        ),
        (("name",), {"name": "a b"}, [b"a b", b'"a b"', b'{"name":"a b"}', b'{"name": "a b"}']),
        (("name",), {"name": 'a"|\n\u00e9'}, [b'{"name": "a\\"|\\n\\u00e9"}']),
        (
            ("name", "id"),
            {"name": "a|b", "id": 5},
            [b'{"name":"a|b","id":5}', b'{"id": 5, "name": "a|b"}'],
        ),
        (
            ("name", "id"),
            {"name": "a", "id": 5},
            [b'{"name":"a","id":5}', b'{"name": "a", "id": 5}'],
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("same", [True, False])
def test_a_key_names_the_same_however_it_is_written(columns, row, keys, same):
    """Whether the value of its message says so as well, or another key, or could not be read."""
    how = reading(SCHEMA, columns, {})
    other = {"id": 6, "name": "other"} if same is False else row
    kinds = [SCHEMA.field(name) for name in columns]
    rows = pa.Table.from_pylist([{k: other[k] for k in columns}] * len(keys), pa.schema(kinds))
    own = key_text(pa.Table.from_pylist([row], pa.schema(kinds)))
    found = named_by(pa.chunked_array([keys], pa.binary()), rows, how)
    assert found.to_pylist() == own.cast(pa.binary()).to_pylist() * len(keys)
    nothing = pa.Table.from_pylist([{}] * len(keys), pa.schema(kinds))
    assert named_by(pa.chunked_array([keys], pa.binary()), nothing, how).to_pylist() == (
        found.to_pylist()
    )


def test_a_key_that_does_not_give_the_columns_is_itself():
    keys = [b"customer-7", b'{"customer": 7}', b"", None, b"\xff", b'{"id": null}', b"5.5"]
    how = reading(SCHEMA, ("id",), {})
    rows = pa.table({"id": pa.array(range(len(keys)), pa.int64())})
    found = named_by(pa.chunked_array([keys], pa.binary()), rows, how)
    assert found.to_pylist() == keys


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(st.text(max_size=6), st.sampled_from(["null", "5", '"x"', "{}", " 1"]))))
def test_a_short_look_at_a_key_finds_what_a_long_one_does(texts):
    """Bare text, JSON text, and an object of it, beside a row that has that text, and another."""
    how = reading(SCHEMA, ("name",), {})
    written = [[each.encode(), json.dumps(each).encode(), json.dumps({"name": each}).encode()]
               for each in texts]  # fmt: skip
    keys = pa.chunked_array([[key for each in written for key in each]], pa.binary())
    values = pa.table({"name": pa.array([each for each in texts for _ in range(3)], pa.string())})
    nothing = pa.table({"name": pa.nulls(len(keys), pa.string())})
    assert named_by(keys, values, how).equals(named_by(keys, nothing, how))
