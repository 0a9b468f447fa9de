"""Columns that keep what their key's row has, because whoever sent the row did not send them. Pure.

`_keep` lists, of each row that came in, the columns to keep. Such a column takes its value from
the row that the key held just before, be that one stored or one that came in, at the same time
even; from none, if the key held nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import SchemaError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from strandline.model.schema import Schema
    from strandline.model.valuehash import I64, Mask

KEEP_COLUMN = "_keep"


def keep_flags(incoming: pa.Table, schema: Schema) -> dict[str, Mask]:
    """Which rows keep a column, for each column that some row keeps."""
    if KEEP_COLUMN not in incoming.schema.names:
        return {}
    lists = incoming.column(KEEP_COLUMN).combine_chunks()
    rows, named = pc.list_parent_indices(lists), pc.list_flatten(lists)
    flags: dict[str, Mask] = {}
    for name in pc.unique(named).to_pylist():
        if name not in schema.names or name in schema.key:
            raise SchemaError(f"a row keeps {printable(name)}, which is no column that it could")
        flags[name] = np.zeros(incoming.num_rows, np.bool_)
        flags[name][pc.filter(rows, pc.equal(named, name)).to_numpy()] = True
    return flags


def holders(keys: I64, keep: Mask, usable: Mask) -> I64:
    """For events in order of (key, time, order): whose value each has; -1 if nobody's.

    An event that does not keep has its own; one that keeps has that of the last usable one of its
    key that does not.

    >>> flags = [np.array(each, bool) for each in ([0, 1, 1, 1], [1, 1, 1, 1])]
    >>> holders(np.array([1, 1, 1, 2]), *flags).tolist()
    [0, 0, 0, -1]
    """
    places: I64 = np.arange(len(keys), dtype=np.int64)
    sources = np.maximum.accumulate(np.where(~keep & usable, places, -1)) if len(keys) else places
    found = np.where((sources >= 0) & (keys[sources] == keys), sources, -1)
    return np.where(keep, found, places)
