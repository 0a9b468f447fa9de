"""The types of Spark's SQL as Arrow types, and back; and types as plain values to be hashed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.types as is_

from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from strandline.views.tokens import Cursor

_FLAT = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_WRITTEN = {kind: name.upper() for name, kind in reversed(_FLAT.items())} | {
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
}
_INSTEAD = {
    "char": "STRING",
    "varchar": "STRING",
    "void": "the type it will have",
    "variant": "STRING with JSON in it",
    "text": "STRING",
    "numeric": "DECIMAL",
    "json": "STRING",
    "uuid": "STRING",
    "datetime": "TIMESTAMP",
}
DIGITS_MAX = 38
DEPTH_MAX = 20


def read_type(cursor: Cursor, depth: int = 0) -> pa.DataType:
    """The Arrow type of what stands at the cursor, which moves behind it."""
    if depth > DEPTH_MAX:
        raise Refused("a type is nested too deeply", "simplify it", line=cursor.line)
    line = cursor.line
    name = cursor.word("a type").casefold()
    if name in _FLAT:
        return _FLAT[name]
    if name in {"decimal", "dec"}:
        return _read_decimal(cursor)
    if name == "array":
        cursor.expect("<")
        inner = read_type(cursor, depth + 1)
        cursor.expect(">")
        return pa.list_(inner)
    if name == "map":
        cursor.expect("<")
        key = read_type(cursor, depth + 1)
        cursor.expect(",")
        value = read_type(cursor, depth + 1)
        cursor.expect(">")
        return pa.map_(key, value)
    if name == "struct":
        return _read_struct(cursor, depth + 1)
    if name == "interval":
        return _read_interval(cursor)
    instead = _INSTEAD.get(name, f"one of: {', '.join(sorted(_FLAT))}, decimal, array, map, struct")
    raise Refused(f"no type {named(name)}", f"use {instead}", line=line)


def _read_decimal(cursor: Cursor) -> pa.DataType:
    if not cursor.accept("("):
        return pa.decimal128(10, 0)
    line = cursor.line
    precision = cursor.number()
    scale = cursor.number() if cursor.accept(",") else 0
    cursor.expect(")")
    if not (1 <= precision <= DIGITS_MAX and 0 <= scale <= precision):
        raise Refused(
            f"no type DECIMAL({precision}, {scale})",
            f"use 1 to {DIGITS_MAX} digits, of which not more than all are behind the point",
            line=line,
        )
    return pa.decimal128(precision, scale)


def _read_struct(cursor: Cursor, depth: int) -> pa.DataType:
    fields: list[tuple[str, pa.DataType]] = []
    cursor.expect("<")
    while True:
        name = cursor.name("a field of the struct")
        cursor.accept(":")
        fields.append((name, read_type(cursor, depth)))
        if not cursor.accept(","):
            break
    cursor.expect(">")
    return pa.struct(fields)


def _read_interval(cursor: Cursor) -> pa.DataType:
    line = cursor.line
    unit = cursor.word("a unit of the interval").casefold()
    if unit == "day" and cursor.accept("to") and cursor.accept("second"):
        return pa.duration("us")
    raise Refused("an interval that is not DAY TO SECOND", "use INTERVAL DAY TO SECOND", line=line)


def write_type(kind: pa.DataType) -> str:
    """The type of Spark's SQL that `read_type` reads as this one.

    >>> write_type(pa.map_(pa.string(), pa.list_(pa.decimal128(12, 2))))
    'MAP<STRING, ARRAY<DECIMAL(12, 2)>>'
    """
    if kind in _WRITTEN:
        return _WRITTEN[kind]
    if is_.is_decimal128(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if is_.is_struct(kind):
        fields = (f"`{each.name.replace('`', '``')}`: {write_type(each.type)}" for each in kind)
        return f"STRUCT<{', '.join(fields)}>"
    if is_.is_map(kind):
        return f"MAP<{write_type(kind.key_type)}, {write_type(kind.item_type)}>"
    if is_.is_list(kind):
        return f"ARRAY<{write_type(kind.value_type)}>"
    raise Refused(f"Spark's SQL has no type {kind}", "use another type")


def described(kind: pa.DataType) -> object:
    """A type as plain values: equal types, and only they, have equal ones."""
    if is_.is_struct(kind):
        return ["struct", *([each.name, described(each.type)] for each in kind)]
    if is_.is_map(kind):
        return ["map", described(kind.key_type), described(kind.item_type)]
    if is_.is_fixed_size_list(kind):
        return ["list", kind.list_size, described(kind.value_type)]
    if is_.is_large_list(kind):
        return ["large list", described(kind.value_type)]
    if is_.is_list(kind):
        return ["list", described(kind.value_type)]
    return str(kind)


def digest_of(values: object) -> str:
    """32 hexadecimal digits that stand for plain values."""
    return hashlib.blake2b(msgspec.json.encode(values), digest_size=16).hexdigest()
