"""What the values of a part lie between, by field id, and its compact form. Pure.

Statistics only ever rule parts out, so each is a bound, not a fact. For every value x of a
column that is not null and not NaN:

    low <= x <= high        where a bound that is missing bounds nothing

Long strings are cut to `BOUND_BYTES`: `low` by leaving bytes off, `high` by rounding up what is
left, so `low == high` still means that both are exact. NaN lies outside the bounds and has a
flag of its own. Nested columns have no statistics. What a newer version wrote, or what can't be
decoded, is as good as no statistics: the part is read.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

VERSION = 1
BOUND_BYTES = 32

Bound: TypeAlias = bool | int | float | bytes | None
"""A value as it is stored: temporal ones count their unit, text and decimals are UTF-8."""

_CODE_POINT_MAX = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class Range(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of one column of one part."""

    kind: str
    """How the bounds are written: a letter, and for temporal types their unit."""
    low: Bound = None
    high: Bound = None
    nulls: int | None = None
    has_nan: bool = False


@dataclass(frozen=True, slots=True)
class Stats:
    """What is known of the columns of one part; an unlisted column may hold anything."""

    rows: int
    ranges: dict[int, Range]


class _Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: int
    rows: int
    ranges: dict[int, Range]


class _Version(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)
_version_decoder = msgspec.msgpack.Decoder(_Version)


def measure(columns: Iterable[tuple[int, pa.ChunkedArray | pa.Array]], rows: int) -> Stats:
    """The statistics of columns that are given with their field ids."""
    found = ((field_id, _range(column)) for field_id, column in columns)
    return Stats(rows, {field_id: known for field_id, known in found if known is not None})


def encode_stats(stats: Stats) -> bytes:
    return _encoder.encode(_Wire(VERSION, stats.rows, stats.ranges)) if stats.ranges else b""


def decode_stats(encoded: bytes) -> Stats | None:
    """What `encode_stats` wrote, or `None` if that can't be told: then the part is read."""
    if not encoded:
        return None
    try:
        if _version_decoder.decode(encoded).version != VERSION:
            return None
        wire = _decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return Stats(wire.rows, wire.ranges)


def kind_of(column_type: pa.DataType) -> str | None:
    """How bounds of this type are written; `None` if it has none."""
    for test, letter in _LETTERS:
        if test(column_type):
            return letter
    if pa.types.is_date32(column_type):
        return "d:D"
    for test, letter in _FAMILIES:
        if test(column_type):
            return f"{letter}:{column_type.unit}"
    return None


def bounds_array(bounds: Sequence[Bound], kind: str, target: pa.DataType) -> pa.Array:
    """Stored bounds of one kind as an Arrow column of the type that the column has today.

    What can't be expressed in it becomes null, which bounds nothing.
    """
    try:
        return _bounds_array(bounds, kind, target)
    except _INEXPRESSIBLE:
        if len(bounds) <= 1:
            return pa.nulls(len(bounds), target)
        singles = [bounds_array([bound], kind, target) for bound in bounds]
        return pa.concat_arrays(singles)


def stored_bounds(column: pa.Array | pa.ChunkedArray) -> list[Bound]:
    """The reverse of `bounds_array`, for statistics that move from one object to another."""
    return [_stored(value) for value in column]


def rules_out(said: Range, found: Range) -> bool:
    """Whether bounds exclude a value of a column that was measured; of other types, never."""
    if said.kind != found.kind:
        return False
    if found.has_nan and not said.has_nan:
        return True
    if said.nulls is not None and said.nulls != found.nulls:
        return True
    low, high = _comparable(said, said.low), _comparable(said, said.high)
    least, most = _comparable(found, found.low), _comparable(found, found.high)
    # Both were cut alike, so what was measured has no upper bound only if none can be written.
    unbounded = least is not None and most is None and high is not None
    return unbounded or _greater(low, least) or _greater(most, high)


def _comparable(of: Range, bound: Bound) -> Bound | decimal.Decimal:
    return decimal.Decimal(bound.decode()) if of.kind == "n" and isinstance(bound, bytes) else bound


def _greater(one: Bound | decimal.Decimal, other: Bound | decimal.Decimal) -> bool:
    if one is None or other is None:
        return False
    return bool(one > other)  # type: ignore[operator]


def _range(column: pa.ChunkedArray | pa.Array) -> Range | None:
    kind = kind_of(column.type)
    if kind is None:
        return None
    nulls = column.null_count
    if nulls == len(column):
        return Range(kind, nulls=nulls)
    # Arrow finds no extremes of these two types, but those of a type that holds the same values.
    stand_in = {pa.lib.Type_DURATION: pa.int64(), pa.lib.Type_HALF_FLOAT: pa.float32()}
    other = stand_in.get(column.type.id)
    extremes = pc.min_max(column if other is None else column.cast(other))
    low, high = _stored(extremes["min"]), _stored(extremes["max"])
    match low, high:
        case (bytes(), bytes()) if kind == "s":
            return Range(kind, _shortened(low), _rounded_up(high), nulls)
        case (bytes(), bytes()) if kind == "y":
            return Range(kind, low[:BOUND_BYTES], _bytes_rounded_up(high), nulls)
        case (float(), float()):
            has_nan = bool(pc.any(pc.is_nan(column)).as_py())
            if math.isnan(low) or math.isnan(high):  # All are NaN: nothing to bound.
                low = high = None
            return Range(kind, low, high, nulls, has_nan)
        case _:
            return Range(kind, low, high, nulls)


def _stored(value: pa.Scalar) -> Bound:
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_decimal(kind) or _is_text(kind):
        return str(value.as_py()).encode()
    if pa.types.is_temporal(kind):
        number: int = value.value
        return number
    plain: Bound = value.as_py()
    return plain


def _bounds_array(bounds: Sequence[Bound], kind: str, target: pa.DataType) -> pa.Array:
    if kind == "n":
        numbers = [
            decimal.Decimal(bound.decode()) if isinstance(bound, bytes) else None
            for bound in bounds
        ]
        return pa.array(numbers, target)
    family, _, unit = kind.partition(":")
    if not unit:
        return pa.array(bounds, target)
    if kind_of(target) == kind:
        return pa.array(bounds, pa.int64()).cast(_counter(target)).cast(target)
    written = _WRITTEN[family](unit)
    moved = pa.array(bounds, pa.int64()).cast(_counter(written)).cast(written)
    if pa.types.is_timestamp(target):
        # Through the plain number: the instant stays, whatever zone the column shows it in.
        return moved.cast(pa.timestamp(target.unit)).cast(pa.int64()).cast(target)
    return moved.cast(target)


def _counter(temporal: pa.DataType) -> pa.DataType:
    return pa.int32() if temporal.bit_width == 32 else pa.int64()


def _shortened(text: bytes) -> bytes:
    """A prefix that fits, in whole characters; a prefix is never greater than the whole."""
    if len(text) <= BOUND_BYTES:
        return text
    return text[:BOUND_BYTES].decode(errors="ignore").encode()


def _rounded_up(text: bytes) -> bytes | None:
    """A short text that is not smaller, or `None` if there is none.

    UTF-8 sorts as the code points do, so the last character that can be raised is.
    """
    if len(text) <= BOUND_BYTES:
        return text
    short = _shortened(text).decode()
    for end in range(len(short), 0, -1):
        following = ord(short[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _CODE_POINT_MAX:
            return (short[: end - 1] + chr(following)).encode()
    return None


def _bytes_rounded_up(raw: bytes) -> bytes | None:
    if len(raw) <= BOUND_BYTES:
        return raw
    short = raw[:BOUND_BYTES].rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None


def _is_text(column_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(column_type) or pa.types.is_large_string(column_type))


def _is_bytes(column_type: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(column_type) for test in tests)


_LETTERS = (
    (pa.types.is_boolean, "b"),
    (pa.types.is_integer, "i"),
    (pa.types.is_floating, "f"),
    (pa.types.is_decimal, "n"),
    (_is_text, "s"),
    (_is_bytes, "y"),
)
_FAMILIES = (
    (pa.types.is_timestamp, "t"),
    (pa.types.is_time, "o"),
    (pa.types.is_duration, "u"),
)
_WRITTEN = {
    "d": lambda _unit: pa.date32(),
    "t": pa.timestamp,
    "o": lambda unit: pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit),
    "u": pa.duration,
}
_INEXPRESSIBLE = (
    pa.ArrowException,
    decimal.DecimalException,
    TypeError,
    ValueError,
    OverflowError,
    KeyError,
)
