"""What becomes of commands: which are LATE, which are DUE, which are EARLY. Pure.

A command has a time that was agreed on beforehand. Its target, a shard, is settled up to `upper`;
its input is complete up to `frontier`. What may be settled now is `[upper, end)`.

    time <  upper           LATE    it is there already, whoever wrote it: drop it
    upper <= time < end     DUE     settle it
    end <= time             EARLY   keep it until the target has come so far

    D1  `upper` is what the shard says now, however far it has moved: it may jump
    D2  a time at or past `frontier` may still get commands, so it is never settled
    D3  `end` is `frontier`, or less where that would be more than `limit`: then the first time
        that does not fit, but never before the first time that has commands is whole
    D4  times may have gaps: an interval without commands is settled like any other
    D5  LATE does not depend on `frontier`: nothing late is ever kept, so nothing late holds
        anything back
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from strandline.model.frontier import Frontier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.model.frontier import Time


class Verdict(Enum):
    """What becomes of a command."""

    LATE = "late"
    DUE = "due"
    EARLY = "early"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with all that is held for one target."""

    upper: Frontier
    """Where the target is; what is before it goes."""
    end: Frontier
    """How far to settle it; `upper` if there is nothing to settle."""
    late: tuple[Time, ...] = ()
    due: tuple[Time, ...] = ()
    early: tuple[Time, ...] = ()

    @property
    def settles(self) -> bool:
        return self.upper < self.end


def verdict(time: Time, upper: Frontier, end: Frontier) -> Verdict:
    """The one question that whoever comes with a command asks."""
    if upper.settled(time):
        return Verdict.LATE
    return Verdict.DUE if end.settled(time) else Verdict.EARLY


def decide(held: Mapping[Time, int], upper: Frontier, frontier: Frontier, limit: int) -> Plan:
    """What to do now with commands at these times, each with its size.

    >>> plan = decide({7: 1, 50: 1, 53: 1}, Frontier(50), Frontier(52), limit=100)
    >>> plan.late, plan.due, plan.early, str(plan.end)
    ((7,), (50,), (53,), '{52}')
    """
    end = _end(held, upper, frontier, limit)
    found: dict[Verdict, list[Time]] = {each: [] for each in Verdict}
    for time in sorted(held):
        found[verdict(time, upper, end)].append(time)
    late, due, early = (tuple(found[each]) for each in Verdict)
    return Plan(upper, end, late, due, early)


def _end(held: Mapping[Time, int], upper: Frontier, frontier: Frontier, limit: int) -> Frontier:
    if frontier <= upper:
        return upper
    taken = 0
    for time in sorted(held):
        if verdict(time, upper, frontier) is not Verdict.DUE:
            continue
        if taken and taken + held[time] > limit:
            return Frontier(time)
        # A time of no size counts too: the next one must not be taken for the first.
        taken += max(1, held[time])
    return frontier
