"""How the work of a range job is divided: into ranges by bytes, and ranges into tasks. Pure.

    ranges   places are hashes, so keys lie evenly; a border may stand between any two places,
             and none ever stands within one: all rows of a key are in one range
    tasks    as many as two for each slot, or as there are ranges; the heaviest range first, each
             to the task that has least

A task carries its ranges out one after the other, so what it needs at once is one range.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from strandline.parts.part import PLACE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.model.valuehash import U64

F64: TypeAlias = npt.NDArray[np.float64]

_PLACE_STEP = 4096.0

RANGE_BYTES = 32 * 1024 * 1024
"""What came for one range, at most about; old rows, updates and a part come on top."""
TASK_KEYS = 4096
"""Fewer keys than this are not worth a task of their own."""
TASK_PARTS = 16
"""More parts than this are worth another task: what is cold of them has to be read."""
RETURNED_TASKS = 64
"""Only the first tasks of a job may return rows, so that a bound holds for all of them."""
RETURNED_BYTES = 512 * 1024
"""What one of them may return: 32 MB in all at most."""


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that lie somewhere in a stretch of places."""

    place_lo: int
    place_hi: int
    size: int


def task_count(ranges: int, slots: int) -> int:
    """How many tasks carry out so many ranges.

    >>> task_count(3, 2), task_count(100, 2), task_count(0, 2)
    (3, 4, 0)
    """
    return min(2 * max(1, slots), ranges)


def returnable(partition: int, most: int) -> int:
    """How many bytes the task of a partition may return instead of putting them.

    >>> returnable(0, 100), returnable(0, 10**9) == RETURNED_BYTES, returnable(64, 100)
    (100, True, 0)
    """
    return min(most, RETURNED_BYTES) if partition < RETURNED_TASKS else 0


def split_keys(places: U64, tasks: int) -> list[tuple[int, int]]:
    """Sorted places cut into stretches `[lo, hi]` of about equally many that cover all space.

    >>> split_keys(np.array([5, 5, 5, 9], np.uint64), 2) == [(0, 5), (6, 2**64 - 1)]
    True
    """
    wanted = min(tasks, len(places))
    firsts = [int(places[len(places) * n // wanted]) for n in range(1, wanted)]
    return _between(firsts)


def split_bytes(spans: Iterable[Span], target: int = RANGE_BYTES) -> list[tuple[int, int]]:
    """Stretches `[lo, hi]` that cover all space, each with about `target` bytes or fewer.

    Where bytes lie within a span is not known; they are taken to lie evenly.
    """
    listed = [each for each in spans if each.size]
    total = sum(each.size for each in listed)
    pieces = -(-total // target)
    if pieces <= 1:
        return _between([])
    marks, before = _running_total(listed)
    goals = [total * n / pieces for n in range(1, pieces)]
    places = np.interp(goals, before, marks)
    return _between([min(int(place), PLACE_MAX) for place in places])


def _running_total(spans: Sequence[Span]) -> tuple[F64, F64]:
    """Places in order, and how many bytes lie before each of them."""
    starts = np.array([each.place_lo for each in spans], np.uint64).astype(np.float64)
    ends = np.array([each.place_hi for each in spans], np.uint64).astype(np.float64)
    # A single place is given the width at which numbers of this size can be told apart.
    ends = np.maximum(ends, starts + _PLACE_STEP)
    density = np.array([each.size for each in spans], np.float64) / (ends - starts)
    edges = np.concatenate((starts, ends))
    order = np.argsort(edges, kind="stable")
    marks = edges[order]
    level = np.cumsum(np.concatenate((density, -density))[order])
    return marks, np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(marks))))


def _between(firsts: Sequence[int]) -> list[tuple[int, int]]:
    """Stretches that end before each of these places; the last goes to the end of space.

    A place ends the stretch before it, so that `split_keys` never divides equal places.
    """
    lasts = sorted({first for first in firsts if first < PLACE_MAX})
    starts = [0, *(last + 1 for last in lasts)]
    return list(zip(starts, [*lasts, PLACE_MAX], strict=True))


def pack(weights: Sequence[int], tasks: int) -> list[list[int]]:
    """Which pieces each task gets, by their numbers, so that the heaviest task is light.

    >>> pack([5, 1, 4, 2], 2)
    [[0, 1], [2, 3]]
    """
    heap = [(0, at) for at in range(min(tasks, len(weights)))]
    packed: list[list[int]] = [[] for _ in heap]
    for piece in sorted(range(len(weights)), key=lambda at: (-weights[at], at)):
        load, at = heapq.heappop(heap)
        packed[at].append(piece)
        heapq.heappush(heap, (load + max(1, weights[piece]), at))
    return [sorted(pieces) for pieces in packed]
