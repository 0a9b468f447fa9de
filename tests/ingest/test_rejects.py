"""Commands that are no rows become rows of the error collection."""

import datetime as dt
import decimal

import pyarrow as pa
import pytest

from strandline.ingest.rejects import ERRORS, errors, good, reasons, rejected
from strandline.model.schema import Schema

SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ["k"])
COMMANDS = pa.table(
    {
        "k": pa.array([1, None, 3, 4], pa.int64()),
        "v": pa.array(["a", "b", None, None]),
        "_time": [5, 5, 6, 7],
        "_delete": [False, False, False, True],
        "_order0": [10, 11, 12, 13],
        "_error": pa.array([None, None, "not a number", None], pa.string()),
    }
)


def test_null_keys_and_undecodable_values_are_rejected():
    assert rejected(COMMANDS, SCHEMA).tolist() == [False, True, True, False]
    assert reasons(COMMANDS, SCHEMA) == ["a column of the key is null", "not a number"]


def test_the_table_gets_the_others_without_the_column_of_errors():
    kept = good(COMMANDS, SCHEMA)
    assert kept.column_names == ["k", "v", "_time", "_delete", "_order0"]
    assert kept.column("k").to_pylist() == [1, 4]
    assert good(kept, SCHEMA) is kept, "nothing is copied where nothing is wrong"


def test_every_command_says_something_to_the_error_collection():
    found = errors(COMMANDS, SCHEMA)
    assert found.select(ERRORS.names).schema.equals(ERRORS)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("1", None, None, 5, True, 10),
        ("null key at 11", "a column of the key is null", "11", 5, False, 11),
        ("3", "not a number", "12", 6, False, 12),
        ("4", None, None, 7, True, 13),
    ]


TWO = Schema.create(pa.schema([("a", pa.string()), ("b", pa.string())]), ["a", "b"])


@pytest.mark.parametrize(
    ("one", "other"),
    [(("x,y", "z"), ("x", "y,z")), (("x\\", "y"), ("x", "\\y")), (("x\\,", "y"), ("x", ",y"))],
)
def test_different_keys_have_different_texts(one, other):
    columns = {"a": [one[0], other[0]], "b": [one[1], other[1]]}
    commands = pa.table({**columns, "_time": [0, 0], "_order0": [1, 2]})
    first, second = errors(commands, TWO).column("key").to_pylist()
    assert first != second


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.binary(), b"\xff\x00", "ff00"),
        (pa.decimal128(5, 2), decimal.Decimal("1.50"), "1.50"),
        (pa.date32(), dt.date(2026, 1, 2), "2026-01-02"),
        (pa.bool_(), True, "true"),
        (pa.duration("us"), dt.timedelta(microseconds=7), "7"),
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
            "2026-01-02 00:00:00.000000",
        ),
    ],
)
def test_a_key_of_any_type_has_one_text(kind, value, text):
    schema = Schema.create(pa.schema([("k", kind)]), ["k"])
    commands = pa.table({"k": pa.array([value], kind), "_time": [0], "_order0": [1]})
    assert errors(commands, schema).column("key").to_pylist() == [text]
