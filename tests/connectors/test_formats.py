"""Bytes become messages, or are refused with a reason."""

import io
import json

import fastavro
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors.formats import csv_cells, parser, reason_of
from strandline.connectors.reading import reading
from strandline.errors import UsageError

AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]})
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


class Message(msgspec.Struct):
    a: int | None = None
    b: str | None = None


def parsed(value, names=(), **options):
    return parser(reading(SCHEMA, (), options), Message, names)(value)


def avro(record):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, json.loads(AVRO), record)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("value", "options", "names"),
    [
        (b'{"a": 5, "b": "x", "c": []}', {}, ()),
        (b"5,x", {"format": "csv"}, ()),
        (b"x,5,z", {"format": "csv"}, ("b", "a", "c")),
        (b"x;5", {"format": "csv", "csv.columns": "b, a", "csv.delimiter": ";"}, ()),
        (b'"5","x"', {"format": "csv"}, ()),
    ],
)
def test_a_message_is_read_from_each_format(value, options, names):
    assert parsed(value, names, **options) == Message(5, "x")


def test_avro_values_may_be_framed():
    bare, framed = avro({"a": 5}), b"\0\0\0\0\7" + avro({"a": 5})
    options = {"format": "avro", "avro.schema": AVRO}
    assert parsed(bare, **options) == Message(5)
    assert parsed(framed, **options, **{"avro.framing": "confluent"}) == Message(5)
    for wrong in (bare + b"x", b"", framed):
        with pytest.raises(ValueError, match="Avro"):
            parsed(wrong, **options)


@pytest.mark.parametrize("schema", ["", "{", '{"type": "nothing"}', "5", '"x.y"'])
def test_an_avro_schema_that_is_none_is_refused(schema):
    with pytest.raises(UsageError, match=r"avro\.schema"):
        parser(reading(SCHEMA, (), {"format": "avro", "avro.schema": schema}), Message)


def test_parquet_has_no_single_values():
    with pytest.raises(UsageError, match="parquet"):
        parser(reading(SCHEMA, (), {"format": "parquet"}), Message)


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("", [None]), (",", [None, None]), ("a", ["a"]), ("a,", ["a", None]), ('""', [""]),
        ('"a,b",c', ["a,b", "c"]), ('"a""b"', ['a"b']), ('a,"",', ["a", "", None]),
        ('"x\ny"', ["x\ny"]), (' "a"', None), ('"a', None), ('"a"b', None), ('a"b', None),
    ],
)  # fmt: skip
def test_cells_are_told_apart(text, cells):
    if cells is None:
        with pytest.raises(ValueError, match="quote"):
            csv_cells(text, ",")
    else:
        assert csv_cells(text, ",") == cells


@settings(deadline=None, max_examples=50)
@given(st.lists(st.none() | st.text(), min_size=1, max_size=5))
def test_every_cell_survives_quoting(cells):
    quoted = ["" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in cells]
    assert csv_cells(",".join(quoted), ",") == cells


def test_a_reason_is_one_line_that_can_be_shown():
    assert reason_of(ValueError("a\nb\x1b[31m" + "x" * 999)).startswith("a\\nb\\x1b[31m")
    assert len(reason_of(ValueError("x" * 999))) <= 300
    assert reason_of(EOFError()) == "EOFError"
