"""Lists what a subscription has to fetch: the snapshot first, then change after change.

    as_of            settled: the snapshot at as_of and all changes after it, from one state
    later            more is settled: the changes from where the last listing ended
    until            reached, or the shard is closed: nothing more will come

Each listing pins its state before it looks; the parts share the pin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.model.frontier import Frontier
from strandline.reading.request import Bounds
from strandline.reading.view import Described, described, pinned_view, same_shard

if TYPE_CHECKING:
    from strandline.model.frontier import Time
    from strandline.reading.request import Request
    from strandline.reading.view import View
    from strandline.shard.lease import Pin, ReadLease
    from strandline.shard.state import State


@dataclass(frozen=True, slots=True)
class Range:
    """Which times are asked for: as of one, and everything after it before `until`."""

    as_of: Time
    until: Frontier
    snapshot: bool


@dataclass(frozen=True, slots=True)
class Increment:
    """One listing: what is owed, how far it goes, and the pin that keeps it."""

    listed: Described
    frontier: Frontier
    upper: Frontier
    pin: Pin


class Lister:
    """The listings of one subscription, one after the other."""

    def __init__(self, lease: ReadLease, request: Request, times: Range) -> None:
        self._lease = lease
        self._request = request
        self._times = times
        self._after = times.as_of + 1
        self._begun = False
        self.state: State = lease.machine.state
        """The state that was seen last."""
        self.upper = Frontier(times.as_of)
        """How far the shard was seen to be settled, as far as it is asked for."""

    def step(self) -> Increment | None:
        """List what is new; `None` if there is nothing. The caller gives the pin back."""
        view = pinned_view(self._lease)
        try:
            self.state = same_shard(view.state, self.state.id)
            target = min(view.upper, self._times.until)
            self.upper = max(self.upper, target)
            increment = self._list(view, target)
        except BaseException:
            view.pin.give_back()
            raise
        if increment is None:
            view.pin.give_back()
        return increment

    def _list(self, view: View, target: Frontier) -> Increment | None:
        times = self._times
        if times.until <= Frontier(times.as_of):
            return Increment(Described([], []), Frontier.closed(), target, view.pin)
        if not target.settled(times.as_of) or (self._begun and target <= Frontier(self._after)):
            return None
        found = Described([], [])
        if times.snapshot and not self._begun:
            found = described(
                self._lease.machine, view.state, self._request, Bounds(as_of=times.as_of)
            )
        upto = max(self._after, self._end(view, target))
        if upto > self._after:
            bounds = Bounds(after=self._after, upto=upto)
            more = described(self._lease.machine, view.state, self._request, bounds)
            found = Described([*found.parts, *more.parts], [*found.audits, *more.audits])
        over = target.is_closed or target == times.until
        increment = Increment(found, Frontier.closed() if over else target, target, view.pin)
        # Only now: an error above must leave everything to be listed again.
        self._begun, self._after = True, upto
        return increment

    def _end(self, view: View, target: Frontier) -> Time:
        """The first time that is not listed; a closed shard has nothing after its last batch."""
        if target.time is not None:
            return target.time
        batches = view.state.batches
        return batches[-1].upper if batches else self._after
