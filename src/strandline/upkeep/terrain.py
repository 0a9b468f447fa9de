"""All parts of a shard as columns: where each lies, and how much it counts there. Pure.

A shard may have 100,000 parts, of which one round of upkeep touches a few. So planning works on
arrays, and a `Part` is made only of what may become the input of a unit.

A **node** is a range as its depth and its first place: parts in order of place are in order of
node too, at every depth, so ranges are found by binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from strandline.parts.chunk import PartTable
from strandline.parts.ranges import PLACE_BITS, Range, places_in
from strandline.upkeep.units import RESIDUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from strandline.model.frontier import Time
    from strandline.model.valuehash import I64, U64, Mask
    from strandline.parts.part import Part

    Shares: TypeAlias = npt.NDArray[np.float64]

Node: TypeAlias = tuple[int, int]
"""Depth and first place."""

MASKS = np.array(
    [(2**PLACE_BITS - 1) ^ (2 ** (PLACE_BITS - depth) - 1) for depth in range(PLACE_BITS + 1)],
    np.uint64,
)
"""By depth: the bits of a place that tell in which range it lies."""

_COLUMNS = ("size", "rows", "t_min", "t_max", "base", "inserts", "level")
_PLACES = ("place_lo", "place_hi")


@dataclass(frozen=True, slots=True)
class Lying:
    """One part and where it counts: at its hull, or wider if that still is a small range."""

    number: int
    part: Part
    bulk: int
    at: Range

    @property
    def weight(self) -> int:
        return self.bulk << self.at[0]


class Terrain:
    """The parts of some batches, numbered in their order."""

    def __init__(
        self,
        sources: Sequence[tuple[int, Sequence[Part] | PartTable]],
        *,
        row_bytes: int,
        range_max: int,
    ) -> None:
        """Each source comes with the number of its batch."""
        self._sources = [parts for _, parts in sources]
        lengths = [len(parts) for parts in self._sources]
        self._starts = np.cumsum([0, *lengths])
        columns = {name: _column(self._sources, name) for name in (*_COLUMNS, *_PLACES)}
        self.home: I64 = np.repeat(np.array([at for at, _ in sources], np.int64), lengths)
        self.size: I64 = columns["size"].astype(np.int64)
        self.bulk: I64 = np.maximum(self.size, columns["rows"].astype(np.int64) * row_bytes)
        self.t_min: I64 = columns["t_min"].astype(np.int64)
        self.t_max: I64 = columns["t_max"].astype(np.int64)
        self.base: Mask = columns["base"].astype(np.bool_)
        self.inserts: Mask = columns["inserts"].astype(np.bool_) & ~self.base
        self.level: I64 = columns["level"].astype(np.int64)
        self.place_lo: U64 = columns["place_lo"].astype(np.uint64)
        self.place_hi: U64 = columns["place_hi"].astype(np.uint64)
        self.by_place = np.argsort(self.place_lo, kind="stable")
        self.depth = self._depths(range_max)
        self.first: U64 = self.place_lo & MASKS[self.depth]
        self._made: dict[int, Lying] = {}

    def __len__(self) -> int:
        return len(self.size)

    def _depths(self, range_max: int) -> I64:
        """Find each part's range; parts in a range of at most `range_max` all count as wide as it.

        A part of a few rows has a tight hull that says nothing. What belongs together is what
        can be rewritten as one part, so the range is widened as long as all within it stays that
        small. What was found to be small needs no narrower range, so it drops out.
        """
        own = hull_depths(self.place_lo, self.place_hi)
        found = own.copy()
        left = self.by_place
        for depth in range(PLACE_BITS):
            left = left[own[left] >= depth]
            if not len(left):
                break
            first = self.place_lo[left] & MASKS[depth]
            starts = np.flatnonzero(np.concatenate(([True], first[1:] != first[:-1])))
            small = np.add.reduceat(self.bulk[left], starts) <= range_max
            if small.any():
                each = np.repeat(small, np.diff(np.append(starts, len(left))))
                found[left[each]] = depth
                left = left[~each]
        return found

    def lying(self, numbers: Iterable[int] | I64) -> list[Lying]:
        """These parts as values, in this order."""
        wanted = [int(number) for number in numbers]
        missing = np.array(sorted({n for n in wanted if n not in self._made}), np.int64)
        homes = np.searchsorted(self._starts, missing, side="right") - 1
        for source in np.unique(homes):
            own = missing[homes == source]
            parts = _parts(self._sources[source], own - self._starts[source])
            for number, part in zip(own.tolist(), parts, strict=True):
                depth = int(self.depth[number])
                at = (depth, int(self.first[number]) >> (PLACE_BITS - depth))
                self._made[number] = Lying(number, part, int(self.bulk[number]), at)
        return [self._made[number] for number in wanted]

    def reach(self, small: int) -> tuple[U64, U64]:
        """The places that each counts at: its own, or all of its range if its bulk is `small`.

        A small part has gaps between its keys that mean nothing: a thousand parts of one row each
        hardly share a place, and still are a thousand parts to read.
        """
        large = self.bulk >= small
        lo: U64 = np.where(large, self.place_lo, self.first)
        hi: U64 = np.where(large, self.place_hi, self.first | ~MASKS[self.depth])
        return lo, hi

    def passed(self, since: Time) -> Shares:
        """Of each the share of its updates that `since` has passed (see `foldable`)."""
        residue = self.level == RESIDUE
        times = self.t_max - self.t_min + ~residue
        gone = np.minimum(since, self.t_max) - self.t_min + ~residue
        share: Shares = gone / np.maximum(times, 1)
        share[self.base | (self.t_min > since)] = 0.0
        return share

    def within(self, around: Range) -> Mask:
        """Which lie in a range."""
        first = np.uint64(places_in(around)[0])
        mask: Mask = (self.depth >= around[0]) & ((self.first & MASKS[around[0]]) == first)
        return mask

    def touching(self, lo: int, hi: int) -> Mask:
        """Which have a place in `[lo, hi]`."""
        mask: Mask = (self.place_lo <= np.uint64(hi)) & (self.place_hi >= np.uint64(lo))
        return mask


class Nodes:
    """The ranges of some parts, and which others lie in them or around them."""

    def __init__(self, terrain: Terrain, chosen: Mask) -> None:
        self._terrain = terrain
        numbers = terrain.by_place[chosen[terrain.by_place]]
        depths = terrain.depth[numbers]
        self._levels: dict[int, tuple[U64, I64]] = {}
        for depth in np.unique(depths).tolist():
            own = numbers[depths == depth]
            self._levels[depth] = (terrain.first[own], own)

    def around(self, numbers: I64) -> I64:
        """Of each of these parts the depth of the narrowest node that it lies in, or -1."""
        depths, places = self._terrain.depth[numbers], self._terrain.first[numbers]
        found: I64 = np.full(len(numbers), -1, np.int64)
        for depth, (firsts, _) in sorted(self._levels.items()):
            wanted = places & MASKS[depth]
            at = np.minimum(np.searchsorted(firsts, wanted), len(firsts) - 1)
            found[(firsts[at] == wanted) & (depths >= depth)] = depth
        return found

    def any_within(self, numbers: I64) -> Mask:
        """Of each of these parts whether a node lies in its range."""
        depths, first = self._terrain.depth[numbers], self._terrain.first[numbers]
        last = first | ~MASKS[depths]
        found: Mask = np.zeros(len(numbers), np.bool_)
        for depth, (firsts, _) in self._levels.items():
            begin = np.searchsorted(firsts, first, side="left")
            end = np.searchsorted(firsts, last, side="right")
            found |= (depths <= depth) & (end > begin)
        return found

    def members(self, node: Node) -> I64:
        """The parts of exactly this range, in their order."""
        if node[0] not in self._levels:
            return np.zeros(0, np.int64)
        firsts, own = self._levels[node[0]]
        place = np.uint64(node[1])
        begin, end = np.searchsorted(firsts, place), np.searchsorted(firsts, place, side="right")
        return np.sort(own[begin:end])

    def crowded(self, small: int) -> set[Node]:
        """Ranges with more than `small` parts, or of which two share a place."""
        found: set[Node] = set()
        lo, hi = self._terrain.place_lo, self._terrain.place_hi
        for depth, (firsts, own) in self._levels.items():
            crossing = (firsts[1:] == firsts[:-1]) & (lo[own[1:]] <= hi[own[:-1]])
            many = firsts[small:] == firsts[: max(0, len(firsts) - small)]
            crowds = np.concatenate((firsts[1:][crossing], firsts[small:][many]))
            found.update((depth, int(first)) for first in np.unique(crowds))
        return found


def hull_depths(lo: U64, hi: U64) -> I64:
    """The depth of the smallest range around each `[lo, hi]` (see `ranges.hull`)."""
    differing = lo ^ hi
    half = np.uint64(32)
    upper, lower = differing >> half, differing & np.uint64(2**32 - 1)
    # A float holds 32 bits exactly, so its exponent is the number of bits.
    bits = np.where(
        upper > 0,
        np.frexp(upper.astype(np.float64))[1] + 32,
        np.frexp(lower.astype(np.float64))[1],
    )
    return (PLACE_BITS - bits).astype(np.int64)


def _column(sources: Sequence[Sequence[Part] | PartTable], name: str) -> U64:
    kind = np.uint64 if name.startswith("place") else np.int64
    pieces: list[U64] = [np.zeros(0, kind)]
    for parts in sources:
        if isinstance(parts, PartTable):
            pieces.append(parts.column(name))
        else:
            pieces.append(np.array([getattr(part, name) for part in parts], kind))
    return np.concatenate(pieces)


def _parts(source: Sequence[Part] | PartTable, numbers: I64) -> list[Part]:
    if isinstance(source, PartTable):
        return PartTable(source.columns.take(pa.array(numbers))).parts()
    return [source[int(number)] for number in numbers]
