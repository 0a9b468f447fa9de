"""The statistics of many parts as typed columns, and which parts a condition rules out. Pure.

A table of statistics has one row a part: `rows`, and for each field id the columns `<id>.low`,
`<id>.high` (of the column's type), `<id>.nulls` and `<id>.nan`. A null means: not known. A part
is ruled out only if its statistics prove that no row of it matches; whatever can't be compared
rules nothing out.

    ruled out  =>  no row of the part matches
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.parts.stats import Bound, Range, Stats, bounds_array, kind_of, stored_bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.model.valuehash import Mask

_NO_RANGE = Range("")
_EACH_VALUE_MAX = 64
"""So many values of an `in` are looked for one by one; more only as the range they span."""


def stats_table(
    stats: Sequence[Stats | None], rows: Sequence[int], fields: Iterable[tuple[int, pa.DataType]]
) -> pa.Table:
    """The statistics of parts with these numbers of rows, typed as the fields are today."""
    columns: dict[str, pa.Array] = {"rows": pa.array(rows, pa.int64())}
    for field_id, kind in fields:
        if kind_of(kind) is None:
            continue
        ranges = [
            _NO_RANGE if known is None else known.ranges.get(field_id, _NO_RANGE) for known in stats
        ]
        columns[f"{field_id}.low"] = _bounds(ranges, [r.low for r in ranges], kind)
        columns[f"{field_id}.high"] = _bounds(ranges, [r.high for r in ranges], kind)
        columns[f"{field_id}.nulls"] = pa.array([r.nulls for r in ranges], pa.int64())
        nans = [r.has_nan if r.kind else None for r in ranges]
        columns[f"{field_id}.nan"] = pa.array(nans, pa.bool_())
    return pa.table(columns)


def stats_rows(table: pa.Table) -> list[Stats]:
    """The reverse of `stats_table`, for parts that move from one list to another."""
    rows = table["rows"].to_pylist()
    found: list[dict[int, Range]] = [{} for _ in rows]
    for name in table.column_names:
        if not name.endswith(".low"):
            continue
        field_id = int(name.removesuffix(".low"))
        kind = kind_of(table[name].type)
        if kind is None:
            continue
        lows, highs = stored_bounds(table[name]), stored_bounds(table[f"{field_id}.high"])
        nulls = table[f"{field_id}.nulls"].to_pylist()
        nans = table[f"{field_id}.nan"].to_pylist()
        for at, nan in enumerate(nans):
            if nan is not None:
                found[at][field_id] = Range(kind, lows[at], highs[at], nulls[at], nan)
    return [Stats(count, ranges) for count, ranges in zip(rows, found, strict=True)]


class Known:
    """What is known of one column, part by part. Each method says whether some row may be so.

    The answers err on one side only, so `and` and `or` of them do too; there is no `not`.
    """

    def __init__(self, stats: pa.Table, field_id: int, kind: pa.DataType) -> None:
        self._count = len(stats)
        self._rows = stats["rows"]
        self._low = self._column(stats, f"{field_id}.low", kind)
        self._high = self._column(stats, f"{field_id}.high", kind)
        self._nulls = self._column(stats, f"{field_id}.nulls", pa.int64())
        self._nan = self._column(stats, f"{field_id}.nan", pa.bool_())
        self._some = _may(pc.less(self._nulls, self._rows))

    def _column(self, stats: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
        unknown = pa.chunked_array([pa.nulls(self._count, kind)])
        if name not in stats.column_names:
            return unknown
        try:
            return stats[name].cast(kind)
        except pa.ArrowException:  # Written when the column had another type: bounds nothing.
            return unknown

    def nothing(self) -> Mask:
        return np.zeros(self._count, np.bool_)

    def is_null(self) -> Mask:
        return _may(pc.greater(self._nulls, 0))

    def is_not_null(self) -> Mask:
        return self._some

    def is_nan(self) -> Mask:
        return _may(self._nan)

    def is_number(self) -> Mask:
        return self._some

    def equal(self, value: pa.Scalar) -> Mask:
        return self.at_most(value) & self.at_least(value)

    def unequal(self, value: pa.Scalar) -> Mask:
        same = pc.and_(pc.equal(self._low, value), pc.equal(self._high, value))
        return _may(pc.invert(same)) & self._some

    def below(self, value: pa.Scalar) -> Mask:
        return _may(pc.less(self._low, value)) & self._some

    def at_most(self, value: pa.Scalar) -> Mask:
        return _may(pc.less_equal(self._low, value)) & self._some

    def above(self, value: pa.Scalar) -> Mask:
        return _may(pc.greater(self._high, value)) & self._some

    def at_least(self, value: pa.Scalar) -> Mask:
        return _may(pc.greater_equal(self._high, value)) & self._some

    def among(self, values: pa.Array) -> Mask:
        """`values` are sorted."""
        if len(values) > _EACH_VALUE_MAX:
            return self.at_most(values[-1]) & self.at_least(values[0])
        found = self.nothing()
        for value in values:
            found |= self.equal(value)
        return found

    def outside(self, values: pa.Array) -> Mask:
        same = pc.and_(pc.equal(self._low, self._high), pc.is_in(self._low, value_set=values))
        return _may(pc.invert(same)) & self._some


def _may(mask: pa.ChunkedArray) -> Mask:
    """What is not known may be."""
    found: Mask = pc.fill_null(mask, True).to_numpy()
    return found


def _bounds(ranges: Sequence[Range], bounds: Sequence[Bound], kind: pa.DataType) -> pa.Array:
    kinds = {known.kind for known in ranges if known.kind}
    if len(kinds) <= 1:
        return bounds_array(bounds, next(iter(kinds), ""), kind)
    found = pa.nulls(len(bounds), kind)
    for written in sorted(kinds):
        own = [b if r.kind == written else None for b, r in zip(bounds, ranges, strict=True)]
        found = pc.coalesce(found, bounds_array(own, written, kind))
    return found
