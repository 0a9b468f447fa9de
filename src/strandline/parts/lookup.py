"""Where the updates of some keys lie in a block of updates, found by binary search. Pure.

A block is a piece of a part of a keyed shard: its updates lie in order of (place, key, time), and
`places` has the place of each. The search looks at the places alone and reads key values only
where a place was found, so its cost follows the keys and not the rows: places and block may be
memory maps, of which nothing else is touched. Two keys may share a place (as good as never by
chance, but somebody may try), so every hit is compared by value.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.errors import SchemaError, UsageError
from strandline.model.columntype import cast
from strandline.model.ids import printable
from strandline.parts.layout import lay_out

if TYPE_CHECKING:
    from strandline.model.schema import Schema
    from strandline.model.valuehash import I64, U64, Mask


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct keys in order of (place, key), with the place of each."""

    values: pa.Table
    """The key's columns, in the key's order and in the schema's types."""
    places: U64

    @classmethod
    def of(cls, rows: pa.Table, schema: Schema) -> Keys:
        """The keys that occur in `rows`, whose other columns have no meaning here."""
        laid = lay_out(key_columns(rows, schema), schema)
        places = np.zeros(0, np.uint64) if laid.places is None else laid.places
        again = repeats(laid.updates, places)
        if not again.any():
            return cls(laid.updates, places)
        return cls(laid.updates.filter(pa.array(~again)), places[~again])

    def __len__(self) -> int:
        return len(self.places)

    def between(self, lo: int, hi: int) -> Keys:
        """The keys at the places from `lo` to `hi`, both inclusive."""
        start = int(np.searchsorted(self.places, np.uint64(lo), side="left"))
        stop = int(np.searchsorted(self.places, np.uint64(hi), side="right"))
        return Keys(self.values.slice(start, stop - start), self.places[start:stop])


def find(block: pa.Table, places: U64, wanted: Keys) -> I64:
    """The positions of all updates in `block` whose key is wanted, ascending.

    `places` are those of the block, ascending; the block has the key's columns, in the types
    that the keys have. Nothing is read of the block but key values at the places that are wanted.
    """
    starts = np.searchsorted(places, wanted.places, side="left")
    counts = np.searchsorted(places, wanted.places, side="right") - starts
    total = int(counts.sum())
    if not total:
        return np.zeros(0, np.int64)
    key: I64 = np.repeat(np.arange(len(wanted), dtype=np.int64), counts)
    position: I64 = np.arange(total, dtype=np.int64)
    position += np.repeat(starts - (np.cumsum(counts) - counts), counts)
    # Keys that share a place look at the same updates, one after the other; the keys are in the
    # order in which their updates lie, so what is left of the positions ascends all the same.
    found = take_rows(block.select(wanted.values.column_names), position)
    hit = rows_equal(found, take_rows(wanted.values, key))
    return position if hit.all() else position[hit]


def take_rows(table: pa.Table, positions: I64) -> pa.Table:
    """The rows at `positions`; of each chunk no more is read than what is wanted of it.

    Arrow joins all chunks of a column before it takes from them, which reads every row.
    """
    if all(column.num_chunks <= 1 for column in table.columns):
        return table.take(pa.array(positions))
    columns = [_take(column, positions) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _take(column: pa.ChunkedArray, positions: I64) -> pa.ChunkedArray:
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    owners = np.searchsorted(ends, positions, side="right")
    # What lies in one chunk is taken at once: if positions ascend, that is once for each chunk.
    bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(positions)]
    taken = []
    for start, stop in pairwise(bounds if len(positions) else []):
        owner = int(owners[start])
        chunk = column.chunk(owner)
        within = positions[start:stop] - (int(ends[owner]) - len(chunk))
        taken.append(chunk.take(pa.array(within)))
    return pa.chunked_array(taken, column.type)


def key_columns(rows: pa.Table, schema: Schema) -> pa.Table:
    """The key's columns of `rows` as the schema keeps them; a missing one or a null is refused."""
    if not schema.key:
        raise UsageError("the shard has no key, so nothing can be found by one")
    columns = []
    for field in schema.key_fields():
        if rows.schema.names.count(field.name) != 1:
            raise SchemaError(f"the rows have no single column {printable(field.name)} of the key")
        column = rows.column(field.name)
        if column.null_count:
            row = pc.index(pc.is_null(column), True).as_py()
            raise SchemaError(
                f"row {row} (counted from 0) has a null in {printable(field.name)}, which is part "
                "of the key: leave the row out, or give it a value"
            )
        columns.append(cast(column, field.type))
    return pa.Table.from_arrays(columns, schema=pa.schema([f.arrow() for f in schema.key_fields()]))


def repeats(keys: pa.Table, places: U64) -> Mask:
    """Of keys in order of (place, key): which are equal to the one before them."""
    again: Mask = np.zeros(len(places), np.bool_)
    after = np.flatnonzero(places[1:] == places[:-1]) + 1
    if len(after):
        again[after] = rows_equal(take_rows(keys, after - 1), take_rows(keys, after))
    return again


def rows_equal(one: pa.Table, other: pa.Table) -> Mask:
    """Row by row, whether all values that are not nested are equal, as the row hash sees it.

    Null equals null, NaN equals NaN, and -0.0 equals 0.0.
    """
    same: Mask = np.ones(one.num_rows, np.bool_)
    for mine, theirs in zip(one.columns, other.columns, strict=True):
        if not is_.is_nested(mine.type):
            same &= _values_equal(mine, theirs)
    return same


def _values_equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Mask:
    if is_.is_float16(one.type):
        one, other = one.cast(pa.float32()), other.cast(pa.float32())
    same = pc.equal(one, other)
    if is_.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    if one.null_count or other.null_count:
        same = pc.or_(pc.fill_null(same, False), pc.and_(one.is_null(), other.is_null()))
    mask: Mask = same.to_numpy()
    return mask
