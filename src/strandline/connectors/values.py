"""From plain Python values to Arrow columns, exactly or not at all.

`python_type` says what msgspec is to make of a JSON value or of a CSV cell for a column of an
Arrow type, `column` makes the column of what it made:

    Arrow type         in JSON
    -----------------  ----------------------------------------------------------------------
    whole numbers      a number within the type's range
    floats             a number, or "NaN", "Infinity", "-Infinity"
    decimals           a number or a string of digits, taken digit by digit; with
                       `decimals='base64'` the unscaled value's bytes (Debezium's "precise"); with
                       `variable` an object of its `scale`, and those bytes as `value`
    text, bytes        a string; base64
    dates, times       ISO 8601, or a number: `dates` since 1970; `unit`s since midnight
    timestamps         ISO 8601, or `unit`s since 1970. Without an offset it is UTC; an offset is
                       refused for a column that has no zone
    durations          ISO 8601, or a number of `unit`s
    list, struct, map  array, object, object

What would have to be rounded, cut or wrapped is refused, and so are dates and timestamps outside of
the years 1 to 9999: neither Spark nor Python has them, and a number that means one has another
`unit`. Nulls are allowed anywhere: which
columns may hold none is asked later.
"""

from __future__ import annotations

import datetime as dt
import decimal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DAYS = "d"
UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

REFUSALS = (ValueError, ArithmeticError, RecursionError)
"""What decoding and `column` raise for values that do not fit."""

_FIRST_DAY, _AFTER_DAYS = -719_162, 2_932_897
"""0001-01-01 and 10000-01-01, in days since 1970."""
_DAY_S = 86_400
_SCALE_MAX = 100
BEYOND_YEARS = "it lies outside of the years 1 to 9999; see option numberUnit"
_NOT_NUMBERS = Literal["NaN", "Infinity", "-Infinity"]
_ZONED = r":\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)$"
_END_ZEROS = (
    (r"\.0+(Z|[+-][\d:]+)?$", r"\1"),
    (r"(\.\d*[1-9])0+(Z|[+-][\d:]+)?$", r"\1\2"),
)


@dataclass(frozen=True, slots=True)
class Notation:
    """How a source writes what JSON has no values for."""

    unit: str = "ms"
    """Of numbers that are timestamps, times or durations."""
    decimals: str = "text"
    """Or `base64`, or `variable`."""
    dates: str = DAYS
    """The unit of numbers that are dates."""
    scale: int | None = None
    """Of decimals that are bytes; that of their column if nobody says."""
    parts: tuple[tuple[str, Notation], ...] = ()
    """Of the fields of a struct, by name, and of the items of lists and maps, by no name."""

    def of(self, part: str = "") -> Notation:
        """How what is in such a value is written."""
        return next((each for name, each in self.parts if name == part), self)


class _Variable(msgspec.Struct, frozen=True, gc=False):
    """A decimal that says its scale itself."""

    scale: int
    value: bytes


_DECIMALS: dict[str, Any] = {"base64": bytes, "variable": _Variable}


def python_type(kind: pa.DataType, notation: Notation) -> Any:  # noqa: ANN401 - a type expression
    """What msgspec decodes for a column of this type; always a union with `None`."""
    return _plain_type(kind, notation) | None


def _plain_type(kind: pa.DataType, notation: Notation) -> Any:  # noqa: ANN401, PLR0911 - one line a type
    if is_.is_boolean(kind):
        return bool
    if is_.is_integer(kind):
        return int
    if is_.is_floating(kind):
        return float | _NOT_NUMBERS
    if is_.is_decimal(kind):
        return _DECIMALS.get(notation.decimals, decimal.Decimal)
    if is_.is_timestamp(kind) or is_.is_date(kind) or is_.is_time(kind):
        return int | str
    if is_.is_duration(kind):
        return int | dt.timedelta
    if is_.is_nested(kind):
        return _nested_type(kind, notation)
    return str if is_text(kind) else bytes


def _nested_type(kind: pa.DataType, notation: Notation) -> Any:  # noqa: ANN401 - a type expression
    if is_.is_struct(kind):
        fields = {each.name: python_type(each.type, notation.of(each.name)) for each in kind}
        return TypedDict("Fields", fields, total=False)  # type: ignore[operator]
    if is_.is_map(kind):
        if is_.is_nested(kind.key_type) or is_.is_floating(kind.key_type):
            raise SchemaError(f"{kind} can't be read: the keys of JSON objects are strings")
        item = python_type(kind.item_type, notation.of())
        return dict[_plain_type(kind.key_type, notation), item]  # type: ignore[misc]
    return list[python_type(kind.value_type, notation.of())]  # type: ignore[misc]


def column(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    """The column of these values; one of `REFUSALS` if a value does not fit."""
    for fits, made in _MAKERS:
        if fits(kind):
            return made(values, kind, notation)
    return pa.array(values, kind)


def is_text(kind: pa.DataType) -> bool:
    return bool(is_.is_string(kind) or is_.is_large_string(kind))


def _floats(values: Sequence[Any], kind: pa.DataType, _: Notation) -> pa.Array:
    try:
        wide = pa.array(values, pa.float64())
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        wide = pa.array([None if each is None else float(each) for each in values], pa.float64())
    if kind == wide.type:
        return wide
    made = wide.cast(kind)
    if pc.any(pc.and_(pc.is_inf(made.cast(wide.type)), pc.is_finite(wide))).as_py():
        raise ValueError(f"a number is too large for {kind}")
    return made


def _decimals(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    """Arrow is never shown an exponent that does not fit: it ends the process with some."""
    exact = decimal.Context(
        prec=kind.precision, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow]
    )
    if notation.decimals != "text":
        scale = kind.scale if notation.scale is None else notation.scale
        values = [None if each is None else _unscaled(each, scale) for each in values]
    unit = decimal.Decimal((0, (1,), -kind.scale))
    try:
        fitting = [None if each is None else each.quantize(unit, context=exact) for each in values]
    except ArithmeticError as error:
        raise ValueError(f"a number does not fit {kind} exactly") from error
    return pa.array(fitting, kind)


def _unscaled(value: bytes | _Variable, scale: int) -> decimal.Decimal:
    if isinstance(value, _Variable):
        scale, value = value.scale, value.value
    if abs(scale) > _SCALE_MAX:
        raise ValueError(f"a scale of {scale} is too large for a decimal")
    if len(value) > 32:
        raise ValueError(f"{len(value)} bytes are too many for a decimal")
    digits = int.from_bytes(value, "big", signed=True)
    sign = 1 if digits < 0 else 0
    return decimal.Decimal((sign, tuple(int(each) for each in str(abs(digits))), -scale))


def _temporal(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    """Text is read by Arrow, many times faster than value by value."""
    if not any(type(each) is int for each in values):
        return _in_years(_from_text(pa.array(values, pa.string()), kind))
    numbers = pa.array([each if type(each) is int else None for each in values], pa.int64())
    texts = pa.array([None if type(each) is int else each for each in values], pa.string())
    made = pc.coalesce(_from_numbers(numbers, kind, notation), _from_text(texts, kind))
    return _in_years(made)


def _in_years(made: pa.Array) -> pa.Array:
    if pc.any(_beyond_years(made)).as_py():
        raise ValueError(BEYOND_YEARS)
    return made


def _beyond_years(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Which dates and timestamps lie outside of the years that there are; none of other types."""
    kind = column.type
    if is_.is_date32(kind):
        numbers, per = column.cast(pa.int32()), 1
    elif is_.is_timestamp(kind) and kind.unit != "ns":
        numbers, per = column.cast(pa.int64()), _DAY_S * UNITS[kind.unit]
    else:
        # Nanoseconds do not reach so far.
        return pa.repeat(False, len(column))
    early = pc.less(numbers, _FIRST_DAY * per)
    return pc.or_(early, pc.greater_equal(numbers, _AFTER_DAYS * per))


def unreadable(column: pa.Array | pa.ChunkedArray) -> dict[int, str]:
    """Values of a typed column that nobody could read again, by their place, each with the reason.

    Arrow holds them, and whoever wrote a file or a table may never have looked.
    """
    beyond = np.flatnonzero(
        pc.fill_null(_beyond_years(column), False).to_numpy(zero_copy_only=False)
    )
    found = dict.fromkeys(beyond.tolist(), BEYOND_YEARS)
    if not (is_text(column.type) or is_.is_nested(column.type)) or _is_valid(column):
        return found
    # Taken: a slice of a struct has all of its children still.
    wrong = [at for at in range(len(column)) if not _is_valid(column.take(pa.array([at])))]
    return {**found, **dict.fromkeys(wrong, "its text is no UTF-8")}


def _is_valid(column: pa.Array | pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return _moments(texts, kind)
    except pa.ArrowInvalid:
        # Arrow counts the digits of a fraction; zeros at its end say nothing.
        for pattern, left in _END_ZEROS:
            texts = pc.replace_substring_regex(texts, pattern, left)
        return _moments(texts, kind)


def _moments(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if is_.is_time(kind):
        # Arrow reads no times of the day, but it reads those of a day.
        moments = pc.binary_join_element_wise("1970-01-01T", texts, "")
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)
    if not is_.is_timestamp(kind) or kind.tz is None:
        return texts.cast(kind)
    zoned = pc.match_substring_regex(texts, _ZONED)
    if pc.all(zoned, skip_nulls=True).as_py() is not False:
        return texts.cast(kind)
    plain = pc.if_else(zoned, None, texts).cast(pa.timestamp(kind.unit))
    return pc.coalesce(pc.if_else(zoned, texts, None).cast(kind), plain.cast(kind))


def _from_numbers(numbers: pa.Array, kind: pa.DataType, notation: Notation) -> pa.Array:
    if is_.is_date(kind):
        days = _days(numbers, notation.dates)
        return days.cast(pa.int32()).cast(pa.date32()).cast(kind)
    unit = notation.unit
    if unit == DAYS:
        numbers, unit = pc.multiply_checked(numbers, _DAY_S), "s"
    have, want = UNITS[unit], UNITS[kind.unit]
    if want >= have:
        counts = pc.multiply_checked(numbers, want // have)
    else:
        counts = pc.divide(numbers, have // want)
        if not pc.multiply(counts, have // want).equals(numbers):
            raise ValueError(f"a number of {unit} does not fit {kind} exactly")
    if is_.is_time(kind):
        _check_day(counts, want)
        counts = counts.cast(pa.int32()) if is_.is_time32(kind) else counts
    return counts.cast(kind)


def _days(numbers: pa.Array, unit: str) -> pa.Array:
    if unit == DAYS:
        return numbers
    per = _DAY_S * UNITS[unit]
    days = pc.divide(numbers, per)
    if not pc.multiply(days, per).equals(numbers):
        raise ValueError(f"a number of {unit} is no whole day")
    return days


def _check_day(counts: pa.Array, unit: int) -> None:
    span = pc.min_max(counts).as_py()
    if span["min"] is not None and not 0 <= span["min"] <= span["max"] < 86_400 * unit:
        raise ValueError("a time of the day lies before or after it")


def _durations(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    per = UNITS[kind.unit]
    days = notation.unit == DAYS
    long, parts = (_DAY_S, 1) if days else (1, UNITS[notation.unit])

    def counted(value: Any) -> int:  # noqa: ANN401 - what msgspec made
        whole = value * long * per if type(value) is int else _microseconds(value) * per
        count, rest = divmod(whole, parts if type(value) is int else 1_000_000)
        if rest:
            raise ValueError(f"a duration does not fit {kind} exactly")
        return int(count)

    counts = [None if each is None else counted(each) for each in values]
    return pa.array(counts, pa.int64()).cast(kind)


def _microseconds(value: dt.timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds


def _structs(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    children = [
        column(
            [None if v is None else v.get(each.name) for v in values],
            each.type,
            notation.of(each.name),
        )
        for each in kind
    ]
    mask = pa.array([each is None for each in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _lists(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    if is_.is_fixed_size_list(kind):
        return _fixed_lists(values, kind, notation)
    flat = [item for each in values if each for item in each]
    items = column(flat, kind.value_type, notation.of())
    array = pa.LargeListArray if is_.is_large_list(kind) else pa.ListArray
    return array.from_arrays(_offsets(values, array), items, type=kind, mask=_mask(values))


def _fixed_lists(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    size = kind.list_size
    if any(each is not None and len(each) != size for each in values):
        raise ValueError(f"a list does not have {size} values")
    flat = [item for each in values for item in (each or [None] * size)]
    items = column(flat, kind.value_type, notation.of())
    return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=_mask(values))


def _maps(values: Sequence[Any], kind: pa.DataType, notation: Notation) -> pa.Array:
    pairs = [pair for each in values if each for pair in each.items()]
    keys = column([key for key, _ in pairs], kind.key_type, notation)
    items = column([item for _, item in pairs], kind.item_type, notation.of())
    return pa.MapArray.from_arrays(
        _offsets(values, pa.MapArray), keys, items, kind, mask=_mask(values)
    )


def _offsets(values: Sequence[Any], array: type) -> pa.Array:
    ends = np.cumsum([0, *(len(each) if each else 0 for each in values)])
    return pa.array(ends, pa.int64() if array is pa.LargeListArray else pa.int32())


def _mask(values: Sequence[Any]) -> pa.Array:
    return pa.array([each is None for each in values], pa.bool_())


def _is_moment(kind: pa.DataType) -> bool:
    return bool(is_.is_timestamp(kind) or is_.is_date(kind) or is_.is_time(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


_MAKERS: tuple[
    tuple[
        Callable[[pa.DataType], bool],
        Callable[[Sequence[Any], pa.DataType, Notation], pa.Array],
    ],
    ...,
] = (
    (is_.is_floating, _floats),
    (is_.is_decimal, _decimals),
    (_is_moment, _temporal),
    (is_.is_duration, _durations),
    (is_.is_struct, _structs),
    (is_.is_map, _maps),
    (_is_list, _lists),
)
