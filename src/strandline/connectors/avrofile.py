"""Avro files as Arrow: the columns that their schema declares.

Avro                              Arrow
--------------------------------  ----------------------------------------------
boolean int long float double     bool int32 int64 float double
string, enum, uuid                string
bytes, fixed                      binary
date, time-*, timestamp-*         date32, time, timestamp (local-*: without a zone)
decimal                           decimal128, or decimal256
array, map, record                list, map of strings, struct
union with null                   the other; of more than one other: refused
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from strandline.connectors.avroblocks import Unpacked
from strandline.connectors.formats import avro_refusals, load_avro, reason_of
from strandline.connectors.values import Notation, column, python_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def avro_batches(
    stream: BinaryIO, rows: int, *, batch_bytes: int, block_max: int
) -> Iterator[pa.RecordBatch]:
    """The records of a file in batches of so many rows, or of about so many bytes; `ValueError` if
    it is no Avro file, or a block of it unpacks to more than `block_max`."""
    avro = load_avro()
    unpacked = Unpacked(stream, block_max)
    try:
        reader = avro.reader(io.BufferedReader(unpacked))
        schema = arrow_schema(reader.writer_schema)
        notation = Notation()
        kinds = {each.name: python_type(each.type, notation) for each in schema}
        while some := _some(reader, unpacked, rows, batch_bytes):
            arrays = [
                column(_converted(some, each.name, kinds[each.name]), each.type, notation)
                for each in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except avro_refusals() as error:
        raise ValueError(reason_of(error)) from error


def _some(
    reader: Iterator[dict[str, Any]], unpacked: Unpacked, rows: int, batch_bytes: int
) -> list[dict[str, Any]]:
    some: list[dict[str, Any]] = []
    start = unpacked.given
    while len(some) < rows and unpacked.given - start < batch_bytes:
        record = next(reader, None)
        if record is None:
            break
        some.append(record)
    return some


def _converted(records: list[dict[str, Any]], name: str, kind: Any) -> Any:  # noqa: ANN401 - a column
    """Avro's own values (dates, decimals) as text, then as what a column is made of."""
    values = msgspec.to_builtins([each[name] for each in records])
    return msgspec.convert(values, list[kind])


def arrow_schema(avro: Any) -> pa.Schema:  # noqa: ANN401 - a schema as JSON has it
    """The columns of records of an Avro schema."""
    if not isinstance(avro, dict) or avro.get("type") != "record":
        raise ValueError("an Avro file must hold records")
    return pa.schema(_fields(avro, {}))


def _fields(record: Mapping[str, Any], named: dict[str, Any]) -> list[pa.Field]:
    # What takes no bytes may come any number of times in a file of a few.
    if not record["fields"]:
        raise ValueError("a record without fields has no columns")
    return [pa.field(each["name"], _arrow(each["type"], named)) for each in record["fields"]]


def _arrow(kind: Any, named: dict[str, Any]) -> pa.DataType:  # noqa: ANN401 - a schema as JSON has it
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types has no column type")
        return _arrow(others[0], named)
    if isinstance(kind, str):
        return _PLAIN[kind] if kind in _PLAIN else named[kind]
    made = _declared(kind, named)
    if "name" in kind:
        named[kind["name"]] = made
    return made


def _declared(kind: Mapping[str, Any], named: dict[str, Any]) -> pa.DataType:
    logical, plain = kind.get("logicalType"), kind["type"]
    if logical == "decimal":
        precision, scale = kind["precision"], kind.get("scale", 0)
        wide = pa.decimal256 if precision > 38 else pa.decimal128
        return wide(precision, scale)
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if plain == "record":
        return pa.struct(_fields(kind, named))
    if plain == "fixed" and kind["size"] < 1:
        raise ValueError("a fixed value of no bytes is nothing")
    if plain == "array":
        return pa.list_(_arrow(kind["items"], named))
    if plain == "map":
        return pa.map_(pa.string(), _arrow(kind["values"], named))
    return _arrow(plain, named)
