"""What runs behind a subscription: it lists, fetches, and holds the lease until it may go.

    who has it                    what then becomes of the feed
    --------------------------    ---------------------------------------------------------------
    a `Subscription`, a `Worker`  goes on, whether it is asked for anything or not
    nobody any more               nobody can take what it brings: it lets go of everything, at the
                                  next look, as if it had been closed

So the tasks here know the feed and never the handle, which is only noticed to be gone. Errors are
kept, too, and whoever raises one leaves frames on it that know the handle: so what comes in from
outside is copied, and what goes out is a copy.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from strandline.errors import (
    CorruptionError,
    InvariantError,
    SinceError,
    StalledError,
    StrandlineError,
    UsageError,
)
from strandline.model.frontier import Frontier
from strandline.reading.accounts import Accounts
from strandline.reading.diagnose import diagnose
from strandline.reading.events import Failure
from strandline.reading.extract import stamped
from strandline.reading.fetch import BUGS, Fetcher, bug, fetch_rule
from strandline.reading.follow import Follower, Hooks
from strandline.reading.lister import Lister
from strandline.reading.snapshot import check_audits
from strandline.reading.stop import Stop
from strandline.reading.watch import Health, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from strandline.model.tasks import Event as Signal, Task
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.events import Event
    from strandline.reading.fetch import Fetched
    from strandline.reading.lister import Increment, Range
    from strandline.reading.request import Request
    from strandline.reading.watch import Status
    from strandline.shard.lease import ReadLease
    from strandline.shard.machine import Machine

_log = logging.getLogger(__name__)

OnError = Literal["raise", "signal", "halt"]
_BACKLOG = 4096
"""With so many parts waiting to be fetched, nothing more is listed."""
_LOOK_MS = 1_000
_JOIN_MS = 1_000


@dataclass(frozen=True, slots=True)
class Options:
    """How a subscription behaves, apart from what it reads."""

    on_error: OnError | Callable[[StrandlineError], None] = "raise"
    start_signal: Signal | Callable[[], bool] | None = None
    workers: int = 1


class Feed:
    """The tasks and the books of one subscription. Any task may use it."""

    def __init__(
        self,
        machine: Machine,
        lease: ReadLease | SinceError,
        request: Request,
        times: Range,
        options: Options,
    ) -> None:
        env = machine.env
        self.as_of = times.as_of
        self.shard = machine.name
        self._machine = machine
        self._options = options
        self._changed = env.tasks.condition()
        budget = env.settings.catch_up_bytes
        self.accounts = Accounts(self._changed, times.as_of, budget=budget)
        self._stop = Stop(options.workers)
        self._watch = Watch(env.clock.monotonic_ms(), env.settings.stall_ms)
        self._stalled = False
        self._error: StrandlineError | None = None
        self._raised = False
        self._abroad = False
        """Whether workers outside fetch; decided by who asks first."""
        self._audits: dict[str, PartDescriptor] = {}
        self._unaudited: list[PartDescriptor] = []
        """Audits that wait, like the parts, until somebody asks for events."""
        rule = fetch_rule(env, patient=True)
        self._fetcher = Fetcher(env, machine.name, self._deliver, rule)
        self._fetching = False
        self.lease: ReadLease | None = None
        self._follower: Follower | None = None
        if isinstance(lease, SinceError):
            self.accounts.listing_failed(lease)
        else:
            self.lease = lease
            self.accounts.hold(lease)
            hooks = Hooks(full=self._is_full, found=self._found, look=self._look)
            lister = Lister(lease, request, times)
            self._follower = Follower(machine, lister, self.accounts, hooks=hooks)
        self._task: Task | None = None
        self._is_held: Callable[[], bool] = lambda: True

    @property
    def workers(self) -> int:
        return self._stop.workers

    def begin(self, is_held: Callable[[], bool]) -> None:
        """Start to list, and go on for as long as somebody holds what this is for."""
        self._is_held = is_held
        self._task = self._machine.env.tasks.start(f"list {self.shard}", self._run)

    @property
    def frontier(self) -> Frontier:
        """How far everything was given out."""
        with self._changed:
            return self.accounts.given

    def status(self) -> Status:
        """How it is, looked at now."""
        follower = self._follower
        upper = Frontier(self.as_of) if follower is None else follower.upper
        unseen_ms, trouble = (0, "") if follower is None else follower.unseen()
        sight = self.accounts.sight(upper)
        sight = replace(sight, unseen_ms=unseen_ms, trouble=trouble)
        with self._changed:
            return self._watch.look(self._machine.env.clock.monotonic_ms(), sight)

    def poll(self, timeout_ms: int | None = None) -> Event | None:
        """The next event; see `Subscription.poll`."""
        self._fetch_here()
        clock = self._machine.env.clock
        deadline = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        with self._changed:
            while True:
                self._check_stalled()
                ready = self.accounts.hand_out()
                if ready is not None:
                    break
                if self.accounts.over or self.accounts.finished:
                    return None
                self._raise_once()
                left = None if deadline is None else deadline - clock.monotonic_ms()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)
        event, part = ready
        if part is not None and not self._abroad:
            self._fetcher.settle(part)
        return event

    def stop(self) -> None:
        """Press every button."""
        with self._changed:
            self._stop.press_all()
        self._let_go()

    def close(self) -> None:
        """Stop, and return once the store knows that nothing is held."""
        self.stop()
        if self._task is not None:
            self._task.join()
        self._fetcher.join(_JOIN_MS)

    def fetch_abroad(self) -> None:
        """From now on workers fetch, and nothing is fetched here."""
        with self._changed:
            if self._fetching:
                raise UsageError(
                    f"subscription {self.shard} fetches by itself: take its workers before the "
                    "first event, or iterate over it"
                )
            if not self._abroad:
                self._abroad = True
                self.accounts.go_abroad()
                self._unaudited.clear()

    def take(self, worker: int, timeout_ms: int | None) -> PartDescriptor | None:
        """What a worker is to fetch next; `None` at the end, or when it has pressed."""
        clock = self._machine.env.clock
        deadline = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        with self._changed:
            while True:
                if self._has_ended(worker):
                    return None
                part = self.accounts.take()
                left = None if deadline is None else deadline - clock.monotonic_ms()
                if part is not None or (left is not None and left <= 0):
                    return part
                self._changed.wait(left)

    def ended(self, worker: int) -> bool:
        """Whether a worker will never be given anything again."""
        with self._changed:
            return self._has_ended(worker)

    def _has_ended(self, worker: int) -> bool:
        over = self.accounts.over or self.accounts.finished
        return over or not self._stop.may_take(worker)

    def give_back(self, descriptor: PartDescriptor) -> None:
        """A worker took a part and will not fetch it: another one is asked to."""
        self.accounts.give_back(descriptor)

    def arrived(self, descriptor: PartDescriptor) -> None:
        """A worker has the bytes of a part in hand."""
        self.accounts.arrived(descriptor)
        self._surface()

    def failed(self, descriptor: PartDescriptor, error: Exception) -> None:
        """A worker could not read a part, and will not try again."""
        if isinstance(error, StrandlineError):
            known = _copied(error).with_traceback(None)
        else:
            known = CorruptionError(f"{descriptor} could not be read: {error!r}")
        reader = "" if self.lease is None else self.lease.id
        self.accounts.failed(descriptor, diagnose(self._machine, reader, descriptor, known))
        self._surface()

    def press(self, worker: int) -> None:
        """A worker wants to stop; when all do, everything is let go of (S8)."""
        with self._changed:
            self._stop.press(worker)
            everybody = self._stop.all_pressed
            self._changed.notify_all()
        if everybody:
            self._let_go()

    def _let_go(self) -> None:
        self._fetcher.close()
        self.accounts.let_go()

    def _fetch_here(self) -> None:
        with self._changed:
            begin = not self._abroad and not self._fetching
            self._fetching = self._fetching or begin
        if begin:
            self._submit()

    def _submit(self) -> None:
        if self._fetching:
            with self._changed:
                audits, self._unaudited = self._unaudited, []
                self._audits.update((audit.id, audit) for audit in audits)
            self._fetcher.submit([*self.accounts.take_all(), *audits])

    def _deliver(self, descriptor: PartDescriptor, fetched: Fetched) -> None:
        if descriptor.id in self._audits:
            self._audited(descriptor, fetched)
        elif isinstance(fetched, StrandlineError):
            self._fetcher.settle(descriptor)
            self.failed(descriptor, fetched)
        else:
            self._arrived(descriptor, fetched)
        self._surface()

    def _arrived(self, descriptor: PartDescriptor, fetched: pa.Table) -> None:
        try:
            rows = stamped(descriptor, fetched)
        except (StrandlineError, *BUGS) as error:
            self._fetcher.settle(descriptor)
            known = isinstance(error, StrandlineError)
            what = f"{descriptor} could not be summed"
            self.failed(descriptor, error if known else bug(what, error))
            return
        if not self.accounts.arrived(descriptor, rows):
            self._fetcher.settle(descriptor)

    def _audited(self, descriptor: PartDescriptor, fetched: Fetched) -> None:
        self._fetcher.settle(descriptor)
        del self._audits[descriptor.id]
        if not isinstance(fetched, StrandlineError):
            try:
                check_audits(self._machine, [descriptor], [fetched])
            except InvariantError as error:
                self.accounts.listing_failed(error)

    def _surface(self) -> None:
        """Report an error where it is to be reported."""
        how = self._options.on_error
        error = self.accounts.take_error(early=how == "halt")
        if error is None:
            return
        with self._changed:
            frontier = self.accounts.told
        _log.error("subscription to %s stopped at %s: %s", self.shard, frontier, error)
        if callable(how):
            self._hand_over(_copied(error), how)
        elif how == "signal":
            self.accounts.give(Failure(frontier, _copied(error)))
        else:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            if how == "halt":
                self._fetcher.close()

    def _hand_over(self, error: StrandlineError, how: Callable[[StrandlineError], None]) -> None:
        """A handler that raises must not end the task that calls it: others rely on that one."""
        try:
            how(error)
        except Exception:  # noqa: BLE001 - whatever a handler raises, it is not ours
            _log.exception("the error handler of the subscription to %s failed", self.shard)

    def _check_stalled(self) -> None:
        if self._raised and self._error is not None:
            raise StalledError(
                f"subscription to {self.shard} is stalled at {self.accounts.given} and stays "
                "there; close it and open a new one"
            ) from _copied(self._error)
        if self._options.on_error == "halt":
            self._raise_once()

    def _raise_once(self) -> None:
        if self._error is not None:
            self._raised = True
            raise _copied(self._error)

    def _run(self) -> None:
        """The listing task."""
        try:
            if self._follower is not None:
                self._follower.run(self._options.start_signal)
        except StrandlineError as error:
            self.accounts.listing_failed(error)
        except BUGS as error:
            self.accounts.listing_failed(bug(f"listing shard {self.shard}", error))
        self._surface()
        self._keep()
        if self.lease is not None:
            try:
                self.lease.close()
            except StrandlineError as error:
                _log.warning("the lease on %s was left to expire: %s", self.shard, error)

    def _found(self, increment: Increment) -> None:
        audits = increment.listed.audits
        with self._changed:
            if not self._abroad:
                self._unaudited += [replace(audit, id=f"audit {audit.id}") for audit in audits]
        self._submit()

    def _is_full(self) -> bool:
        return self.accounts.backlog + self._fetcher.queued >= _BACKLOG

    def _keep(self) -> None:
        """Hold the lease until everything has arrived, or all have stopped (S12)."""
        while True:
            with self._changed:
                if self.accounts.over or self.accounts.finished:
                    return
                self._changed.wait(_LOOK_MS)
            self._look()

    def _look(self) -> None:
        """Notice that nobody is there any more; make a stall visible, in the log and metrics."""
        if not self._is_held() and not self.accounts.over:
            _log.info("subscription to %s was forgotten: it lets go of what it held", self.shard)
            self.stop()
            return
        stalled = self.status()
        if stalled.health is Health.STALLED and not self._stalled:
            self._machine.env.metrics.add("stalls", self.shard)
            _log.warning("subscription to %s is %s", self.shard, stalled)
        self._stalled = stalled.health is Health.STALLED


def _copied(error: StrandlineError) -> StrandlineError:
    """The same error for somebody else, with its causes and where it was raised first.

    Made without `__init__`: who fetches may report errors of classes that ask for more than words.
    """
    kind = type(error)
    made = kind.__new__(kind, *error.args)
    made.__dict__.update(error.__dict__)
    cause = error.__cause__
    if cause is not None:
        made.__cause__ = _copied(cause) if isinstance(cause, StrandlineError) else cause
    return made.with_traceback(error.__traceback__)
