"""Avro files as Arrow."""

import datetime as dt
import io
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors.avrofile import arrow_schema, avro_batches

LIMITS = {"batch_bytes": 1 << 20, "block_max": 1 << 20}


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


INNER = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "long"}]}
FIELDS = [
    ("a", "boolean", pa.bool_(), True),
    ("b", "int", pa.int32(), -5),
    ("c", ["null", "long"], pa.int64(), None),
    ("d", "float", pa.float32(), 0.5),
    ("e", "double", pa.float64(), float("inf")),
    ("f", "string", pa.string(), "ü"),
    ("g", "bytes", pa.binary(), b"\xff\0"),
    ("h", {"type": "enum", "name": "e", "symbols": ["P", "Q"]}, pa.string(), "Q"),
    ("i", {"type": "fixed", "name": "f4", "size": 2}, pa.binary(), b"xy"),
    ("j", logical("int", "date"), pa.date32(), dt.date(2024, 1, 2)),
    ("k", logical("int", "time-millis"), pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    ("l", logical("long", "time-micros"), pa.time64("us"), dt.time(1, 2, 3, 4)),
    (
        "m", logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"),
        dt.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC),
    ),
    ("n", logical("bytes", "decimal", precision=9, scale=2), pa.decimal128(9, 2), Decimal("-1.50")),
    ("o", {"type": "array", "items": ["null", "long"]}, pa.list_(pa.int64()), [1, None]),
    ("p", {"type": "map", "values": "string"}, pa.map_(pa.string(), pa.string()), [("k", "v")]),
    ("q", INNER, pa.struct([("x", pa.int64())]), {"x": 1}),
    ("r", ["null", "inner"], pa.struct([("x", pa.int64())]), {"x": 2}),
]  # fmt: skip
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [{"name": name, "type": kind} for name, kind, _, _ in FIELDS],
}


def test_each_type_has_its_column():
    record = {name: dict(v) if name == "p" else v for name, _, _, v in FIELDS}
    stream = io.BytesIO()
    fastavro.writer(stream, SCHEMA, [record] * 5)
    batches = list(avro_batches(io.BytesIO(stream.getvalue()), 2, **LIMITS))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert batches[0].schema == pa.schema([(name, kind) for name, _, kind, _ in FIELDS])
    assert batches[2].to_pylist() == [{name: value for name, _, _, value in FIELDS}]


@pytest.mark.parametrize(
    "schema",
    [
        "string", {"type": "array", "items": "long"},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["long", "string"]}]},
        {"type": "record", "name": "r", "fields": []},
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array",
            "items": {"type": "fixed", "name": "nothing", "size": 0}}}]},
    ],
)  # fmt: skip
def test_what_has_no_columns_is_refused(schema):
    with pytest.raises(ValueError, match=r"record|union|fixed"):
        arrow_schema(schema)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60), st.integers(0, 600))
def test_mangled_files_are_refused_and_nothing_else(noise, at):
    stream = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": SCHEMA["fields"][:6]}
    record = {name: value for name, _, _, value in FIELDS[:6]}
    fastavro.writer(stream, schema, [record] * 3, sync_marker=b"0123456789abcdef")
    content = stream.getvalue()
    mangled = content[: at % len(content)] + noise + content[at % len(content) + len(noise) :]
    try:
        list(avro_batches(io.BytesIO(mangled), 10, **LIMITS))
    except ValueError:
        return
