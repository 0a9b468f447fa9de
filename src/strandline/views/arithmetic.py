"""Numbers as Spark's ANSI mode adds, multiplies, divides and compares them.

operands                  computed in
------------------------  ---------------------------------------------------------------
whole numbers             the wider type; a result outside of it raises
a decimal and a decimal   Spark's rules of precision and scale, at most 38 digits, half up
a decimal and a whole     the whole number is a decimal of as many digits as its type needs
a double and any          double
/                         double, or decimal if one side is; by zero raises
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as is_

from strandline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

Value = Any
DIGITS_MAX = 38
_SCALE_KEPT = 6
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
WIDE = Context(prec=200, rounding=ROUND_HALF_UP)
"""More digits than any product or quotient that is rounded here needs."""


class Raised(Exception):  # noqa: N818 - Spark's error for one row, as a value of the reference
    """What Spark raises for a row, in our words: a division by zero, an overflow, a bad cast."""


def bounded(precision: int, scale: int) -> pa.DataType:
    """Spark's decimal of that many digits; beyond 38 it gives up digits behind the point."""
    if precision <= DIGITS_MAX:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(DIGITS_MAX, max(DIGITS_MAX - whole, min(scale, _SCALE_KEPT)))


def as_decimal(kind: pa.DataType, literal: Value = None) -> pa.DataType:
    """The decimal that holds every value of a numeric type; for a literal, just that one."""
    if is_.is_decimal(kind):
        return kind
    if isinstance(literal, int):
        return pa.decimal128(len(str(abs(literal))), 0)
    return pa.decimal128(_DIGITS[kind], 0)


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that CASE, COALESCE, IN and UNION ALL give values of two types.

    >>> wider(pa.int32(), pa.decimal128(4, 2))
    Decimal128Type(decimal128(12, 2))
    """
    if one == other or is_.is_null(other):
        return one
    if is_.is_null(one):
        return other
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    if pa.float64() in (one, other) and numeric(one) and numeric(other):
        return pa.float64()
    if numeric(one) and numeric(other):
        left, right = as_decimal(one), as_decimal(other)
        scale = max(left.scale, right.scale)
        digits = max(left.precision - left.scale, right.precision - right.scale) + scale
        if digits <= DIGITS_MAX:
            return pa.decimal128(digits, scale)
    raise UsageError(f"the reference has no common type for {one} and {other}: cast one")


def numeric(kind: pa.DataType) -> bool:
    """Whether the reference computes with a type."""
    return kind in _WHOLE or kind == pa.float64() or bool(is_.is_decimal128(kind))


def converted(value: Value, want: pa.DataType) -> Value:
    """A value in a wider type."""
    if value is None:
        return None
    if want == pa.float64():
        return float(value)
    if is_.is_decimal(want):
        return fitted(Decimal(value), want)
    return value


def fitted(value: Decimal, want: pa.DataType) -> Decimal:
    """A decimal rounded half up to a type's scale; raises if it has too many digits."""
    digits = want.precision - want.scale
    if value and value.adjusted() >= digits:
        # Of far too many digits not even the rounding can be computed.
        raise Raised(f"{value} does not fit {want}")
    with localcontext(WIDE):
        rounded = value.quantize(Decimal(1).scaleb(-want.scale))
        if abs(rounded) >= Decimal(10) ** digits:
            raise Raised(f"{value} does not fit {want}")
    return rounded


def in_range(value: int, want: pa.DataType) -> int:
    """A whole number, or `Raised` if a type does not hold it."""
    limit = 1 << (want.bit_width - 1)
    if not -limit <= value < limit:
        raise Raised(f"{value} overflows {want}")
    return value


def binary(
    op: str, one: pa.DataType, other: pa.DataType, literals: tuple[Value, Value] = (None, None)
) -> tuple[pa.DataType, Callable[[Value, Value], Value]]:
    """The type of `one op other`, and what computes it from two values that are not null."""
    if not (numeric(one) and numeric(other)):
        raise UsageError(f"the reference can't compute {one} {op} {other}: cast them to numbers")
    if pa.float64() in (one, other) or (op == "/" and one in _WHOLE and other in _WHOLE):
        return pa.float64(), lambda a, b: _float(op, float(a), float(b))
    if one in _WHOLE and other in _WHOLE:
        kind = max(one, other, key=_WHOLE.index)
        return kind, lambda a, b: in_range(_whole(op, a, b), kind)
    left, right = as_decimal(one, literals[0]), as_decimal(other, literals[1])
    kind = _decimal_type(op, left, right)
    return kind, lambda a, b: fitted(_decimal(op, Decimal(a), Decimal(b)), kind)


def _decimal_type(op: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    whole = (one.precision - one.scale, other.precision - other.scale)
    scale = max(one.scale, other.scale)
    if op in {"+", "-"}:
        return bounded(max(whole) + scale + 1, scale)
    if op == "*":
        return bounded(one.precision + other.precision + 1, one.scale + other.scale)
    if op == "/":
        scale = max(_SCALE_KEPT, one.scale + other.precision + 1)
        return bounded(whole[0] + other.scale + scale, scale)
    return bounded(min(whole) + scale, scale)


def _decimal(op: str, a: Decimal, b: Decimal) -> Decimal:
    if op in {"/", "%"} and b == 0:
        raise Raised("division by zero")
    with localcontext(WIDE):
        match op:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
            case "/":
                # Spark rounds a quotient to 38 digits behind the point first.
                return (a / b).quantize(Decimal(1).scaleb(-DIGITS_MAX))
            case _:
                return a % b


def _whole(op: str, a: int, b: int) -> int:
    if op in {"div", "%"} and b == 0:
        raise Raised("division by zero")
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "div":
            return _truncated(a, b)
        case _:
            return a - b * _truncated(a, b)


def _truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _float(op: str, a: float, b: float) -> float:
    if op in {"/", "%"} and b == 0:
        raise Raised("division by zero")
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a / b
        case _:
            return math.fmod(a, b) if math.isfinite(a) else math.nan


def sort_key(value: Value) -> Value:
    """A value so that equal keys mean equal to Spark: NaN is one value and the greatest.

    >>> sort_key(float("nan")) > sort_key(float("inf")), sort_key(-0.0) == sort_key(0.0)
    (True, True)
    """
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value


def compared(one: Value, other: Value) -> int:
    """-1, 0 or 1 as Spark orders two values of one type."""
    left, right = sort_key(one), sort_key(other)
    return int(left > right) - int(left < right)
