"""Who still owes what: the accounts of outstanding fetches, one per time. Pure.

Whatever is listed is owed at a time, and fetched in any order. The frontier says how far
everything has arrived:

    frontier == min(listed, owed time of everything that has not arrived)

Rules, each with a test:

    L1  the frontier is never ahead of what was listed, nor of anything that is owed
    L2  the frontier never moves back
    L3  nothing is owed before what was listed already: list first what you owe, then move on
    L4  what failed is owed for ever, so the frontier never passes its time; what arrives
        afterwards is accepted as rows, and changes nothing else
    L5  the first error is reported once, and no other is; after a failed listing nothing is listed
    L6  an arrival settles its own account only, whatever the order of arrivals
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from strandline.errors import invariant
from strandline.model.frontier import Frontier, Time


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a frontier stays where it is."""

    part: str
    """What failed; empty if it was the listing itself."""
    time: Time
    error: BaseException


class Ledger:
    """The accounts of one reader. Not safe for several tasks at once: its owner locks."""

    def __init__(self, start: Frontier) -> None:
        self._listed = start
        self._owed: dict[str, Time] = {}
        self._counts: dict[Time, int] = {}
        self._times: list[Time] = []
        self._failed: set[str] = set()
        self._failure: Failure | None = None
        self._reported = False
        self._listing_over = False

    @property
    def listed(self) -> Frontier:
        return self._listed

    @property
    def frontier(self) -> Frontier:
        while self._times and self._times[0] not in self._counts:
            heapq.heappop(self._times)
        if not self._times:
            return self._listed
        return min(self._listed, Frontier(self._times[0]))

    @property
    def failure(self) -> Failure | None:
        """The first thing that went wrong, for ever."""
        return self._failure

    @property
    def listing_over(self) -> bool:
        """Whether the listing failed."""
        return self._listing_over

    @property
    def stuck(self) -> bool:
        """Whether the frontier will never move again, because of a failure."""
        failed = [self._owed[part] for part in self._failed]
        if failed and self.frontier == Frontier(min(failed)):
            return True
        return self._listing_over and self.frontier == self._listed

    @property
    def outstanding(self) -> int:
        """How many have neither arrived nor failed."""
        return len(self._owed) - len(self._failed)

    def oldest(self) -> tuple[str, Time] | None:
        """What holds the frontier back most: the first part that was listed at its time."""
        if not self._owed:
            return None
        return min(self._owed.items(), key=lambda account: account[1])

    def owe(self, part: str, time: Time) -> None:
        """From now on, `time` waits for `part`."""
        invariant(not self._listing_over, "L5: a listing that failed lists nothing more")
        invariant(part not in self._owed, f"L6: {part} is owed already")
        invariant(not self._listed.settled(time), f"L3: {time} was listed, up to {self._listed}")
        self._owed[part] = time
        if time not in self._counts:
            heapq.heappush(self._times, time)
        self._counts[time] = self._counts.get(time, 0) + 1

    def list_up_to(self, frontier: Frontier) -> None:
        """Everything before `frontier` is owed or has arrived."""
        invariant(not self._listing_over, "L5: a listing that failed lists nothing more")
        invariant(self._listed <= frontier, f"L2: listed {self._listed}, then {frontier}")
        self._listed = frontier

    def arrived(self, part: str) -> None:
        """The bytes of `part` are here. A part that has failed stays owed (L4)."""
        invariant(part in self._owed, f"L6: {part} is not owed")
        if part in self._failed:
            return
        time = self._owed.pop(part)
        left = self._counts[time] - 1
        if left:
            self._counts[time] = left
        else:
            del self._counts[time]

    def failed(self, part: str, error: BaseException) -> None:
        """`part` will never arrive."""
        invariant(part in self._owed, f"L6: {part} is not owed")
        self._failed.add(part)
        self._note(Failure(part, self._owed[part], error))

    def listing_failed(self, error: BaseException) -> None:
        """Nothing more will be listed: the frontier stays at or before what was."""
        self._listing_over = True
        if not self._listed.is_closed:
            self._note(Failure("", self._listed.time or 0, error))

    def take_error(self) -> Failure | None:
        """The failure, the first time that somebody asks after it happened."""
        if self._reported or self._failure is None:
            return None
        self._reported = True
        return self._failure

    def _note(self, failure: Failure) -> None:
        if self._failure is None:
            self._failure = failure
