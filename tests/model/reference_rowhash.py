"""The row hash, written out value by value as docs/rowhash.md says it: slow and plain.

It shares no code and no constant with the product, and takes Python values and Arrow types.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from math import isnan, isqrt

import pyarrow as pa
import pyarrow.types as t

M = 2**64


def fraction_of_root(prime: int) -> int:
    return isqrt(prime << 128) % M


PLACE, DIGEST_A, DIGEST_B, FIELD = (fraction_of_root(p) for p in (2, 3, 5, 7))
NULL_ELEMENT, WORD, ELEMENT = (fraction_of_root(p) for p in (11, 13, 17))
BOOL, INTEGER, DATE, TIME, TIMESTAMP, DURATION = (
    fraction_of_root(p) for p in (19, 23, 29, 31, 37, 41)
)
FLOAT, DECIMAL, STRING, BINARY, LIST, STRUCT = (
    fraction_of_root(p) for p in (43, 47, 53, 59, 61, 67)
)


def mix(x: int) -> int:
    x %= M
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % M
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % M
    return x ^ (x >> 31)


def words(content: bytes) -> int:
    padded = content + b"\0" * (-len(content) % 8)
    numbers = [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
    return sum(mix(word + (j + 1) * WORD) for j, word in enumerate(numbers)) % M


def value(x: object, kind: pa.DataType) -> int:
    """v(x) of a value that is not null; temporal values come as their stored integers."""
    return mix(raw(x, kind))


def raw(x: object, kind: pa.DataType) -> int:  # noqa: C901, PLR0911, PLR0912
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return raw(x, kind.value_type)
    if t.is_boolean(kind):
        return int(x) + BOOL
    if t.is_integer(kind):
        return x + INTEGER
    if t.is_date32(kind):
        return x + DATE
    if t.is_date64(kind):
        return x // 86_400_000 + DATE
    if t.is_time(kind):
        return x + TIME
    if t.is_timestamp(kind):
        return x + TIMESTAMP
    if t.is_duration(kind):
        return x + DURATION
    if t.is_floating(kind):
        return float_bits(float(x)) + FLOAT
    if t.is_decimal(kind):
        sign, digits, exponent = x.as_tuple()
        assert exponent == -kind.scale
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        return words(unscaled.to_bytes(32, "little", signed=True)) + kind.scale + DECIMAL
    if isinstance(x, str):
        return words(x.encode()) + len(x.encode()) + STRING
    if isinstance(x, bytes):
        return words(x) + len(x) + BINARY
    if t.is_struct(kind):
        fields = [(f.name, x[f.name], f.type) for f in kind if x[f.name] is not None]
        return struct_sum(fields) + STRUCT
    if t.is_map(kind):
        sides = (("key", kind.key_type), ("value", kind.item_type))
        return raw(
            [dict(zip(("key", "value"), entry, strict=True)) for entry in x],
            pa.list_(pa.struct(sides)),
        )
    elements = [NULL_ELEMENT if e is None else value(e, kind.value_type) for e in x]
    total = sum(mix(e + (j + 1) * ELEMENT) for j, e in enumerate(elements))
    return total + len(elements) + LIST


def struct_sum(fields: list[tuple[str, object, pa.DataType]]) -> int:
    return sum(mix(value(x, kind) + value(name, pa.string())) for name, x, kind in fields)


def float_bits(x: float) -> int:
    if isnan(x):
        return 0x7FF8000000000000
    return int.from_bytes(struct.pack("<d", 0.0 if x == 0 else x), "little")


def base(cells: list[tuple[int, object, pa.DataType]]) -> int:
    """The salt-free hash of one row of (field id, value, type)."""
    some = [(field, x, kind) for field, x, kind in cells if x is not None]
    return sum(mix(value(x, kind) + mix(field + FIELD)) for field, x, kind in some) % M


def row(cells: list[tuple[int, object, pa.DataType]], salt: int) -> int:
    return mix(base(cells) + salt)


def stored(array: pa.Array | pa.ChunkedArray) -> list[object]:
    """The values of an array as Python values, temporal ones as the integers they are."""
    return array.cast(stored_type(array.type)).to_pylist()


def stored_type(kind: pa.DataType) -> pa.DataType:
    if t.is_date64(kind) or t.is_time64(kind) or t.is_timestamp(kind) or t.is_duration(kind):
        return pa.int64()
    if t.is_date32(kind) or t.is_time32(kind):
        return pa.int32()
    return kind


def decimal(unscaled: int, scale: int) -> Decimal:
    sign = 1 if unscaled < 0 else 0
    return Decimal((sign, tuple(map(int, str(abs(unscaled)))), -scale))
