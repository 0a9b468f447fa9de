"""One pass over many sorted inputs, so that compaction never holds more than it must. Pure.

    sweep      keyed inputs, each in order of place: gives slices of ever higher places, each
               with all updates of its places, so that whatever cancels meets in one slice
    sift       inputs without places: what no retraction can touch goes by as it is, and only
               the rest is kept together until the end

The memory a sweep takes is about two row groups an input, and a slice; what a sift takes, the
updates of rows that some retraction names.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import CorruptionError
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import consolidate
from strandline.parts.layout import Laid, lay_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.model.valuehash import U64, Mask

REPEATS_MAX = 1024
"""A row that occurs more often stays in a delta: a base would hold it as many times."""
_SLICE_ROWS = 16 * 1024
"""Slices are at least so large, as far as there are rows: summing has a price per slice."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input that is in order of place, and from which place on it has something."""

    place_lo: int
    tables: Iterator[pa.Table]


class _Cursor:
    """One input: what was read of it and not given out yet."""

    def __init__(self, source: Source, schema: Schema) -> None:
        self._tables = source.tables
        self._schema = schema
        self._held: list[Laid] = []
        self.reached = source.place_lo
        """Everything below this place was read."""
        self.ended = False

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def read(self) -> int:
        """Take one more table in, or notice that there is none; how many rows there were."""
        table = next(self._tables, None)
        if table is None:
            self.ended = True
            return 0
        if not table.num_rows:
            return 0
        laid = lay_out(table, self._schema)
        first, last = laid.span()
        if first < self.reached:
            raise CorruptionError("the updates of a part are not in the order of their places")
        self.reached = last
        self._held.append(laid)
        return int(table.num_rows)

    def take(self, bound: int | None) -> list[pa.Table]:
        """Give out what lies below `bound`, or everything."""
        given: list[pa.Table] = []
        while self._held:
            laid = self._held[0]
            rows = laid.updates.num_rows
            stop = rows if bound is None or laid.places is None else _below(laid.places, bound)
            if stop:
                given.append(laid.updates.slice(0, stop))
            if stop < rows:
                self._held[0] = laid.slice(stop, rows)
                break
            self._held.pop(0)
        return given


def sweep(sources: Sequence[Source], schema: Schema) -> Iterator[pa.Table]:
    """The updates of all inputs in slices of ever higher places; no place is in two slices.

    An input is not touched before the sweep has reached its first place, give or take a slice.
    """
    waiting = sorted(sources, key=lambda source: source.place_lo, reverse=True)
    cursors: list[_Cursor] = []
    given: list[pa.Table] = []
    while True:
        bound = _read_on(waiting, cursors, schema)
        given += [table for cursor in cursors for table in cursor.take(bound)]
        if given and (bound is None or sum(map(len, given)) >= _SLICE_ROWS):
            yield pa.concat_tables(given)
            given = []
        if bound is None:
            return
        cursors = [each for each in cursors if not each.ended or each.holds]


def _read_on(waiting: list[Source], cursors: list[_Cursor], schema: Schema) -> int | None:
    """Read until a slice is held, and return how far all inputs were read; `None` is the end.

    Looking at every input after every table would cost the square of their number, so tables
    are read by the input that has come least far, and only a whole slice is looked for in all.
    """
    queue = [(each.reached, at) for at, each in enumerate(cursors) if not each.ended]
    heapify(queue)
    held = 0
    while True:
        edges = [reached for reached, _ in queue[:1]] + [each.place_lo for each in waiting[-1:]]
        if not edges or held >= _SLICE_ROWS:
            return min(edges, default=None)
        if waiting and waiting[-1].place_lo == min(edges):
            cursors.append(_Cursor(waiting.pop(), schema))
            heappush(queue, (cursors[-1].reached, len(cursors) - 1))
            continue
        _, at = heappop(queue)
        held += cursors[at].read()
        if not cursors[at].ended:
            heappush(queue, (cursors[at].reached, at))


def retracted(tables: Iterable[pa.Table], schema: Schema) -> U64:
    """The hashes of all rows that some update retracts, sorted."""
    found: list[U64] = [np.zeros(0, np.uint64)]
    for table in tables:
        negative = table.filter(pc.less(table.column(DIFF_COLUMN), 0))
        if negative.num_rows:
            found.append(np.unique(_hashes(negative, schema)))
    return np.unique(np.concatenate(found))


def sift(
    tables: Iterable[pa.Table], schema: Schema, touched: U64
) -> Iterator[tuple[pa.Table, bool]]:
    """Tables of updates, and of each whether something in it may cancel (it is the last)."""
    kept: list[pa.Table] = []
    for table in tables:
        if not len(touched):
            yield table, False
            continue
        hashes = _hashes(table, schema)
        at = np.minimum(np.searchsorted(touched, hashes), len(touched) - 1)
        hit: Mask = touched[at] == hashes
        kept.append(table.filter(pa.array(hit)))
        yield table.filter(pa.array(~hit)), False
    if kept:
        yield pa.concat_tables(kept), True


def moved_to(updates: pa.Table, since: Time) -> pa.Table:
    """The updates with every time before `since` moved up to it."""
    at = updates.column_names.index(TIME_COLUMN)
    times = pc.max_element_wise(updates.column(TIME_COLUMN), pa.scalar(since, pa.int64()))
    return updates.set_column(at, updates.schema.field(at), times)


def settle(updates: pa.Table, since: Time) -> pa.Table:
    """What the updates add up to, as seen from `since`."""
    return consolidate(moved_to(updates, since))


def split_live(updates: pa.Table, since: Time) -> tuple[pa.Table, pa.Table]:
    """Rows that are live at `since`, each as often as it occurs, and all other updates."""
    diffs = updates.column(DIFF_COLUMN).to_numpy()
    times = updates.column(TIME_COLUMN).to_numpy()
    live: Mask = (times <= since) & (diffs > 0) & (diffs <= REPEATS_MAX)
    rows = updates.filter(pa.array(live)).drop_columns([TIME_COLUMN, DIFF_COLUMN])
    counts = diffs[live]
    if len(counts) and counts.max() > 1:
        rows = rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
    return rows, updates.filter(pa.array(~live))


def _hashes(updates: pa.Table, schema: Schema) -> U64:
    return row_base(updates.select(list(schema.names)), schema.ids)


def _below(places: U64, bound: int) -> int:
    return int(np.searchsorted(places, np.uint64(bound), side="left"))
