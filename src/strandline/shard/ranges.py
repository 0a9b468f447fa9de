"""Where parts lie in the space of places: nested ranges, and how many runs cover a place. Pure.

Compaction cuts its outputs only at halves of halves of the space, so the **hulls** of parts,
the smallest such range around each, are nested or apart, never crossing. A range is told by
its depth and its leading bits: depth 0 is the whole space, and each level halves it.

A part's **bulk** is its size in bytes, or what its rows count for if that is more, so that one
number limits both. Its **weight** is what a run of the same density over the whole space would
be: by it, parts over different ranges compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.shard.part import Part

PLACE_BITS = 64

Range: TypeAlias = tuple[int, int]
"""Depth and leading bits."""

WHOLE: Range = (0, 0)


def hull(place_lo: int, place_hi: int) -> Range:
    """The smallest range around `[place_lo, place_hi]`.

    >>> hull(0, 2**64 - 1), hull(2**63, 2**63 + 1), hull(5, 5)
    ((0, 0), (63, 4611686018427387904), (64, 5))
    """
    depth = PLACE_BITS - (place_lo ^ place_hi).bit_length()
    return depth, place_lo >> (PLACE_BITS - depth)


def above(inner: Range, depth: int) -> Range:
    """The range of a smaller depth that `inner` lies in."""
    return depth, inner[1] >> (inner[0] - depth)


def within(inner: Range, outer: Range) -> bool:
    return inner[0] >= outer[0] and above(inner, outer[0]) == outer


def borders(around: Range, halvings: int) -> list[int]:
    """The first places of the equal pieces of a range that was halved so often, but the first.

    >>> borders((0, 0), 1) == [2**63]
    True
    """
    depth, bits = around
    halvings = min(halvings, PLACE_BITS - depth)
    shift = PLACE_BITS - depth - halvings
    first = bits << halvings
    return [(first + n) << shift for n in range(1, 1 << halvings)]


def places_in(around: Range) -> tuple[int, int]:
    """The first and the last place of a range.

    >>> places_in((1, 0)) == (0, 2**63 - 1)
    True
    """
    depth, bits = around
    shift = PLACE_BITS - depth
    return bits << shift, ((bits + 1) << shift) - 1


def span(parts: Iterable[Part]) -> tuple[int, int]:
    """The first and the last place of all parts; there is at least one."""
    places = [(part.place_lo, part.place_hi) for part in parts]
    return min(lo for lo, _ in places), max(hi for _, hi in places)


@dataclass(frozen=True, slots=True)
class Lying:
    """One part and where it counts: at its hull, or wider if that still is a small range."""

    part: Part
    bulk: int
    at: Range

    @property
    def weight(self) -> int:
        return self.bulk << self.at[0]

    def reach(self, small: int) -> tuple[int, int]:
        """The places that it counts at: its own, or all of its range if its bulk is `small`.

        A small part has gaps between its keys that mean nothing: a thousand parts of one row each
        hardly share a place, and still are a thousand parts to read.
        """
        if self.bulk >= small:
            return self.part.place_lo, self.part.place_hi
        return places_in(self.at)


def bulk_of(part: Part, row_bytes: int) -> int:
    return max(part.size, part.rows * row_bytes)


def lie(parts: Sequence[Part], *, row_bytes: int, range_max: int) -> list[Lying]:
    """Find each part's range; parts in a range of at most `range_max` all count as wide as it.

    A part of a few rows has a tight hull that says nothing. What belongs together is what can
    be rewritten as one part, so the range is widened as long as all within it stays that small.
    """
    bulks = [bulk_of(part, row_bytes) for part in parts]
    hulls = [hull(part.place_lo, part.place_hi) for part in parts]
    inside: dict[Range, int] = {}
    for bulk, own in zip(bulks, hulls, strict=True):
        for depth in range(own[0] + 1):
            node = above(own, depth)
            inside[node] = inside.get(node, 0) + bulk
    return [
        Lying(part, bulk, _widest(own, inside, range_max))
        for part, bulk, own in zip(parts, bulks, hulls, strict=True)
    ]


def _widest(own: Range, inside: dict[Range, int], range_max: int) -> Range:
    for depth in range(own[0]):
        node = above(own, depth)
        if inside[node] <= range_max:
            return node
    return own


def deepest(places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The first place that most of these `[lo, hi]` cover, and how many do.

    >>> deepest([(0, 9), (5, 20), (8, 8)])
    (8, 3)
    """
    if not places:
        return 0, 0
    starts = np.sort(np.array([lo for lo, _ in places], np.uint64))
    ends = np.sort(np.array([hi for _, hi in places], np.uint64))
    # At a start, all that started at or before it and did not end before it cover it.
    covering = np.searchsorted(starts, starts, side="right") - np.searchsorted(
        ends, starts, side="left"
    )
    at = int(np.argmax(covering))
    return int(starts[at]), int(covering[at])


def overlap(one: Part, other: Part) -> bool:
    return one.place_lo <= other.place_hi and other.place_lo <= one.place_hi
