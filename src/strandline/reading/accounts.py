"""What a subscription has listed, fetched and given out so far: one lock around pure decisions.

    take_in ─► todo ─► (fetched, here or elsewhere) ─► arrived ─► ready ─► given out
                                                  └─► failed ─► stuck at its time, for ever

There are two frontiers. `frontier` says what is still owed: it is ahead of the consumer, and
closed once everything was let go. `given` says what the consumer has: whoever goes on from
there later misses nothing. Times are given up in the lease with `given`.

Everything that waits, waits on `changed`, and every change notifies it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from strandline.errors import HandleClosedError, LeaseLostError, StrandlineError
from strandline.model.frontier import Frontier
from strandline.reading.events import Event, Progress, Updates
from strandline.reading.ledger import Ledger
from strandline.reading.progress import Coalescer
from strandline.reading.watch import Sight

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.model.frontier import Time
    from strandline.model.tasks import Condition
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.lister import Increment
    from strandline.shard.lease import Pin, ReadLease

Ready = tuple[Event, "PartDescriptor | None"]
"""Something to give out, and the part whose bytes it takes up."""


class Accounts:
    """The books of one subscription. Any task may use them."""

    def __init__(self, changed: Condition, as_of: Time, *, budget: int) -> None:
        self.changed = changed
        self._as_of = as_of
        self._budget = budget
        self._ledger = Ledger(Frontier(as_of))
        self._steps: Coalescer | None = None
        self._todo: deque[PartDescriptor] = deque()
        self._ready: deque[Ready] = deque()
        self._owed: dict[str, PartDescriptor] = {}
        self._pins: dict[str, Pin] = {}
        self._lease: ReadLease | None = None
        self._given = Frontier(as_of)
        self._abroad = False
        self._over = False

    def hold(self, lease: ReadLease) -> None:
        """Times that are given out are given up in this lease."""
        self._lease = lease

    @property
    def frontier(self) -> Frontier:
        """What is told in the queue; closed once everything was let go."""
        return Frontier.closed() if self._over else self.told

    @property
    def told(self) -> Frontier:
        """The last step in the queue, whether it was taken from there or not."""
        return Frontier(self._as_of) if self._steps is None else self._steps.told

    @property
    def given(self) -> Frontier:
        """How far everything is in the consumer's hands; it stays when all is let go."""
        return self._given

    @property
    def failure(self) -> StrandlineError | None:
        failure = self._ledger.failure
        error = None if failure is None else failure.error
        return error if isinstance(error, StrandlineError) else None

    @property
    def outstanding(self) -> int:
        return self._ledger.outstanding

    @property
    def finished(self) -> bool:
        """Whether everything that was ever asked for has arrived."""
        return self._ledger.frontier.is_closed

    @property
    def listing_over(self) -> bool:
        """Whether nothing more is to be listed."""
        return self._over or self._ledger.listing_over

    @property
    def over(self) -> bool:
        """Whether everything was let go."""
        return self._over

    def go_abroad(self) -> None:
        """From now on workers outside fetch, so what has arrived is in the consumer's hands.

        The caller holds the lock.
        """
        self._abroad = True
        self._give_up(self.told)

    def take_in(self, increment: Increment) -> None:
        """Owe what was listed, and keep it until it has arrived."""
        with self.changed:
            if self._over or self._ledger.listing_over:
                return
            if self._steps is None:
                self._steps = Coalescer(
                    Frontier(self._as_of), target=increment.upper, budget=self._budget
                )
            for part in increment.listed.parts:
                self._owed[part.id] = part
                self._ledger.owe(part.id, part.owed)
                if part.part is not None:
                    self._pins[part.id] = increment.pin.share()
            self._ledger.list_up_to(increment.frontier)
            self._todo.extend(increment.listed.parts)
            self._tell()

    def take(self) -> PartDescriptor | None:
        """The next part that somebody should fetch. The caller holds the lock."""
        return self._todo.popleft() if self._todo else None

    def take_all(self) -> list[PartDescriptor]:
        with self.changed:
            parts = list(self._todo)
            self._todo.clear()
            return parts

    def give_back(self, part: PartDescriptor) -> None:
        """Whoever took a part will not fetch it: it is the next that somebody should."""
        with self.changed:
            waits = any(each.id == part.id for each in self._todo)
            if part.id in self._owed and not waits:
                self._todo.appendleft(part)
                self.changed.notify_all()

    @property
    def backlog(self) -> int:
        return len(self._todo)

    def arrived(self, part: PartDescriptor, rows: pa.Table | None = None) -> bool:
        """The bytes of a part are in hand; whether its rows now wait to be given out."""
        with self.changed:
            pin = self._pins.pop(part.id, None)
            if pin is not None:
                pin.give_back()
            if self._over or self._owed.pop(part.id, None) is None:
                return False
            waits = rows is not None and rows.num_rows > 0
            if rows is not None and waits:
                self._ready.append((Updates(rows), part))
            self._ledger.arrived(part.id)
            if self._steps is not None:
                self._steps.emitted(part.size)
            self._tell()
            return waits

    def failed(self, part: PartDescriptor, error: StrandlineError) -> None:
        """A part will never arrive: the frontier stays at its time, and so does its pin."""
        with self.changed:
            if not self._over and part.id in self._owed:
                self._ledger.failed(part.id, error)
                self._tell()

    def listing_failed(self, error: StrandlineError) -> None:
        """Nothing more will be listed."""
        with self.changed:
            if not self._over:
                self._ledger.listing_failed(error)
                self._tell()

    def take_error(self, *, early: bool) -> StrandlineError | None:
        """The error to report, once: when nothing before it can arrive any more, or `early`."""
        with self.changed:
            if not early and not self._ledger.stuck:
                return None
            failure = self._ledger.take_error()
            error = None if failure is None else failure.error
            return error if isinstance(error, StrandlineError) else None

    def give(self, event: Event) -> None:
        with self.changed:
            self._ready.append((event, None))
            self.changed.notify_all()

    def hand_out(self) -> Ready | None:
        """Give the next thing to the consumer. The caller holds the lock."""
        ready = self.next_ready()
        if ready is not None and isinstance(ready[0], Progress):
            self._give_up(ready[0].frontier)
        return ready

    def next_ready(self) -> Ready | None:
        """The next thing to give out. The caller holds the lock."""
        return self._ready.popleft() if self._ready else None

    def let_go(self) -> None:
        """Give up everything: parts, rows, times."""
        with self.changed:
            self._over = True
            self._todo.clear()
            self._ready.clear()
            self._owed.clear()
            for pin in self._pins.values():
                pin.give_back()
            self._pins.clear()
            self.changed.notify_all()

    def sight(self, upper: Frontier) -> Sight:
        """What the watchdog looks at."""
        with self.changed:
            oldest = self._ledger.oldest()
            part = None if oldest is None else self._owed.get(oldest[0])
            error = self.failure
            return Sight(
                frontier=self.frontier if self._over else self._ledger.frontier,
                upper=upper,
                oldest="" if part is None else f"{part} at {part.owed}",
                ready=self._waits,
                error="" if error is None else str(error),
                closed=self._over or (self.finished and not self._waits),
            )

    @property
    def _waits(self) -> bool:
        """Whether it is the consumer's turn: to take events, or, as a worker, parts."""
        return bool(self._todo) or (bool(self._ready) and not self._abroad)

    def _tell(self) -> None:
        """Queue how far it has come. The caller holds the lock."""
        frontier = self._ledger.frontier
        if self._steps is not None:
            step = self._steps.step(frontier, final=self._ledger.stuck)
            if step is not None:
                if self._ready and isinstance(self._ready[-1][0], Progress):
                    self._ready.pop()
                self._ready.append((Progress(step), None))
            if self._abroad:
                self._give_up(self.told)
        self.changed.notify_all()

    def _give_up(self, frontier: Frontier) -> None:
        """The consumer has everything before the frontier: nobody needs those times here."""
        if self._over or frontier <= self._given:
            return
        self._given = frontier
        last = frontier.last()
        if self._lease is None or last is None or last <= self._as_of:
            return
        try:
            self._lease.downgrade(last)
        except HandleClosedError:
            return  # Everything has arrived, so the lister gave the lease back, maybe just now.
        except LeaseLostError as error:
            # Its frames are those of whoever took the event.
            self._ledger.listing_failed(error.with_traceback(None))
