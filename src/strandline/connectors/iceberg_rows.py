"""Rows that go from data files that hold them: what stays is written anew. Pure.

Rows are equal as `equality` has it. One that occurs more than once goes as often as it was
retracted, and no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.model.equality import frame_of, names_of
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from strandline.model.valuehash import I64


class Retractions:
    """Rows that have to go, and how many of them are still to be found."""

    def __init__(self, changes: pa.Table) -> None:
        """`changes` are the columns and `_diff`; only those with a negative one count."""
        gone = changes.filter(pc.less(changes.column(DIFF_COLUMN), 0))
        self.rows = gone.drop_columns([DIFF_COLUMN])
        self._left: I64 = -gone.column(DIFF_COLUMN).to_numpy()

    @property
    def left(self) -> int:
        return int(self._left.sum())

    def subtract(self, rows: pa.Table) -> pa.Table | None:
        """What stays of the rows of a file; `None` if all of it does."""
        if not self.left or not rows.num_rows:
            return None
        gone = self._positions(rows.select(self.rows.column_names))
        if not len(gone):
            return None
        stays = np.ones(rows.num_rows, bool)
        stays[gone] = False
        return rows.filter(pa.array(stays))

    def _positions(self, rows: pa.Table) -> I64:
        """Where rows are that go; they are no longer looked for."""
        import polars as pl  # noqa: PLC0415 - as late as in `equality`

        wanted = frame_of(self.rows, which=_numbers(self.rows), left=self._left)
        held = frame_of(rows, position=_numbers(rows))
        pairs = held.join(wanted, on=names_of(rows), nulls_equal=True)
        nth = pl.int_range(pl.len()).over("which", order_by="position")
        found = pairs.with_columns(nth=nth).filter(pl.col("nth") < pl.col("left"))
        which = found["which"].to_numpy()
        np.subtract.at(self._left, which, 1)
        positions: I64 = found["position"].to_numpy()
        return positions


def _numbers(rows: pa.Table) -> I64:
    return np.arange(rows.num_rows, dtype=np.int64)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Iceberg holds a column: it has no small and no unsigned whole numbers."""
    if is_.is_nested(kind):
        return _stored_nested(kind)
    if is_.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    return pa.time64("us") if is_.is_time(kind) else _STORED.get(kind, kind)


def _stored_nested(kind: pa.DataType) -> pa.DataType:
    if is_.is_map(kind):
        return pa.map_(stored_type(kind.key_type), _field(kind.item_field))
    if is_.is_struct(kind):
        return pa.struct([_field(each) for each in kind])
    return pa.list_(_field(kind.value_field))


def stored_schema(columns: pa.Schema) -> pa.Schema:
    """All columns may be null, so that any of them can be added later."""
    return pa.schema([pa.field(each.name, stored_type(each.type)) for each in columns])


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(stored_type(field.type))


_STORED = {
    pa.float16(): pa.float32(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
