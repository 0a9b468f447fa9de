"""How a read is divided into tasks: which pieces each of them takes. Pure.

Pieces that only insert can be read by anybody, in any company. A retraction concerns rows with
its key (without a key: rows equal to it), so those have to meet it in one task:

    pieces                           tasks
    -------------------------------  -----------------------------------------------------------
    no retraction                    ROWS: packed by bytes
    keyed, retractions overlap       RANGE: each takes a range of places from all pieces there
    keyed, elsewhere                 ROWS
    no key, snapshot                 UNTOUCHED: packed, each leaves out what may be retracted;
                                     TOUCHED: one task adds up what they left out
    no key, changes                  RANGE: one task for times that share pieces; ROWS elsewhere

Tasks take more bytes than they were told to where there would be more than about `TASKS_MAX`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import InvariantError, invariant
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.inline import decode_inline, inline_of
from strandline.parts.layout import lay_out
from strandline.parts.part import PLACE_MAX, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from strandline.model.frontier import Time
    from strandline.reading.descriptor import PartDescriptor


TASKS_MAX = 100_000
"""Spark's driver holds each of them, and plans no more of them in any useful time."""


class Way(Enum):
    """What a task does with its pieces."""

    ROWS = "rows"
    RANGE = "range"
    UNTOUCHED = "untouched"
    TOUCHED = "touched"


@dataclass(frozen=True, slots=True)
class Work:
    """What one task reads."""

    way: Way
    pieces: tuple[PartDescriptor, ...]
    against: tuple[PartDescriptor, ...] = ()
    """The pieces with retractions, where they are not among `pieces`."""
    lo: int = 0
    hi: int = PLACE_MAX
    """The places that a RANGE is about, both inclusive."""

    @property
    def size(self) -> int:
        return sum(each.size for each in (*self.pieces, *self.against))


def plan_snapshot(parts: Sequence[PartDescriptor], *, bytes_max: int) -> list[Work]:
    """The tasks whose rows together are the snapshot."""
    bytes_max = _enough(parts, bytes_max)
    clean, dirty = _divided(parts)
    if not dirty:
        return _packed(clean, bytes_max)
    if parts[0].schema.key:
        return _by_place(clean, dirty, bytes_max)
    untouched = [
        Work(Way.UNTOUCHED, work.pieces, tuple(dirty)) for work in _packed(clean, bytes_max)
    ]
    return [*untouched, Work(Way.TOUCHED, tuple(clean), tuple(dirty))]


def plan_changes(parts: Sequence[PartDescriptor], *, bytes_max: int) -> list[Work]:
    """The tasks whose updates together are the changes."""
    bytes_max = _enough(parts, bytes_max)
    clean, dirty = _divided(parts)
    if not dirty:
        return _packed(clean, bytes_max)
    if parts[0].schema.key:
        return _by_place(clean, dirty, bytes_max)
    works: list[Work] = []
    free: list[PartDescriptor] = []
    known = {each.id for each in dirty}
    for group in _connected(parts, lambda each: (each.piece.t_min, each.piece.t_max)):
        if any(each.id in known for each in group):
            works.append(Work(Way.RANGE, tuple(group)))
        else:
            free.extend(group)
    return [*_packed(free, bytes_max), *works]


def admit(
    parts: Iterable[PartDescriptor],
    start: Time,
    upper: Time,
    *,
    max_rows: int | None = None,
    max_versions: int | None = None,
    snapshot: bool = False,
) -> Time:
    """How far from `start` towards `upper` one batch goes: at least one version, if there is one.

    The rows of a piece that holds many versions are taken to be spread evenly over them. In a
    snapshot the rows of all versions before `start` count as well: they are read with it.
    """
    end = upper if max_versions is None else min(upper, start + max_versions)
    if max_rows is None or end <= start + 1:
        return max(start, end)
    known = list(parts)
    first = 0 if snapshot else start
    low, high = start + 1, end
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_rows_before(each, first, middle) for each in known) <= max_rows:
            low = middle
        else:
            high = middle - 1
    return low


def _rows_before(each: PartDescriptor, start: Time, end: Time) -> float:
    piece = each.piece
    first, last = max(piece.t_min, start), min(piece.t_max, end - 1)
    return piece.rows * max(0, last - first + 1) / (piece.t_max - piece.t_min + 1)


def only_inserts(each: PartDescriptor) -> bool:
    """Whether every update of a piece inserts one row."""
    piece = each.piece
    if isinstance(piece, Part):
        return piece.only_inserts
    return bool((_updates(each).column(DIFF_COLUMN).to_numpy() == 1).all())


def _updates(each: PartDescriptor) -> pa.Table:
    piece = each.piece
    if isinstance(piece, Part):
        raise InvariantError("a part's updates are not in hand")
    return decode_inline(piece, each.schema, shard=each.shard)


def _divided(
    parts: Iterable[PartDescriptor],
) -> tuple[list[PartDescriptor], list[PartDescriptor]]:
    clean: list[PartDescriptor] = []
    dirty: list[PartDescriptor] = []
    for each in parts:
        (clean if only_inserts(each) else dirty).append(each)
    return clean, dirty


def _enough(parts: Iterable[PartDescriptor], bytes_max: int) -> int:
    """How many bytes a task takes, so that tasks do not become too many."""
    return max(bytes_max, -(-sum(each.size for each in parts) // TASKS_MAX))


def _packed(parts: Iterable[PartDescriptor], bytes_max: int) -> list[Work]:
    works: list[Work] = []
    taken: list[PartDescriptor] = []
    size = 0
    for each in parts:
        if taken and size + each.size > bytes_max:
            works.append(Work(Way.ROWS, tuple(taken)))
            taken, size = [], 0
        taken.append(each)
        size += each.size
    return [*works, Work(Way.ROWS, tuple(taken))] if taken else works


def _by_place(
    clean: list[PartDescriptor], dirty: list[PartDescriptor], bytes_max: int
) -> list[Work]:
    known = {each.id for each in dirty}
    free: list[PartDescriptor] = []
    works: list[Work] = []
    for group in _connected([*clean, *dirty], _span):
        if any(each.id in known for each in group):
            works.extend(_ranges(group, bytes_max))
        else:
            free.extend(group)
    return [*_packed(free, bytes_max), *works]


def _ranges(group: list[PartDescriptor], bytes_max: int) -> Iterator[Work]:
    """Places are hashes, so equal ranges hold about equally many rows."""
    spans = [_span(each) for each in group]
    lo, hi = min(first for first, _ in spans), max(last for _, last in spans)
    count = -(-sum(each.size for each in group) // bytes_max)
    step = max(1, (hi - lo + 1) // max(1, count))
    # Where a part begins, a cut costs nothing: no part is then read by two tasks.
    starts = sorted({first for first, _ in spans if first > lo})
    cuts = {_nearest(starts, lo + step * n, step // 2) for n in range(1, count)}
    edges = [lo, *sorted(cut for cut in cuts if lo < cut <= hi), hi + 1]
    parts = [each for each in group if isinstance(each.piece, Part)]
    inline = [each for each in group if not isinstance(each.piece, Part)]
    stretches = [(first, after - 1) for first, after in pairwise(edges)]
    # They are in order of their first places, so a range goes on where the one before it ended.
    met: list[PartDescriptor] = []
    begun = 0
    for (first, last), few in zip(stretches, _apart(inline, stretches), strict=True):
        met = [each for each in met if _span(each)[1] >= first]
        while begun < len(parts) and _span(parts[begun])[0] <= last:
            met.append(parts[begun])
            begun += 1
        invariant(met or few or count > 1, "a group of pieces has no piece")
        if met or few:
            yield Work(Way.RANGE, (*few, *met), lo=first, hi=last)


def _apart(
    inline: list[PartDescriptor], stretches: list[tuple[int, int]]
) -> Iterator[list[PartDescriptor]]:
    """Inline rows range by range: they travel with tasks, and there may be thousands of these."""
    if not inline or len(stretches) == 1:
        yield from (inline for _ in stretches)
        return
    one = inline[0]
    found = [_updates(each) for each in inline]
    laid = lay_out(pa.concat_tables(found).combine_chunks(), one.schema)
    for lo, hi in stretches:
        rows = laid.between(lo, hi).updates
        if not rows.num_rows:
            yield []
            continue
        piece = inline_of(rows, one.schema)
        # Tasks leave out what is of other ranges, so more than their own does no harm.
        yield inline if piece is None else [replace(one, piece=piece)]


def _nearest(starts: list[int], wanted: int, within: int) -> int:
    at = bisect_left(starts, wanted)
    best = min(
        starts[max(0, at - 1) : at + 1], key=lambda start: abs(start - wanted), default=wanted
    )
    return best if abs(best - wanted) <= within else wanted


def _connected(
    parts: Iterable[PartDescriptor], span: Callable[[PartDescriptor], tuple[int, int]]
) -> Iterator[list[PartDescriptor]]:
    """Groups of pieces such that spans of different groups do not overlap."""
    group: list[PartDescriptor] = []
    end = -1
    for each in sorted(parts, key=span):
        first, last = span(each)
        if group and first > end:
            yield group
            group = []
        group.append(each)
        end = max(end, last)
    if group:
        yield group


def _span(each: PartDescriptor) -> tuple[int, int]:
    """The places of a piece; those of inline rows are not known, so they may be anywhere."""
    piece = each.piece
    return (piece.place_lo, piece.place_hi) if isinstance(piece, Part) else (0, PLACE_MAX)
