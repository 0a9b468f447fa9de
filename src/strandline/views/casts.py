"""Values as Spark's ANSI mode casts them; what does not fit raises instead of being cut off."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as is_

from strandline.errors import UsageError
from strandline.views.arithmetic import Raised, Value, fitted, in_range, numeric

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE_TEXT = re.compile(r"[+-]?[0-9]+")
_NUMBER_TEXT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_TRUE, _FALSE = frozenset({"t", "true", "y", "yes", "1"}), frozenset({"f", "false", "n", "no", "0"})
_STAMP = pa.timestamp("us", "UTC")


def cast(have: pa.DataType, want: pa.DataType) -> Callable[[Value], Value]:
    """What casts a value that is not null from one type to the other."""
    if have == want or is_.is_null(have):
        return lambda value: value
    if numeric(have) or have == pa.bool_():
        return _from_number(have, want)
    if have == pa.string():
        return _from_text(want)
    if want == pa.string():
        return _to_text(have)
    raise UsageError(f"the reference can't cast {have} to {want}")


def _from_number(have: pa.DataType, want: pa.DataType) -> Callable[[Value], Value]:
    if is_.is_integer(want):
        return lambda value: in_range(_whole(value), want)
    if is_.is_decimal128(want):
        # Spark makes null of what is no number, in ANSI mode too, and raises for what is too large.
        return lambda value: fitted(_decimal(value), want) if math.isfinite(value) else None
    if want == pa.float64():
        return float
    if want == pa.bool_():
        return bool
    if want == pa.string():
        return _to_text(have)
    raise UsageError(f"the reference can't cast {have} to {want}")


def _whole(value: Value) -> int:
    if isinstance(value, float) and not math.isfinite(value):
        raise Raised(f"{value} is no whole number")
    return int(value)


def _decimal(value: Value) -> Decimal:
    if isinstance(value, float):
        return Decimal(repr(value))
    return Decimal(int(value)) if isinstance(value, bool) else Decimal(value)


def _to_text(have: pa.DataType) -> Callable[[Value], str]:
    if have == pa.bool_():
        return lambda value: "true" if value else "false"
    if is_.is_integer(have):
        return str
    if is_.is_decimal(have):
        return lambda value: f"{value:f}"
    if is_.is_date(have):
        return lambda value: str(value.isoformat())
    raise UsageError(f"the reference can't cast {have} to a string")


def _from_text(want: pa.DataType) -> Callable[[str], Value]:
    if is_.is_integer(want):
        return lambda text: in_range(_read_whole(text), want)
    if is_.is_decimal128(want):
        return lambda text: fitted(_read_decimal(text), want)
    if want == pa.bool_():
        return _read_bool
    if want == pa.date32():
        return _read_date
    if want == _STAMP:
        return _read_stamp
    raise UsageError(f"the reference can't cast a string to {want}")


def _read_whole(text: str) -> int:
    found = _WHOLE_TEXT.fullmatch(text.strip())
    if found is None or len(text) > 100:
        raise Raised(f"{text!r} is no whole number")
    return int(text)


def _read_decimal(text: str) -> Decimal:
    if _NUMBER_TEXT.fullmatch(text.strip()) is None or len(text) > 100:
        raise Raised(f"{text!r} is no number")
    try:
        return Decimal(text.strip())
    except InvalidOperation as error:
        raise Raised(f"{text!r} is no number") from error


def _read_bool(text: str) -> bool:
    word = text.strip().casefold()
    if word not in _TRUE | _FALSE:
        raise Raised(f"{text!r} is no boolean")
    return word in _TRUE


def _read_date(text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError as error:
        raise Raised(f"{text!r} is no date") from error


def _read_stamp(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise Raised(f"{text!r} is no timestamp") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
