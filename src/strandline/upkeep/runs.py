"""Which parts count as one run over a place, and which runs are worth merging. Pure.

What a merge gives is divided into insertions and all else (see `outputs`), so a **run** is one
part of each kind: the heaviest of each, the second heaviest of each, and so on. Of every kind a
merge leaves at most one part over a place. So the most numerous kind, of which every run has a
part, loses as many as there were runs but one: merging two runs or more always makes room, and
costs as much as if they had never been divided.
"""

from __future__ import annotations

from itertools import zip_longest
from math import log
from typing import TYPE_CHECKING, TypeAlias

from strandline.parts import ranges
from strandline.upkeep.terrain import Lying

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.parts.part import Part
    from strandline.upkeep.units import Policy

Run: TypeAlias = tuple[Lying, ...]
"""Parts of different kinds that count as one."""

_ROOM = 3
"""What a free run is worth; measured with 100 to 100,000 batches: 2 and 4 are worse."""


def paired(lying: Iterable[Lying]) -> list[Run]:
    """Parts over one place as runs, the lightest first."""
    kinds: dict[tuple[bool, bool], list[Lying]] = {}
    for each in sorted(lying, key=lambda one: one.weight, reverse=True):
        kinds.setdefault((each.part.base, each.part.only_inserts), []).append(each)
    runs = [
        tuple(each for each in abreast if each is not None)
        for abreast in zip_longest(*kinds.values())
    ]
    return runs[::-1]


def lightest(runs: Sequence[Run], depth: int, policy: Policy) -> list[Lying]:
    """The parts of the lightest runs, two at least, whose merge costs least for the room it makes.

    There are `depth` runs over the place, of which these may be merged. None if too few fit.
    """
    by_weight = _fitting(runs, policy)
    fixed = depth - len(by_weight)
    best: tuple[float, int] | None = None
    cost = 0
    for count, run in enumerate(by_weight, start=1):
        cost += max(1, sum(each.weight for each in run))
        free = policy.runs_max - (fixed + len(by_weight) - count + 1)
        if count < 2:
            continue
        score = log(cost) - free * log(_ROOM)
        if best is None or score < best[0]:
            best = (score, count)
    chosen = by_weight[: best[1]] if best is not None else []
    return [each for run in chosen for each in run]


def _fitting(runs: Sequence[Run], policy: Policy) -> list[Run]:
    """As many as one unit may read; half a run would make no room."""
    chosen: list[Run] = []
    room, count = policy.unit_bytes, policy.unit_parts
    for run in runs:
        size = sum(each.part.size for each in run)
        if size <= room and len(run) <= count:
            chosen.append(run)
            room, count = room - size, count - len(run)
    return chosen


def most_over_a_place(parts: Iterable[Part]) -> int:
    """How many of these lie over one place, at most."""
    return ranges.deepest([(part.place_lo, part.place_hi) for part in parts])[1]


def are_merged(deltas: Sequence[Part]) -> bool:
    """Whether these are one run, as a merge of them would leave them again."""
    if most_over_a_place(part for part in deltas if part.inserts) > 1:
        return False
    if most_over_a_place(part for part in deltas if not part.inserts) > 1:
        return False
    # Two of different kinds that no merge has divided may yet be one part.
    return most_over_a_place(deltas) <= 1 or all(part.level > 0 for part in deltas)
