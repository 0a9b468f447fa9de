"""Where parts lie in the space of places: nested ranges, and how many runs cover a place. Pure.

Compaction cuts its outputs only at halves of halves of the space, so the **hulls** of parts,
the smallest such range around each, are nested or apart, never crossing. A range is told by
its depth and its leading bits: depth 0 is the whole space, and each level halves it.

A part's **bulk** is its size in bytes, or what its rows count for if that is more, so that one
number limits both. Its **weight** is what a run of the same density over the whole space would
be: by it, parts over different ranges compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.model.valuehash import U64
    from strandline.parts.part import Part

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


def deepest(places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The first place that most of these `[lo, hi]` cover, and how many do.

    >>> deepest([(0, 9), (5, 20), (8, 8)])
    (8, 3)
    """
    return deepest_of(
        np.array([lo for lo, _ in places], np.uint64),
        np.array([hi for _, hi in places], np.uint64),
    )


def deepest_of(firsts: U64, lasts: U64) -> tuple[int, int]:
    """The same, of spans as two columns."""
    if not len(firsts):
        return 0, 0
    starts, ends = np.sort(firsts), np.sort(lasts)
    # At a start, all that started at or before it and did not end before it cover it.
    covering = np.searchsorted(starts, starts, side="right") - np.searchsorted(
        ends, starts, side="left"
    )
    at = int(np.argmax(covering))
    return int(starts[at]), int(covering[at])


def overlap(one: Part, other: Part) -> bool:
    return one.place_lo <= other.place_hi and other.place_lo <= one.place_hi
