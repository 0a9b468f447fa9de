"""Values of any type that has an order, as whole numbers in the same order. Pure.

A null is lower than all else, NaN is higher, and -0.0 and 0.0 are the same; text and bytes are
compared byte by byte. That is how Spark sorts, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.errors import UsageError
from strandline.model.columntype import cast, kept_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.valuehash import I64


def ranks(columns: Sequence[pa.ChunkedArray], rows: int) -> I64:
    """The rank of each row, at most `rows`, by the first column, then the second, and so on."""
    total: I64 = np.zeros(rows, np.int64)
    for at, column in enumerate(columns):
        own = _dense(column)
        # Each is at most the number of rows, so the sum fits; ranked again, the next one does.
        total = total * (rows + 1) + own
        if at:
            total = np.unique(total, return_inverse=True)[1]
    return total


def _dense(column: pa.ChunkedArray) -> I64:
    if is_.is_nested(column.type):
        raise UsageError(f"rows can't be put in order by {column.type}: give its fields instead")
    column = cast(column, kept_type(column.type))
    whole = _float_order(column) if is_.is_floating(column.type) else column
    ranked = pc.rank(whole, sort_keys="ascending", tiebreaker="dense").to_numpy()
    found: I64 = ranked.astype(np.int64)
    if column.null_count:
        found[column.is_null().to_numpy()] = 0
    return found


def _float_order(column: pa.ChunkedArray) -> pa.Array:
    """Whole numbers that lie as the floats do."""
    floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy() + 0.0
    floats[np.isnan(floats)] = np.nan
    bits: I64 = floats.view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits))
