"""How finely the output of a unit is cut, and which stretches of it several tasks can merge. Pure.

Places are hashes, so rows lie evenly over them, and a unit of a keyed shard falls into pieces
that have nothing in common: each is merged from the same inputs, read only where it lies. Where
it is carried out by one process, it is cut as far as parts must stay below a limit; where tasks
wait for work, further, but never into parts so small that the next round would merge them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.parts import ranges
from strandline.parts.part import PLACE_MAX

if TYPE_CHECKING:
    from strandline.upkeep.units import Policy, Unit

HALVINGS_MAX = 8
SMALL_BASES = 4
"""So many base parts may share a range, left over from when there was more in it."""


def tasks_wanted(slots: int) -> int:
    """How many tasks keep so many slots busy, as they are never equally long; 1 without any.

    >>> [tasks_wanted(slots) for slots in (0, 1, 2, 8)]
    [1, 2, 4, 16]
    """
    return max(1, 2 * slots)


def units_at_once(slots: int) -> int:
    """How many units are planned at a time; by the end of them the state has changed anyway.

    >>> [units_at_once(slots) for slots in (0, 2, 8, 32)]
    [8, 8, 16, 64]
    """
    return max(8, tasks_wanted(slots))


def halvings(bulk: float, policy: Policy) -> int:
    """How often a range must be halved for its pieces to be small enough."""
    count = 0
    while bulk > policy.range_max << count and count < HALVINGS_MAX:
        count += 1
    return count


def halvings_for(expected: float, policy: Policy) -> int:
    """How often it may be halved for tasks to share it: no range gets more than `SMALL_BASES`."""
    count = 0
    least = policy.range_max / SMALL_BASES
    while (
        1 << count < tasks_wanted(policy.slots)
        and expected / (2 << count) >= least
        and count < HALVINGS_MAX
    ):
        count += 1
    return count


def spans(unit: Unit, slots: int, least: int) -> list[tuple[int, int]]:
    """The stretches `[lo, hi]` of places, all of them together, that tasks merge one each.

    They end where parts of the output end, so the parts are the same as of one task; and none
    has fewer than about `least` bytes to read. A unit that is not halved is one stretch.
    """
    if not unit.parts:
        return [(0, PLACE_MAX)]
    borders = ranges.borders(ranges.hull(*ranges.span(unit.parts)), unit.halvings)
    pieces = len(borders) + 1
    wanted = min(pieces, tasks_wanted(slots), max(1, unit.size // max(1, least)))
    firsts = [borders[pieces * n // wanted - 1] for n in range(1, wanted)]
    return list(zip([0, *firsts], [*(first - 1 for first in firsts), PLACE_MAX], strict=True))
