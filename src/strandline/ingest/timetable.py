"""Which time each offset of a source has: what the binding shard says, as values. Pure.

A binding `(time, partition, bound)` says that offsets of the partition below `bound` have a time
of at most `time`. So an offset's time is that of the first binding whose bound is past it.

    B1  bounds of a partition only grow, with time
    B2  below `upper` nothing is added: offsets that are bound there are all there will be
    B3  what was learned once is never learned differently: a later, coarser look adds nothing
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from strandline.errors import InvariantError
from strandline.model.frontier import Frontier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.model.frontier import Time
    from strandline.model.valuehash import I64

Position = dict[str, int]
"""For each partition the next offset; a partition that is missing has not begun."""

Taken = dict[str, tuple[int, int]]
"""For each partition the offsets `[start, stop)`."""


@dataclass(slots=True)
class _Partition:
    times: list[Time] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)

    def learn(self, time: Time, bound: int) -> None:
        if self.bounds and bound <= self.bounds[-1]:
            return
        self.times.append(time)
        self.bounds.append(bound)

    def bound_before(self, end: Frontier) -> int:
        """The offsets below it have times before `end`."""
        last = len(self.times) if end.time is None else bisect_left(self.times, end.time)
        return self.bounds[last - 1] if last else 0


@dataclass(slots=True)
class Timetable:
    """All bindings that are known."""

    upper: Frontier = Frontier(0)
    since: Frontier = Frontier(0)
    """Bindings before it are known only as of its last time."""
    _partitions: dict[str, _Partition] = field(default_factory=dict)

    def learn(self, bindings: Iterable[tuple[Time, str, int]]) -> None:
        """Take in bindings, in any order; those that are known already add nothing."""
        for time, partition, bound in sorted(bindings, key=lambda each: (each[0], each[2])):
            self._partitions.setdefault(partition, _Partition()).learn(time, bound)

    def begins(self, as_of: Time) -> None:
        """What is learned next is what was bound at `as_of`, and after that each at its time."""
        if as_of and not self.upper.settled(as_of):
            self.since = Frontier(as_of + 1)

    def settled(self, upper: Frontier) -> None:
        """Everything before `upper` has been learned."""
        self.upper = max(self.upper, upper)

    def position(self) -> Position:
        """Up to which offset each partition is bound."""
        return {name: each.bounds[-1] for name, each in self._partitions.items() if each.bounds}

    def beyond(self, latest: Mapping[str, int]) -> Position:
        """Of what a source offers, the part that has no times yet."""
        bound = self.position()
        return {name: stop for name, stop in sorted(latest.items()) if stop > bound.get(name, 0)}

    def times(self, partition: str, offsets: I64) -> I64:
        """The time of each offset; one that is not bound has none, and asking is a bug."""
        known = self._partitions.get(partition, _Partition())
        found = np.searchsorted(np.array(known.bounds, np.int64), offsets, side="right")
        if len(offsets) and found.max(initial=0) >= len(known.times):
            raise InvariantError(f"offset {int(offsets.max())} of {partition} has no time yet")
        times: I64 = np.array(known.times, np.int64)[found]
        return times

    def skipped(self, position: Mapping[str, int], needed: Frontier) -> Position:
        """The position after all offsets whose times are before `needed`."""
        ahead = {name: each.bound_before(needed) for name, each in self._partitions.items()}
        names = sorted({*position, *ahead})
        return {name: max(position.get(name, 0), ahead.get(name, 0)) for name in names}

    def next_range(self, position: Mapping[str, int], rows_max: int) -> Taken:
        """What to read next, earliest times first; empty if all that is bound was read."""
        stops: Position = {}
        left = rows_max
        for _, partition, bound in self._unread(position):
            start = stops.get(partition, position.get(partition, 0))
            stop = min(bound, start + left)
            left -= max(0, stop - start)
            stops[partition] = max(start, stop)
            if not left:
                break
        taken = {name: (position.get(name, 0), stop) for name, stop in sorted(stops.items())}
        return {name: each for name, each in taken.items() if each[0] < each[1]}

    def frontier(self, position: Mapping[str, int]) -> Frontier:
        """Before it, every offset that will ever have such a time was read."""
        unread = [time for time, _, _ in self._unread(position)]
        return min(Frontier(min(unread)), self.upper) if unread else self.upper

    def forget(self, before: Frontier) -> None:
        """Merge what nobody will ask for: offsets of earlier times count as read for ever."""
        for each in self._partitions.values():
            last = len(each.times) if before.time is None else bisect_left(each.times, before.time)
            del each.times[: max(0, last - 1)]
            del each.bounds[: max(0, last - 1)]

    def _unread(self, position: Mapping[str, int]) -> list[tuple[Time, str, int]]:
        """The bindings of offsets that were not read, in order of time."""
        found: list[tuple[Time, str, int]] = []
        for name, each in self._partitions.items():
            first = bisect_right(each.bounds, position.get(name, 0))
            found += [
                (time, name, bound)
                for time, bound in zip(each.times[first:], each.bounds[first:], strict=True)
            ]
        return sorted(found)
