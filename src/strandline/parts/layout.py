"""Where updates lie: their places, their order, and where parts are cut. Pure.

The place of an update of a keyed shard is the hash of its key, so all updates of a key lie at
one place, and a part that covers `[place_lo, place_hi]` holds nothing of other keys. Updates
are in order of (place, key, time). A shard without a key has no places: each of its parts
covers them all, and rows stay in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.model.rowhash import PLACE_SALT, row_base, salted
from strandline.model.schema import TIME_COLUMN
from strandline.parts.part import PLACE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.model.schema import Schema
    from strandline.model.valuehash import I64, U64, Mask

_PLACE_COLUMN = "_place"


@dataclass(frozen=True, slots=True)
class Laid:
    """Updates in order, with the place of each; `places` is `None` without a key."""

    updates: pa.Table
    places: U64 | None
    order: I64 | None = None
    """From which position in what was given each update came; `None` if none moved."""

    def span(self) -> tuple[int, int]:
        """The first and the last place, both inclusive."""
        if self.places is None or not len(self.places):
            return 0, PLACE_MAX
        return int(self.places[0]), int(self.places[-1])

    def slice(self, start: int, stop: int) -> Laid:
        return Laid(
            self.updates.slice(start, stop - start),
            None if self.places is None else self.places[start:stop],
            None if self.order is None else self.order[start:stop],
        )

    def between(self, lo: int, hi: int) -> Laid:
        """What lies at the places from `lo` to `hi`, both inclusive; all of it without a key."""
        if self.places is None:
            return self
        start = int(np.searchsorted(self.places, np.uint64(lo), side="left"))
        stop = int(np.searchsorted(self.places, np.uint64(hi), side="right"))
        return self.slice(start, stop)


def places_of(rows: pa.Table, schema: Schema) -> U64 | None:
    """The place of each row, or `None` if the shard has no key."""
    if not schema.key:
        return None
    ids = [field.id for field in schema.key_fields()]
    return salted(row_base(rows.select(list(schema.key)), ids), PLACE_SALT)


def lay_out(updates: pa.Table, schema: Schema) -> Laid:
    """Updates in order of (place, key, time); base rows, which have no time, of (place, key)."""
    places = places_of(updates, schema)
    if places is None:
        return Laid(updates, None)
    order = _order(updates, places, schema)
    ordered = places[order]
    if (order[1:] > order[:-1]).all():  # In order already, as what comes from compaction is.
        return Laid(updates, places)
    return Laid(updates.take(pa.array(order)), ordered, order)


def _order(updates: pa.Table, places: U64, schema: Schema) -> I64:
    timed = TIME_COLUMN in updates.column_names
    times = updates.column(TIME_COLUMN).to_numpy() if timed else None
    if times is None or not len(times) or (times == times[0]).all():
        order = _ascending(places)
    else:
        order = np.lexsort((times, places))
    if not _keys_interleave(updates, places, order, schema):
        return order
    keys = [(_PLACE_COLUMN, "ascending"), *((name, "ascending") for name in schema.key)]
    if timed:
        keys.append((TIME_COLUMN, "ascending"))
    exact: I64 = pc.sort_indices(
        updates.append_column(_PLACE_COLUMN, pa.array(places)), sort_keys=keys
    ).to_numpy()
    return exact.astype(np.int64)


def _ascending(places: U64) -> I64:
    """Their stable order. Sorting unstably takes a quarter of the time, and is the same if no two
    are equal, as the places of different keys are."""
    if (places[1:] >= places[:-1]).all():
        return np.arange(len(places), dtype=np.int64)
    order: I64 = np.argsort(places)
    ordered = places[order]
    if (ordered[1:] == ordered[:-1]).any():
        order = np.argsort(places, kind="stable")
    return order


def _keys_interleave(updates: pa.Table, places: U64, order: I64, schema: Schema) -> bool:
    """Whether two keys share a place: as good as never by chance, but somebody may try."""
    ordered = places[order]
    shared = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(shared):
        return False
    before = updates.select(list(schema.key)).take(pa.array(order[shared]))
    after = updates.select(list(schema.key)).take(pa.array(order[shared + 1]))
    return any(
        pc.any(pc.not_equal(one, other)).as_py()
        for one, other in zip(before.columns, after.columns, strict=True)
    )


def cut(laid: Laid, *, rows_max: int, bytes_max: int) -> Iterator[Laid]:
    """Pieces of at most about this size; a place is never divided between two."""
    total = laid.updates.num_rows
    row_bytes = max(1, laid.updates.nbytes // max(1, total))
    step = max(1, min(rows_max, bytes_max // row_bytes))
    start = 0
    while start < total:
        stop = start + step
        # A rest of less than a quarter is not worth a part of its own.
        stop = total if total - stop < step // 4 else _place_end(laid.places, stop)
        yield laid.slice(start, stop)
        start = stop


def _place_end(places: U64 | None, stop: int) -> int:
    if places is None:
        return stop
    return int(np.searchsorted(places, places[stop - 1], side="right"))


def overlapping(place_lo: U64, place_hi: U64, *, lo: int, hi: int) -> Mask:
    """Which parts may hold something at the places from `lo` to `hi`, both inclusive."""
    mask: Mask = (place_lo <= np.uint64(hi)) & (place_hi >= np.uint64(lo))
    return mask
