"""Columns in types that are grouped and joined exactly: equal wherever the values are.

Two rows are equal if all their values are, as the row hash sees it: null equals null, NaN equals
NaN, and -0.0 equals 0.0. Nested values are compared by their 64-bit hash, all others by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as is_

from strandline.errors import UsageError
from strandline.model.valuehash import value_hashes

if TYPE_CHECKING:
    import polars as pl

    from strandline.model.valuehash import I64

_PLAINER = (
    (is_.is_decimal256, pa.string()),
    (is_.is_fixed_size_binary, pa.binary()),
    (is_.is_float16, pa.float32()),
)


class _Threads:
    """Those of Polars in this process."""

    begun = False
    left_behind = False


def names_of(rows: pa.Table) -> list[str]:
    """What the columns of `rows` are called in a frame of them."""
    return [f"c{n}" for n in range(rows.num_columns)]


def frame_of(rows: pa.Table, **more: pa.ChunkedArray | I64) -> pl.DataFrame:
    """The rows for Polars, under `names_of` them, beside more columns of the same length."""
    _begin_threads()
    # Polars may start threads when it is imported, which a forked child would not have.
    import polars as pl  # noqa: PLC0415

    columns = dict(zip(names_of(rows), map(comparable, rows.columns), strict=True))
    frame = pl.from_arrow(pa.table({**columns, **more}), rechunk=False)
    if not isinstance(frame, pl.DataFrame):
        raise TypeError("a table did not become a frame")
    return frame


def leave_threads_behind() -> None:
    """To be called in a forked child: no thread but the one that forked goes with it."""
    _Threads.left_behind = _Threads.begun


def _begin_threads() -> None:
    """Refuse where Polars would wait for ever."""
    if _Threads.left_behind:
        raise UsageError(
            "this process was forked from one that had read or merged rows, and lacks the threads "
            "for that: start processes with multiprocessing's 'spawn', or fork before the first "
            "store is used"
        )
    _Threads.begun = True


def comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column that is equal wherever this one is."""
    kind = column.type
    if is_.is_nested(kind):
        return pa.array(value_hashes(column), mask=column.is_null().to_numpy())
    if is_.is_dictionary(kind):
        return comparable(column.cast(kind.value_type))
    if is_.is_temporal(kind):
        return column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    for test, plainer in _PLAINER:
        if test(kind):
            return column.cast(plainer)
    return column
