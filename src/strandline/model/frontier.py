"""Times, and the frontiers that say how far a collection is settled."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from operator import index
from typing import SupportsIndex

from strandline.errors import BoundsError
from strandline.model.ids import printable

Time = int
"""A point on a timeline: a whole number in `[0, TIME_MAX]`."""

TIME_MAX = 2**63 - 2
"""The largest time; one below the largest 64-bit integer, so that `time + 1` always fits."""


def valid_time(time: object, what: str = "time") -> Time:
    """Return `time` as a plain integer (numpy's are welcome), or say what is wrong with it."""
    if isinstance(time, bool) or not isinstance(time, SupportsIndex):
        raise BoundsError(f"{what} must be a whole number, not {printable(time)}")
    number = index(time)
    if not 0 <= number <= TIME_MAX:
        raise BoundsError(f"{what} {number} is outside [0, {TIME_MAX}]")
    return number


@total_ordering
@dataclass(frozen=True, slots=True)
class Frontier:
    """The earliest time that may still change, or `None` once none ever will.

    Times before the frontier are settled. A shard has two: readers can tell times apart
    from `since` on, and writers have settled every time before `upper`. So a read `as_of`
    a time is exact when `since <= as_of < upper`.

    >>> Frontier(5).settled(4), Frontier(5).settled(5)
    (True, False)
    >>> Frontier(5) < Frontier.closed()
    True
    >>> str(Frontier(7)), str(Frontier.closed())
    ('{7}', '{}')
    """

    time: Time | None = 0

    @classmethod
    def closed(cls) -> Frontier:
        return cls(None)

    @classmethod
    def of(cls, value: Frontier | Time | None, what: str = "frontier") -> Frontier:
        """A frontier from what people write: a frontier, a time, or `None` for closed."""
        time = value.time if isinstance(value, Frontier) else value
        return cls(None) if time is None else cls(valid_time(time, what))

    @property
    def is_closed(self) -> bool:
        return self.time is None

    def settled(self, time: Time) -> bool:
        return self.time is None or time < self.time

    def last(self) -> Time | None:
        """The latest settled time, or `None` if there is none or no last one."""
        return self.time - 1 if self.time else None

    def __lt__(self, other: Frontier) -> bool:
        return self.time is not None and (other.time is None or self.time < other.time)

    def __str__(self) -> str:
        return "{}" if self.time is None else f"{{{self.time}}}"
