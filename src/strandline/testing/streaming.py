"""Roles that follow a shard: subscribers that lag, stop and start again, and who reads changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import CorruptionError, StalledError, StoreError, StrandlineError
from strandline.reading.diagnose import diagnose
from strandline.reading.events import Progress, Updates
from strandline.reading.fetch import fetch_part
from strandline.reading.gather import Failed, gather
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described, pinned_view
from strandline.testing.checkers import HistoryError
from strandline.testing.history import CLOSED
from strandline.testing.observer import number, update_list
from strandline.testing.roles import opened, repeat
from strandline.testing.workload import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.handles.shard import Shard
    from strandline.reading.subscribe import Subscription, Worker
    from strandline.testing.history import Stream
    from strandline.testing.roles import Role
    from strandline.testing.world import Host

_POLL_MS = 500


def subscriber(name: str, key: tuple[str, ...] = (), *, pause_ms: float = 300.0) -> Role:
    """Subscribes at all sorts of times, consumes at its own pace, and leaves when it likes."""

    def subscribe(client: Client, shard: Shard, as_of: int, upper: int) -> None:
        process = client.process
        snapshot = process.random.random() < 0.6
        until = as_of + process.random.randrange(8) if process.random.random() < 0.4 else None
        last = not process.running()
        if last:
            until = upper
        with shard.subscribe(as_of, until=until, snapshot=snapshot) as subscription:
            stream = client.stream(shard, as_of, snapshot=snapshot, until=until)
            _follow(client, subscription, stream, to_the_end=last)

    return _again_and_again(name, key, pause_ms, subscribe)


def _again_and_again(
    name: str,
    key: tuple[str, ...],
    pause_ms: float,
    subscribe: Callable[[Client, Shard, int, int], None],
) -> Role:
    """A role that subscribes at some time that can be read, given with the upper, and again."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name, key)

        def step() -> None:
            upper, since = client.look(shard, "upper"), client.look(shard, "since")
            if upper and upper != CLOSED:
                as_of = process.random.randrange(min(since, upper - 1), upper)
                subscribe(client, shard, as_of, upper)

        repeat(process, step, pause_ms=pause_ms)

    return run


def _follow(
    client: Client, subscription: Subscription, stream: Stream, *, to_the_end: bool
) -> None:
    process = client.process
    left = process.random.randrange(1, 30)
    while left or to_the_end:
        left = max(0, left - 1)
        was_over = subscription.frontier.is_closed
        event = subscription.poll(_POLL_MS)
        if isinstance(event, Updates):
            stream.told.append(update_list(event.rows))
        elif isinstance(event, Progress):
            stream.told.append(number(event.frontier.time))
        elif was_over:
            _check_closed(stream)
            return
        if process.random.random() < 0.1:
            process.sleep(2_000)
    client.world.sim.sometimes("left a subscription")


def _check_closed(stream: Stream) -> None:
    frontiers = [item for item in stream.told if isinstance(item, int)]
    if not frontiers or frontiers[-1] != CLOSED:
        raise HistoryError(f"{stream.by} was not told that {stream.shard} is over: {frontiers}")


def chronicler(name: str, key: tuple[str, ...] = (), *, pause_ms: float = 300.0) -> Role:
    """Reads the changes between two times, often from the first one on, as of no time at all."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name, key)

        def step() -> None:
            upper, since = client.look(shard, "upper"), client.look(shard, "since")
            if not upper or upper == CLOSED:
                return
            early = process.random.random() < 0.5
            after = 0 if early else process.random.randrange(min(since, upper - 1), upper)
            upto = process.random.randrange(after, upper) + 1
            rows = _changes(process, shard, Bounds(after=after, upto=upto))
            stream = client.stream(shard, after - 1, snapshot=False, until=None)
            stream.told += [update_list(rows), upto]
            process.world.sim.sometimes("read changes from 0" if early else "read changes")

        repeat(process, step, pause_ms=pause_ms)

    return run


def _changes(process: Host, shard: Shard, bounds: Bounds) -> pa.Table:
    machine, store = shard.machine, process.store
    view = pinned_view(store.leases.own_reader(machine))
    try:
        listed = described(machine, view.state, Request(None, None), bounds)
        found = gather(store.env, shard.name, listed.parts)
    finally:
        view.pin.give_back()
    if isinstance(found, Failed):
        raise diagnose(machine, "", found.descriptor, found.error)
    return pa.concat_tables([view.state.schema.updates().empty_table(), *found])


def witness(name: str) -> Role:
    """Subscribes to a shard of which an object is missing: it must be told, and get no further."""

    def run(process: Host) -> None:
        client = Client(process)
        shard = opened(process, name)

        def step() -> None:
            upper = client.look(shard, "upper")
            if not upper:
                return
            with shard.subscribe(0, until=upper, snapshot=False) as subscription:
                stream = client.stream(shard, 0, snapshot=False, until=upper)
                try:
                    _follow(client, subscription, stream, to_the_end=True)
                except CorruptionError:
                    process.world.sim.sometimes("told of a missing object")
                    _stays_frozen(client, subscription)

        repeat(process, step, pause_ms=300)

    return run


def _stays_frozen(client: Client, subscription: Subscription) -> None:
    frontier = subscription.frontier
    for _ in range(3):
        client.process.sleep(500)
        try:
            event = subscription.poll(_POLL_MS)
        except StalledError:
            event = None
        if event is not None or subscription.frontier != frontier:
            raise HistoryError(f"{subscription} went on after an error, from {frontier}")


def crew(name: str, key: tuple[str, ...] = (), *, pause_ms: float = 300.0) -> Role:
    """A subscription whose parts two workers fetch by themselves, and which stop one by one."""

    def subscribe(client: Client, shard: Shard, as_of: int, upper: int) -> None:
        last = not client.process.running()
        until = upper if last else upper + 5
        with shard.subscribe(as_of, until=until, workers=2) as subscription:
            stream = client.stream(shard, subscription.as_of, snapshot=True, until=until)
            _work_together(client, subscription, stream, to_the_end=last)

    return _again_and_again(name, key, pause_ms, subscribe)


def _work_together(
    client: Client, subscription: Subscription, stream: Stream, *, to_the_end: bool
) -> None:
    """Two tasks fetch. The one that presses first must not end what the other still owes."""
    process = client.process
    errors: list[Exception] = []
    ended: set[int] = set()

    def fetch(worker: Worker) -> None:
        _fetch(client, worker, stream, errors)
        ended.add(worker.number)

    workers = [subscription.worker(each) for each in range(2)]
    tasks = [
        process.node.tasks.start(
            f"worker {worker.number}",
            lambda worker=worker: fetch(worker),  # type: ignore[misc]
        )
        for worker in workers
    ]
    left = 20
    while (left or to_the_end) and not errors:
        left = max(0, left - 1)
        was_over = subscription.frontier.is_closed
        event = subscription.poll(_POLL_MS)
        if isinstance(event, Progress):
            stream.told.append(number(event.frontier.time))
        elif was_over:
            break
    frontier = subscription.frontier
    subscription.press(0)
    if subscription.frontier != frontier:
        raise HistoryError(f"{frontier} became {subscription.frontier} when one pressed")
    tasks[0].join()
    if 1 in ended and not errors and not subscription.frontier.is_closed:
        raise HistoryError(f"{subscription} ended for all when one had pressed")
    subscription.press(1)
    tasks[1].join()
    if errors:
        raise errors[0]


def _fetch(client: Client, worker: Worker, stream: Stream, errors: list[Exception]) -> None:
    """Fetch until this worker was pressed, or there is nothing more."""
    for part in worker:
        client.process.sleep(100)
        rows = None
        while rows is None:
            try:
                rows = fetch_part(client.process.blob, part)
            except StoreError:
                client.process.sleep(50)
            except StrandlineError as error:
                worker.failed(part, error)
                errors.append(error)
                return
        stream.told.append(update_list(rows))
        worker.arrived(part)
