"""What one task of a read gives: rows of a snapshot, or changes. Pure, but for `fetch`.

`fetch` brings the rows of a piece as `reading.extract` describes them. Snapshots come piece by
piece where nothing has to be added up, so that a task holds one piece at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import UsageError
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import (
    Overlay,
    as_updates,
    consolidate,
    divide,
    expand,
    overlay,
)
from strandline.parts.layout import lay_out, places_of
from strandline.parts.part import PLACE_MAX, Part
from strandline.spark.source_plan import Way, Work, only_inserts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.model.schema import Schema
    from strandline.model.valuehash import I64, Mask
    from strandline.reading.descriptor import PartDescriptor

    Fetch = Callable[[PartDescriptor], pa.Table]

CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)

_KINDS = pa.array(["insert", "delete", "update_preimage", "update_postimage"])


def snapshot_rows(work: Work, fetch: Fetch) -> Iterator[pa.Table]:
    """The rows of a task of `plan_snapshot`, each as often as it occurs."""
    if work.way is Way.ROWS:
        for each in work.pieces:
            yield _alone(fetch(each))
    elif work.way is Way.RANGE:
        yield _range_rows(work, fetch)
    else:
        yield from _keyless_rows(work, fetch)


def change_updates(work: Work, fetch: Fetch) -> Iterator[pa.Table]:
    """The updates of a task of `plan_changes`, with `_time` and `_diff`, consolidated."""
    if work.way is Way.ROWS:
        for each in work.pieces:
            yield fetch(each)
    else:
        yield consolidate(
            pa.concat_tables(_within(each, fetch(each), work) for each in work.pieces)
        )


def changes(updates: pa.Table, schema: Schema, instants: Instants) -> pa.Table:
    """Updates as people read them: what happened to each row, in which version, and when.

    A key that loses a row and gets one in the same version was updated. Without a key nobody
    can tell, so there are insertions and deletions only.
    """
    updates, groups = _grouped(updates, schema)
    diffs: I64 = updates.column(DIFF_COLUMN).to_numpy()
    times: I64 = updates.column(TIME_COLUMN).to_numpy()
    kinds = np.where(diffs < 0, 1, 0) + 2 * _updated(diffs, groups)
    # 0 insert, 1 delete; with 2 added, an update: its retraction is the image before it.
    named = _KINDS.take(pa.array(np.where(kinds == 2, 3, np.where(kinds == 3, 2, kinds))))
    rows = updates.drop_columns([TIME_COLUMN, DIFF_COLUMN])
    rows = rows.append_column(CHANGE_TYPE, named)
    rows = rows.append_column(COMMIT_VERSION, pa.array(times, pa.int64()))
    rows = rows.append_column(COMMIT_TIMESTAMP, instants.of(times))
    often = np.abs(diffs)
    if len(often) and often.max() > 1:
        rows = rows.take(pa.array(np.repeat(np.arange(len(often)), often)))
    return rows


class Instants:
    """When each version was settled: the first instant at or after it in a list."""

    def __init__(self, times: I64, instants_ms: I64) -> None:
        self._times = times
        self._instants_ms = instants_ms

    def listed(self) -> tuple[list[int], list[int]]:
        return self._times.tolist(), self._instants_ms.tolist()

    def of(self, times: I64) -> pa.Array:
        at = np.searchsorted(self._times, times)
        known = at < len(self._times)
        instants = np.append(self._instants_ms, 0)[np.where(known, at, len(self._times))]
        return pa.array(instants * 1000, pa.int64(), mask=~known).cast(pa.timestamp("us", "UTC"))


def inserted(updates: pa.Table, shard: str) -> pa.Table:
    """The rows of updates that only insert; a stream of rows can't show anything else."""
    diffs: I64 = updates.column(DIFF_COLUMN).to_numpy()
    if len(diffs) and diffs.min() < 0:
        time = updates.column(TIME_COLUMN)[int(np.argmin(diffs))].as_py()
        raise UsageError(
            f"version {time} of table {shard} updates or deletes rows, which a stream of rows "
            "can't show: read it with option('readChangeFeed', 'true')"
        )
    rows = updates.drop_columns([TIME_COLUMN, DIFF_COLUMN])
    if len(diffs) and diffs.max() > 1:
        rows = rows.take(pa.array(np.repeat(np.arange(len(diffs)), diffs)))
    return rows


def stamped(rows: pa.Table, time: int) -> pa.Table:
    """Rows of a snapshot as insertions at its time."""
    return as_updates(rows, rows.column_names, time=time)


def _alone(found: pa.Table) -> pa.Table:
    return found.drop_columns([DIFF_COLUMN]) if DIFF_COLUMN in found.column_names else found


def _range_rows(work: Work, fetch: Fetch) -> pa.Table:
    clean: list[pa.Table] = []
    tail: list[pa.Table] = []
    for each in work.pieces:
        found = _within(each, fetch(each), work)
        if only_inserts(each):
            clean.append(_alone(found))
        else:
            tail.append(found)
    first = work.pieces[0]
    if not tail:
        return pa.concat_tables(clean)
    return expand(overlay(clean, pa.concat_tables(tail), first.schema.key), _what(first))


def _keyless_rows(work: Work, fetch: Fetch) -> Iterator[pa.Table]:
    settled = consolidate(pa.concat_tables(fetch(each) for each in work.against))
    negative = settled.filter(pc.less(settled.column(DIFF_COLUMN), 0))
    touched: list[pa.Table] = []
    for each in work.pieces:
        rest, hit = divide(_alone(fetch(each)), negative, ())
        if work.way is Way.UNTOUCHED:
            yield rest
        elif hit.num_rows:
            touched.append(as_updates(hit, hit.column_names).cast(settled.schema))
    if work.way is Way.TOUCHED:
        total = consolidate(pa.concat_tables([settled, *touched]))
        yield expand(Overlay((), total), _what(work.against[0]))


def _within(each: PartDescriptor, found: pa.Table, work: Work) -> pa.Table:
    """The updates that lie in the range of a task."""
    piece = each.piece
    lo, hi = (piece.place_lo, piece.place_hi) if isinstance(piece, Part) else (0, PLACE_MAX)
    if work.lo <= lo and hi <= work.hi:
        return found
    places = places_of(found, each.schema)
    if places is None:
        return found
    inside: Mask = (places >= np.uint64(work.lo)) & (places <= np.uint64(work.hi))
    return found.filter(pa.array(inside))


def _grouped(updates: pa.Table, schema: Schema) -> tuple[pa.Table, I64]:
    """The updates with those of one key and time beside each other, and the group of each."""
    laid = lay_out(updates, schema)
    if laid.places is None or not updates.num_rows:
        return updates, np.arange(updates.num_rows)
    table = laid.updates
    times = table.column(TIME_COLUMN).to_numpy()
    same: Mask = (laid.places[1:] == laid.places[:-1]) & (times[1:] == times[:-1])
    for name in schema.key if same.any() else ():
        column = table.column(name).combine_chunks()
        same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    groups: I64 = np.concatenate(([0], np.cumsum(~same)))
    order = np.lexsort((table.column(DIFF_COLUMN).to_numpy(), groups))
    return table.take(pa.array(order)), groups


def _updated(diffs: I64, groups: I64) -> I64:
    """1 for each update of a key that has both a retraction and an insertion."""
    if not len(diffs):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    least, most = np.minimum.reduceat(diffs, starts), np.maximum.reduceat(diffs, starts)
    both: I64 = ((least < 0) & (most > 0)).astype(np.int64)
    return both[groups]


def _what(each: PartDescriptor) -> str:
    return f"shard {each.shard} as of {each.as_of}"
