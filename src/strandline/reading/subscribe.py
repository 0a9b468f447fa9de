"""A shard's changes as they come: a snapshot, then every update after it, with frontiers.

    with shard.subscribe(as_of=7) as subscription:
        for event in subscription:
            match event:
                case Updates(rows): ...
                case Progress(frontier): ...

One task lists (`follow`), several fetch; what they may tell is decided in `ledger`, `progress`,
`stop` and `watch`. The listing task also owns the lease: it gives it back when everything has
arrived, or when all workers have stopped, or when nobody has the subscription any more (`feed`).
Snapshot rows come part by part, each consolidated by itself; it is their sum that is the snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self
from weakref import ref

from strandline.errors import BoundsError, NotFoundError, SinceError, UsageError
from strandline.model.frontier import Frontier, valid_time
from strandline.reading.feed import Feed, OnError, Options
from strandline.reading.lister import Range
from strandline.reading.listing import newest_time
from strandline.reading.relay import Relay
from strandline.reading.request import Request
from strandline.reading.view import same_shard
from strandline.shard.frontiers import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.errors import StrandlineError
    from strandline.model.frontier import Time
    from strandline.model.tasks import Event as Signal, Task
    from strandline.parts.filters import FilterSpec
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.events import Event
    from strandline.reading.relay import Channel
    from strandline.reading.watch import Status
    from strandline.shard.lease import ReadLease
    from strandline.shard.leases import Leases
    from strandline.shard.machine import Machine


class Subscription:
    """The changes of one shard. Iterate over it, or give its parts to workers of your own.

    One that is forgotten instead of closed gives back what it held within a second or so.
    """

    def __init__(self, machine: Machine, feed: Feed) -> None:
        self.as_of = feed.as_of
        self._machine = machine
        self._begun = feed
        alive = ref(self)
        feed.begin(lambda: alive() is not None)

    @property
    def _feed(self) -> Feed:
        """What runs behind all calls; not in a forked child, where they would wait for ever."""
        self._machine.env.home.check()
        return self._begun

    @property
    def shard(self) -> str:
        return self._begun.shard

    @property
    def frontier(self) -> Frontier:
        """How far everything was given out: `as_of` at first, closed after the very last event.

        It moves with the `Progress` that you take, or with what workers report as arrived, and
        stays where it is when you close: to go on from here later misses nothing.
        """
        return self._begun.frontier

    def status(self) -> Status:
        """How it is: running, waiting for its consumer, stalled and why, or closed."""
        return self._feed.status()

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
        return self._feed.poll(timeout_ms)

    def descriptors(self) -> Iterator[PartDescriptor]:
        """The parts to fetch, for the only worker of this subscription; see `worker`."""
        return iter(self.worker(0))

    def worker(self, number: int) -> Worker:
        """One of several workers, which fetch wherever they like; the leases stay here."""
        if not 0 <= number < self._feed.workers:
            raise UsageError(
                f"worker {number} of subscription {self.shard}: it has {self._feed.workers}; "
                "say so when you subscribe"
            )
        self._feed.fetch_abroad()
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
        if self._machine.env.home.is_here():
            self._begun.stop()

    def close(self) -> None:
        """Stop, and return once the store knows that nothing is held. Harmless to repeat."""
        if self._machine.env.home.is_here():
            self._begun.close()

    def take(self, worker: int, timeout_ms: int | None) -> PartDescriptor | None:
        """What a worker is to fetch next; `None` at the end, or when it has pressed."""
        return self._feed.take(worker, timeout_ms)

    def ended(self, worker: int) -> bool:
        """Whether a worker will never be given anything again."""
        return self._feed.ended(worker)

    def give_back(self, descriptor: PartDescriptor) -> None:
        """A worker took a part and will not fetch it: another one is asked to."""
        self._feed.give_back(descriptor)

    def arrived(self, descriptor: PartDescriptor) -> None:
        """A worker has the bytes of a part in hand."""
        self._feed.arrived(descriptor)

    def failed(self, descriptor: PartDescriptor, error: Exception) -> None:
        """A worker could not read a part, and will not try again."""
        self._feed.failed(descriptor, error)

    def press(self, worker: int) -> None:
        """A worker wants to stop; when all do, everything is let go of (S8)."""
        self._feed.press(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Subscription to {self.shard} at {self.frontier}>"


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
    feed = Feed(machine, lease, request, Range(time, end, snapshot), options)
    return Subscription(machine, feed)


def _check_same(machine: Machine, lease: ReadLease, shard_id: str) -> None:
    """What was asked for was understood in a state before the lease: it must be of its shard."""
    try:
        same_shard(machine.state, shard_id)
    except NotFoundError:
        lease.close()
        raise
