"""Which rows a reader wants: conditions on columns, as a value. Pure.

A filter is a list of conditions that must all hold, or a list of such lists of which one must:

    [("country", "=", "NO"), ("amount", ">", 10)]
    [[("country", "=", "NO")], [("country", "=", "SE"), ("name", "is null", None)]]

Operators: `=` (or `==`), `!=`, `<`, `<=`, `>`, `>=`, `in`, `not in`, `is null`, `is not null`.
Values compare as in Spark SQL: a null matches nothing but `is null`; NaN equals NaN and is
greater than every other number; -0.0 equals 0.0; text compares by code points.

What a condition means is written once (`Condition.holds`), for rows and for statistics alike.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import SchemaError
from strandline.model.ids import printable
from strandline.parts.prune import Known, stats_table
from strandline.parts.stats import decode_stats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.model.schema import Schema
    from strandline.model.valuehash import Mask

FilterSpec: TypeAlias = "Sequence[tuple[str, str, object] | Sequence[tuple[str, str, object]]]"

_COMPARISONS = {"=": "=", "==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MEMBERSHIPS = {"in": "in", "not in": "not in"}
_NULL_TESTS = {"is null": "is null", "is not null": "is not null", "not null": "is not null"}


class _Column(Protocol):
    """What a condition asks of a column: exact for rows, "may be" for statistics."""

    def nothing(self) -> Mask: ...
    def is_null(self) -> Mask: ...
    def is_not_null(self) -> Mask: ...
    def is_nan(self) -> Mask: ...
    def is_number(self) -> Mask: ...
    def equal(self, value: pa.Scalar) -> Mask: ...
    def unequal(self, value: pa.Scalar) -> Mask: ...
    def below(self, value: pa.Scalar) -> Mask: ...
    def at_most(self, value: pa.Scalar) -> Mask: ...
    def above(self, value: pa.Scalar) -> Mask: ...
    def at_least(self, value: pa.Scalar) -> Mask: ...
    def among(self, values: pa.Array) -> Mask: ...
    def outside(self, values: pa.Array) -> Mask: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on one column; `values` are sorted, of one type, and without NaN."""

    field_id: int
    name: str
    op: str
    values: pa.Array
    nan: bool = False
    """Whether NaN is (among) what the column is compared with."""

    @property
    def kind(self) -> pa.DataType:
        return self.values.type

    def holds(self, column: _Column) -> Mask:
        if self.op == "is null":
            return column.is_null()
        if self.op == "is not null":
            return column.is_not_null()
        if self.op in _MEMBERSHIPS:
            return self._membership(column)
        if self.nan:
            return _AGAINST_NAN[self.op](column)
        found = _AGAINST_VALUE[self.op](column, self.values[0])
        # NaN is greater than, and so different from, any number that is compared with it.
        return found | column.is_nan() if self._floats and self.op in ("!=", ">", ">=") else found

    def _membership(self, column: _Column) -> Mask:
        if self.op == "in":
            found = column.among(self.values)
            return found | column.is_nan() if self.nan else found
        found = column.outside(self.values)
        if not self._floats:
            return found
        return found & column.is_number() if self.nan else found | column.is_nan()

    @property
    def _floats(self) -> bool:
        return bool(pa.types.is_floating(self.kind))


_AGAINST_VALUE: dict[str, Callable[[_Column, pa.Scalar], Mask]] = {
    "=": lambda column, value: column.equal(value),
    "!=": lambda column, value: column.unequal(value),
    "<": lambda column, value: column.below(value),
    "<=": lambda column, value: column.at_most(value),
    ">": lambda column, value: column.above(value),
    ">=": lambda column, value: column.at_least(value),
}
_AGAINST_NAN: dict[str, Callable[[_Column], Mask]] = {
    "=": lambda column: column.is_nan(),
    "!=": lambda column: column.is_number(),
    "<": lambda column: column.is_number(),
    "<=": lambda column: column.is_not_null(),
    ">": lambda column: column.nothing(),
    ">=": lambda column: column.is_nan(),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Alternatives, each a conjunction of conditions; without any, every row matches."""

    alternatives: tuple[tuple[Condition, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.alternatives)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at, which a reader has to fetch."""
        names = (condition.name for group in self.alternatives for condition in group)
        return tuple(dict.fromkeys(names))

    def apply(self, rows: pa.Table) -> pa.Table:
        """The rows that match."""
        if not self:
            return rows
        mask = self._evaluate(rows.num_rows, lambda c: _Rows(rows[c.name], c.kind))
        return rows if mask.all() else rows.filter(pa.array(mask))

    def prune(self, stats: pa.Table) -> Mask:
        """For a table of statistics (see `prune`): which parts may hold a row that matches."""
        return self._evaluate(len(stats), lambda c: Known(stats, c.field_id, c.kind))

    def matches(self, encoded: bytes, rows: int) -> bool:
        """Whether a part with these encoded statistics may hold a row that matches."""
        if not self:
            return True
        stats = decode_stats(encoded)
        if stats is None:
            return True
        fields = {c.field_id: c.kind for group in self.alternatives for c in group}
        return bool(self.prune(stats_table([stats], [rows], fields.items()))[0])

    def _evaluate(self, count: int, column: Callable[[Condition], _Column]) -> Mask:
        if not self:
            return np.ones(count, np.bool_)
        found: Mask = np.zeros(count, np.bool_)
        for group in self.alternatives:
            mask: Mask = np.ones(count, np.bool_)
            for condition in group:
                mask &= condition.holds(column(condition))
            found |= mask
        return found


def parse_filter(spec: FilterSpec | None, schema: Schema) -> Filter:
    """A filter from what people write, checked against a schema."""
    if spec is None:
        return Filter()
    if isinstance(spec, str | tuple) or not hasattr(spec, "__iter__"):
        raise SchemaError(
            f"filter {printable(spec)} is not understood: write a list of (column, op, value)"
        )
    conditions = list(spec)
    if not conditions:
        return Filter()
    if all(isinstance(entry, tuple) for entry in conditions):
        return Filter((_group(conditions, schema),))
    if any(isinstance(entry, tuple | str) for entry in conditions):
        raise SchemaError("a filter is a list of (column, op, value), or a list of such lists")
    return Filter(tuple(_group(list(group), schema) for group in conditions))


class _Rows:
    """A column of rows; each method says which rows are so."""

    def __init__(self, column: pa.ChunkedArray, kind: pa.DataType) -> None:
        self._column = column if column.type == kind else column.cast(kind)

    def nothing(self) -> Mask:
        return np.zeros(len(self._column), np.bool_)

    def is_null(self) -> Mask:
        return _sure(pc.is_null(self._column))

    def is_not_null(self) -> Mask:
        return _sure(pc.is_valid(self._column))

    def is_nan(self) -> Mask:
        return _sure(pc.is_nan(self._column))

    def is_number(self) -> Mask:
        return _sure(pc.invert(pc.is_nan(self._column)))

    def equal(self, value: pa.Scalar) -> Mask:
        return _sure(pc.equal(self._column, value))

    def unequal(self, value: pa.Scalar) -> Mask:
        return _sure(pc.not_equal(self._column, value))

    def below(self, value: pa.Scalar) -> Mask:
        return _sure(pc.less(self._column, value))

    def at_most(self, value: pa.Scalar) -> Mask:
        return _sure(pc.less_equal(self._column, value))

    def above(self, value: pa.Scalar) -> Mask:
        return _sure(pc.greater(self._column, value))

    def at_least(self, value: pa.Scalar) -> Mask:
        return _sure(pc.greater_equal(self._column, value))

    def among(self, values: pa.Array) -> Mask:
        return _sure(pc.is_in(self._column, value_set=values))

    def outside(self, values: pa.Array) -> Mask:
        listed = pc.is_in(self._column, value_set=values)
        return _sure(pc.and_(pc.invert(listed), pc.is_valid(self._column)))


def _sure(mask: pa.ChunkedArray) -> Mask:
    found: Mask = pc.fill_null(mask, False).to_numpy()
    return found


def _group(conditions: Sequence[object], schema: Schema) -> tuple[Condition, ...]:
    return tuple(_condition(entry, schema) for entry in conditions)


def _condition(entry: object, schema: Schema) -> Condition:
    if not isinstance(entry, tuple) or len(entry) != 3:
        raise SchemaError(f"filter condition {printable(entry)} is not (column, op, value)")
    name, op, value = entry
    field = next((f for f in schema.fields if f.name == name), None)
    if field is None:
        known = ", ".join(f.name for f in schema.fields)
        raise SchemaError(f"filter on unknown column {printable(name)}: there are {known}")
    known_op = _operator(op)
    if known_op in _NULL_TESTS:
        return Condition(field.id, field.name, known_op, pa.nulls(0, field.type))
    if pa.types.is_nested(field.type):
        raise SchemaError(
            f"column {field.name} is a {field.type}: only 'is null' and 'is not null' apply"
        )
    values = _values(known_op, value)
    numbers = [v for v in values if not _is_nan(v)]
    converted = _converted(numbers, field.name, field.type)
    return Condition(field.id, field.name, known_op, converted, nan=len(numbers) < len(values))


def _operator(op: object) -> str:
    for known in (_COMPARISONS, _MEMBERSHIPS, _NULL_TESTS):
        if isinstance(op, str) and op in known:
            return known[op]
    names = ", ".join((*_COMPARISONS, *_MEMBERSHIPS, *_NULL_TESTS))
    raise SchemaError(f"filter operator {printable(op)} is not one of {names}")


def _values(op: str, value: object) -> list[object]:
    if op not in _MEMBERSHIPS:
        return [_plain(value)]
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise SchemaError(f"'{op}' takes a list of values, not {printable(value)}")
    return [_plain(each) for each in value]


def _plain(value: object) -> object:
    """What numpy, pandas and Arrow wrap a value in comes off."""
    if isinstance(value, np.generic):
        return value.item()
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _converted(values: list[object], name: str, kind: pa.DataType) -> pa.Array:
    # All floats compare as the widest, so that 0.1 means the same whatever the column's width.
    target = pa.float64() if pa.types.is_floating(kind) else kind
    for value in values:
        if value is None:
            raise SchemaError(f"column {name} is compared with None: use 'is null'")
        if not _fits(value, kind):
            raise SchemaError(
                f"column {name} is a {kind}: it can't be compared with {printable(value)}"
                + (_zone_hint(kind) if isinstance(value, dt.datetime) else "")
            )
    if pa.types.is_floating(kind) and 0 in values:
        values = [*values, 0.0, -0.0]  # Arrow looks for the bits of a value, which differ.
    try:
        found = pa.array(values, target)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise SchemaError(
            f"column {name} is a {kind}: it can't hold {printable(values)}: {error}"
        ) from error
    return found.take(pc.array_sort_indices(found)) if len(found) > 1 else found


def _zone_hint(kind: pa.DataType) -> str:
    if not pa.types.is_timestamp(kind):
        return ""
    return ", which has a time zone" if kind.tz is None else ", which has no time zone"


def _fits(value: object, kind: pa.DataType) -> bool:
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if isinstance(value, dt.datetime):
        return pa.types.is_timestamp(kind) and (value.tzinfo is None) == (kind.tz is None)
    return any(test(kind) and isinstance(value, classes) for test, classes in _CLASSES)


_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...]], ...] = (
    (pa.types.is_integer, (int,)),
    (pa.types.is_floating, (int, float)),
    (pa.types.is_decimal, (int, decimal.Decimal)),
    (pa.types.is_string, (str,)),
    (pa.types.is_large_string, (str,)),
    (pa.types.is_binary, (bytes,)),
    (pa.types.is_large_binary, (bytes,)),
    (pa.types.is_fixed_size_binary, (bytes,)),
    (pa.types.is_date, (dt.date,)),
    (pa.types.is_time, (dt.time,)),
    (pa.types.is_duration, (dt.timedelta,)),
)
