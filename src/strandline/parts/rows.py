"""What a caller gave, as checked updates with their digests. Pure.

    gave        becomes
    ----------  ------------------------------------------------------------------------
    columns     the schema's columns, in its order and types, values unchanged
    `_time`     as it is, within `[lower, upper)`; left out: the only time there is
    `_diff`     as it is, up to `DIFF_MAX` either way; left out: +1; rows with 0 say nothing and go

Nothing is guessed and nothing is corrected silently: whatever does not fit is refused, with the
number of the first row that does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import BoundsError, SchemaError
from strandline.model.digest import Digest, per_time
from strandline.model.frontier import TIME_MAX, Frontier, Time, valid_time
from strandline.model.ids import printable
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.schema import Schema
    from strandline.model.valuehash import I64, U64


DIFF_MAX = 2**31 - 1
"""How often one update may add a row or take it back: billions of them still add up in 64 bits."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Updates that fit a schema and an interval."""

    schema: Schema
    updates: pa.Table
    """The columns of `Schema.updates`; in the order in which they were given."""
    hashes: U64
    """The salt-free row hash of each update (`row_base`)."""
    digests: dict[Time, Digest]
    """By time; only times that have rows."""

    @classmethod
    def nothing(cls, schema: Schema) -> Checked:
        return cls(schema, schema.updates().empty_table(), np.zeros(0, np.uint64), {})

    @property
    def total(self) -> Digest:
        total = Digest.ZERO
        for digest in self.digests.values():
            total += digest
        return total


def check_interval(lower: object, upper: object) -> tuple[Time, Frontier]:
    """The interval `[lower, upper)` from what people write, or what is wrong with it."""
    begin = valid_time(lower, "lower")
    end = _frontier(upper)
    if not Frontier(begin) < end:
        raise BoundsError(f"[{begin}, {end.time}) holds no time: upper must be greater than lower")
    return begin, end


def _frontier(upper: object) -> Frontier:
    time = upper.time if isinstance(upper, Frontier) else upper
    return Frontier(None if time is None else valid_time(time, "upper"))


def check_rows(rows: object, schema: Schema, *, lower: Time, upper: Frontier) -> Checked:
    """Check what a caller gave against the schema and `[lower, upper)`."""
    given = to_table(rows, schema)
    names = given.schema.names
    times = _times(given, lower, upper) if TIME_COLUMN in names else None
    diffs = _diffs(given) if DIFF_COLUMN in names else None
    if times is not None or diffs is not None:
        given = given.drop_columns([n for n in (TIME_COLUMN, DIFF_COLUMN) if n in names])
    table = schema.accepts(given)
    if times is None:
        time = _only_time(lower, upper) if table.num_rows else lower
        times = np.full(table.num_rows, time, np.int64)
    if diffs is None:
        diffs = np.ones(table.num_rows, np.int64)
    elif not diffs.all():
        kept = diffs != 0
        table, times, diffs = table.filter(pa.array(kept)), times[kept], diffs[kept]
    hashes = row_base(table, schema.ids)
    own = [pa.array(times), pa.array(diffs)]
    updates = pa.Table.from_arrays([*table.columns, *own], schema=schema.updates())
    return Checked(schema, updates, hashes, per_time(hashes, times, diffs))


def restamped(checked: Checked, time: Time) -> Checked:
    """The same updates, all at another time; their hashes do not depend on it."""
    updates = checked.updates
    at = updates.schema.get_field_index(TIME_COLUMN)
    times = pa.array(np.full(updates.num_rows, time, np.int64))
    moved = updates.set_column(at, updates.schema.field(at), times)
    digests = {time: checked.total} if checked.digests else {}
    return Checked(checked.schema, moved, checked.hashes, digests)


def to_table(rows: object, schema: Schema) -> pa.Table:
    """An Arrow table from what people have at hand: Arrow, pandas, polars, a list of dicts."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    try:
        if isinstance(rows, list):
            return _from_dicts(rows, schema)
        if hasattr(rows, "iloc") and hasattr(rows, "dtypes"):
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the rows can't be read: {error}") from error
    raise SchemaError(
        f"rows must be an Arrow table, a pandas or polars frame or a list of dicts, "
        f"not {type(rows).__name__}"
    )


def _from_dicts(rows: list[object], schema: Schema) -> pa.Table:
    names = dict.fromkeys(schema.names)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise SchemaError(f"row {number} is a {type(row).__name__}, not a dict")
        names.update(dict.fromkeys(row))
    typed = {each.name: each.type for each in (*schema.updates(),)}
    fields = [(name, typed.get(name)) for name in names]
    arrays = [
        pa.array([row.get(name) for row in rows if isinstance(row, dict)], kind)
        for name, kind in fields
    ]
    return pa.Table.from_arrays(arrays, names=[str(name) for name in names])


def _only_time(lower: Time, upper: Frontier) -> Time:
    if upper.time != lower + 1:
        raise BoundsError(
            f"rows without a {TIME_COLUMN} column need an interval of one time, "
            f"and [{lower}, {'' if upper.time is None else upper.time}) has more: add the column"
        )
    return lower


def _times(given: pa.Table, lower: Time, upper: Frontier) -> I64:
    times = _integers(given, TIME_COLUMN, BoundsError)
    last = TIME_MAX if upper.time is None else upper.time - 1
    if len(times) and not (lower <= times.min() and times.max() <= last):
        row = int(np.flatnonzero((times < lower) | (times > last))[0])
        raise BoundsError(
            f"row {row} (counted from 0) has {TIME_COLUMN} {times[row]}, which is outside "
            f"[{lower}, {last + 1})"
        )
    return times


def _diffs(given: pa.Table) -> I64:
    diffs = _integers(given, DIFF_COLUMN, SchemaError)
    if len(diffs) and not (diffs.min() >= -DIFF_MAX and diffs.max() <= DIFF_MAX):
        row = int(np.flatnonzero((diffs < -DIFF_MAX) | (diffs > DIFF_MAX))[0])
        raise SchemaError(
            f"row {row} (counted from 0) has {DIFF_COLUMN} {diffs[row]}, which is beyond "
            f"{DIFF_MAX} either way: give it as several rows"
        )
    return diffs


def _integers(given: pa.Table, name: str, error: Callable[[str], Exception]) -> I64:
    column = given.column(name)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise error(f"row {row} (counted from 0) has a null in {name}: fill it or leave it out")
    if not pa.types.is_integer(column.type):
        raise error(f"column {name} must hold whole numbers, not {column.type}")
    try:
        found: I64 = column.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as cause:
        reason = printable(str(cause), limit=120)
        raise error(f"column {name} holds a number beyond 64 bits: {reason}") from cause
    return found
