"""A shard's changes as they come: a snapshot, then every update after it, with frontiers.

    with shard.subscribe(as_of=7) as subscription:
        for event in subscription:
            match event:
                case Updates(rows): ...
                case Progress(frontier): ...

One task lists (`follow`), several fetch; what they may tell is decided in `ledger`, `progress`,
`stop` and `watch`. The listing task also owns the lease: it gives it back when everything has
arrived, or when all workers have stopped. Snapshot rows come part by part, each consolidated by
itself; it is their sum that is the snapshot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from strandline.errors import (
    BoundsError,
    CorruptionError,
    InvariantError,
    NotFoundError,
    SinceError,
    StalledError,
    StrandlineError,
    UsageError,
)
from strandline.model.frontier import Frontier, valid_time
from strandline.reading.accounts import Accounts
from strandline.reading.diagnose import diagnose
from strandline.reading.events import Failure
from strandline.reading.extract import stamped
from strandline.reading.fetch import BUGS, Fetcher, bug, fetch_rule
from strandline.reading.follow import Follower, Hooks
from strandline.reading.lister import Lister, Range
from strandline.reading.listing import newest_time
from strandline.reading.relay import Relay
from strandline.reading.request import Request
from strandline.reading.snapshot import check_audits
from strandline.reading.stop import Stop
from strandline.reading.view import same_shard
from strandline.reading.watch import Health, Watch
from strandline.shard.frontiers import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.model.frontier import Time
    from strandline.model.tasks import Event as Signal, Task
    from strandline.parts.filters import FilterSpec
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.events import Event
    from strandline.reading.fetch import Fetched
    from strandline.reading.lister import Increment
    from strandline.reading.relay import Channel
    from strandline.reading.watch import Status
    from strandline.shard.lease import ReadLease
    from strandline.shard.leases import Leases
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


class Subscription:
    """The changes of one shard. Iterate over it, or give its parts to workers of your own."""

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
        self._machine = machine
        self._options = options
        self._changed = env.tasks.condition()
        budget = env.settings.catch_up_bytes
        self._accounts = Accounts(self._changed, times.as_of, budget=budget)
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
        self._lease: ReadLease | None = None
        self._follower: Follower | None = None
        if isinstance(lease, SinceError):
            self._accounts.listing_failed(lease)
        else:
            self._lease = lease
            self._accounts.hold(lease)
            hooks = Hooks(full=self._is_full, found=self._found, look=self._look)
            lister = Lister(lease, request, times)
            self._follower = Follower(machine, lister, self._accounts, hooks=hooks)
        self._task = env.tasks.start(f"list {machine.name}", self._run)

    @property
    def shard(self) -> str:
        return self._machine.name

    @property
    def frontier(self) -> Frontier:
        """How far everything was given out: `as_of` at first, closed after the very last event.

        It moves with the `Progress` that you take, or with what workers report as arrived, and
        stays where it is when you close: to go on from here later misses nothing.
        """
        with self._changed:
            return self._accounts.given

    def status(self) -> Status:
        """How it is: running, waiting for its consumer, stalled and why, or closed."""
        follower = self._follower
        upper = Frontier(self.as_of) if follower is None else follower.upper
        unseen_ms, trouble = (0, "") if follower is None else follower.unseen()
        sight = self._accounts.sight(upper)
        sight = replace(sight, unseen_ms=unseen_ms, trouble=trouble)
        with self._changed:
            return self._watch.look(self._machine.env.clock.monotonic_ms(), sight)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.poll()
        if event is None:
            raise StopIteration
        return event

    def poll(self, timeout_ms: int | None = None) -> Event | None:
        """The next event; `None` at the end, or if there is none within the time.

        An error is raised once, after everything that came before it; from then on, whoever
        asks is told that the subscription is stalled.
        """
        self._fetch_here()
        clock = self._machine.env.clock
        deadline = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        with self._changed:
            while True:
                self._check_stalled()
                ready = self._accounts.hand_out()
                if ready is not None:
                    break
                if self._accounts.over or self._accounts.finished:
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

    def descriptors(self) -> Iterator[PartDescriptor]:
        """The parts to fetch, for the only worker of this subscription; see `worker`."""
        return iter(self.worker(0))

    def worker(self, number: int) -> Worker:
        """One of several workers, which fetch wherever they like; the leases stay here."""
        if not 0 <= number < self._stop.workers:
            raise UsageError(
                f"worker {number} of subscription {self.shard}: it has {self._stop.workers}; "
                "say so when you subscribe"
            )
        with self._changed:
            if self._fetching:
                raise UsageError(
                    f"subscription {self.shard} fetches by itself: take its workers before the "
                    "first event, or iterate over it"
                )
            if not self._abroad:
                self._abroad = True
                self._accounts.go_abroad()
                self._unaudited.clear()
        return Worker(self, number)

    def serve(self, number: int, channel: Channel) -> Task:
        """Let the process at the other end of a channel be one of the workers; see `relay`.

        The task ends with that process. Then the place is free: serve another one in it, and it
        goes on with what the first one left.
        """
        relay = Relay(self.worker(number), channel, self._machine.env.clock)
        return self._machine.env.tasks.start(f"relay {self.shard}", relay.run)

    def stop(self) -> None:
        """Press every button: everything is let go of, within a second."""
        with self._changed:
            self._stop.press_all()
        self._let_go()

    def close(self) -> None:
        """Stop, and return once the store knows that nothing is held. Harmless to repeat."""
        self.stop()
        self._task.join()
        self._fetcher.join(_JOIN_MS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Subscription to {self.shard} at {self.frontier}>"

    def take(self, worker: int, timeout_ms: int | None) -> PartDescriptor | None:
        """What a worker is to fetch next; `None` at the end, or when it has pressed."""
        clock = self._machine.env.clock
        deadline = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms
        with self._changed:
            while True:
                if self._has_ended(worker):
                    return None
                part = self._accounts.take()
                left = None if deadline is None else deadline - clock.monotonic_ms()
                if part is not None or (left is not None and left <= 0):
                    return part
                self._changed.wait(left)

    def ended(self, worker: int) -> bool:
        """Whether a worker will never be given anything again."""
        with self._changed:
            return self._has_ended(worker)

    def _has_ended(self, worker: int) -> bool:
        over = self._accounts.over or self._accounts.finished
        return over or not self._stop.may_take(worker)

    def give_back(self, descriptor: PartDescriptor) -> None:
        """A worker took a part and will not fetch it: another one is asked to."""
        self._accounts.give_back(descriptor)

    def arrived(self, descriptor: PartDescriptor) -> None:
        """A worker has the bytes of a part in hand."""
        self._accounts.arrived(descriptor)
        self._surface()

    def failed(self, descriptor: PartDescriptor, error: Exception) -> None:
        """A worker could not read a part, and will not try again."""
        known = error if isinstance(error, StrandlineError) else None
        if known is None:
            known = CorruptionError(f"{descriptor} could not be read: {error!r}")
        reader = "" if self._lease is None else self._lease.id
        self._accounts.failed(descriptor, diagnose(self._machine, reader, descriptor, known))
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
        self._accounts.let_go()

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
            self._fetcher.submit([*self._accounts.take_all(), *audits])

    def _deliver(self, descriptor: PartDescriptor, fetched: Fetched) -> None:
        if descriptor.id in self._audits:
            self._audited(descriptor, fetched)
        elif isinstance(fetched, StrandlineError):
            self._fetcher.settle(descriptor)
            self.failed(descriptor, fetched)
        elif not self._accounts.arrived(descriptor, stamped(descriptor, fetched)):
            self._fetcher.settle(descriptor)
        self._surface()

    def _audited(self, descriptor: PartDescriptor, fetched: Fetched) -> None:
        self._fetcher.settle(descriptor)
        del self._audits[descriptor.id]
        if not isinstance(fetched, StrandlineError):
            try:
                check_audits(self._machine, [descriptor], [fetched])
            except InvariantError as error:
                self._accounts.listing_failed(error)

    def _surface(self) -> None:
        """Report an error where it is to be reported."""
        how = self._options.on_error
        error = self._accounts.take_error(early=how == "halt")
        if error is None:
            return
        with self._changed:
            frontier = self._accounts.told
        _log.error("subscription to %s stopped at %s: %s", self.shard, frontier, error)
        if callable(how):
            how(error)
        elif how == "signal":
            self._accounts.give(Failure(frontier, error))
        else:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            if how == "halt":
                self._fetcher.close()

    def _check_stalled(self) -> None:
        if self._raised:
            raise StalledError(
                f"subscription to {self.shard} is stalled at {self._accounts.given} and stays "
                "there; close it and open a new one"
            ) from self._error
        if self._options.on_error == "halt":
            self._raise_once()

    def _raise_once(self) -> None:
        if self._error is not None:
            self._raised = True
            raise self._error

    def _run(self) -> None:
        """The listing task."""
        try:
            if self._follower is not None:
                self._follower.run(self._options.start_signal)
        except StrandlineError as error:
            self._accounts.listing_failed(error)
        except BUGS as error:
            self._accounts.listing_failed(bug(f"listing shard {self.shard}", error))
        self._surface()
        self._keep()
        if self._lease is not None:
            try:
                self._lease.close()
            except StrandlineError as error:
                _log.warning("the lease on %s was left to expire: %s", self.shard, error)

    def _found(self, increment: Increment) -> None:
        audits = increment.listed.audits
        with self._changed:
            if not self._abroad:
                self._unaudited += [replace(audit, id=f"audit {audit.id}") for audit in audits]
        self._submit()

    def _is_full(self) -> bool:
        return self._accounts.backlog + self._fetcher.queued >= _BACKLOG

    def _keep(self) -> None:
        """Hold the lease until everything has arrived, or all have stopped (S12)."""
        while True:
            with self._changed:
                if self._accounts.over or self._accounts.finished:
                    return
                self._changed.wait(_LOOK_MS)
            self._look()

    def _look(self) -> None:
        """Make a stall visible: once in the log, and in the metrics."""
        stalled = self.status()
        if stalled.health is Health.STALLED and not self._stalled:
            self._machine.env.metrics.add("stalls", self.shard)
            _log.warning("subscription to %s is %s", self.shard, stalled)
        self._stalled = stalled.health is Health.STALLED


class Worker:
    """One worker of a subscription, in any thread; the rows may be fetched in any process."""

    def __init__(self, subscription: Subscription, number: int) -> None:
        self.number = number
        self._subscription = subscription

    def take(self, timeout_ms: int | None = None) -> PartDescriptor | None:
        """The next part to fetch; `None` at the end, after `press`, or if the time ran out."""
        return self._subscription.take(self.number, timeout_ms)

    def __iter__(self) -> Iterator[PartDescriptor]:
        while True:
            part = self.take()
            if part is None:
                return
            yield part

    @property
    def ended(self) -> bool:
        """Whether it will never be given anything again."""
        return self._subscription.ended(self.number)

    def give_back(self, descriptor: PartDescriptor) -> None:
        """Leave a part that was taken, and did not arrive, to whoever asks next."""
        self._subscription.give_back(descriptor)

    def arrived(self, descriptor: PartDescriptor) -> None:
        self._subscription.arrived(descriptor)

    def failed(self, descriptor: PartDescriptor, error: Exception) -> None:
        self._subscription.failed(descriptor, error)

    def press(self) -> None:
        """Take nothing more. What others still owe stays held until all have pressed."""
        self._subscription.press(self.number)

    def __str__(self) -> str:
        return f"worker {self.number} of the subscription to {self._subscription.shard}"


def start_subscription(  # noqa: PLR0913 - each is a word of the public call
    machine: Machine,
    leases: Leases,
    as_of: Time | None,
    *,
    until: Time | None = None,
    snapshot: bool = True,
    columns: Sequence[str] | None = None,
    filter: FilterSpec | None = None,  # noqa: A002 - the word that users of Parquet readers know
    on_error: OnError | Callable[[StrandlineError], None] = "raise",
    start_signal: Signal | Callable[[], bool] | None = None,
    workers: int = 1,
) -> Subscription:
    """Take the lease, then start to list."""
    if not callable(on_error) and on_error not in ("raise", "signal", "halt"):
        raise UsageError("on_error is 'raise', 'signal', 'halt', or something to call")
    if workers < 1:
        raise BoundsError(f"a subscription has at least one worker, not {workers}")
    end = Frontier.closed() if until is None else Frontier(valid_time(until, "until"))
    upper, state = visible(machine)
    request = Request.parse(columns, filter, state.schema)
    time = newest_time(state, upper) if as_of is None else valid_time(as_of, "as_of")
    lease: ReadLease | SinceError
    try:
        lease = leases.reader(machine, since=time, purpose=f"subscription from {time}")
    except SinceError as error:
        lease = error
    else:
        _check_same(machine, lease, state.id)
    options = Options(on_error, start_signal, workers)
    return Subscription(machine, lease, request, Range(time, end, snapshot), options)


def _check_same(machine: Machine, lease: ReadLease, shard_id: str) -> None:
    """What was asked for was understood in a state before the lease: it must be of its shard."""
    try:
        same_shard(machine.state, shard_id)
    except NotFoundError:
        lease.close()
        raise
