"""Workers behind a channel: what they ask for is done, and what they leave is left to others."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError, HandleClosedError
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.model.tasks import Task
from strandline.reading.descriptor import PartDescriptor
from strandline.reading.fetch import fetch_part
from strandline.reading.relay import RemoteWorker
from strandline.reading.subscribe import Subscription, start_subscription
from strandline.reading.watch import Health
from strandline.system import SystemTasks
from strandline.testing.lab import Lab

CLOSED = Frontier.closed()


class Desk:
    """A subscription to one row at each time, and the far ends of its channels."""

    def __init__(self, lab: Lab, *, until: int | None, inline_max_bytes: int = 0) -> None:
        env = lab.env(inline_max_bytes=inline_max_bytes)
        self.lab = lab
        self.machine = lab.machine(env=env)
        self.leases = lab.leases(env)
        self.writer = Writer(self.machine, self.leases.writer(self.machine))
        for time in range(4):
            self.append(time)
        self.subscription: Subscription = start_subscription(
            self.machine, self.leases, 0, workers=2, until=until
        )
        self.ends: list[Connection] = []
        self.relays: list[Task] = []

    def append(self, time: int) -> None:
        self.writer.append(pa.table({"id": [time], "name": [f"n{time}"]}))

    def worker(self, number: int) -> RemoteWorker:
        ours, theirs = Pipe()
        self.ends.append(theirs)
        self.relays.append(self.subscription.serve(number, ours))
        return RemoteWorker(theirs)

    def ids(self, part: PartDescriptor) -> list[int]:
        return fetch_part(self.lab.blob, part)["id"].to_pylist()

    def hang_up(self, place: int) -> None:
        """What the death of a worker's process looks like."""
        self.ends[place].close()
        assert self.relays[place].join(10_000)

    def close(self) -> None:
        for end in self.ends:
            end.close()
        self.subscription.close()
        assert all(relay.join(10_000) for relay in self.relays)


@pytest.fixture
def desk(lab: Lab) -> Iterator[Desk]:
    made = Desk(lab, until=4)
    yield made
    made.close()


@pytest.fixture
def endless(lab: Lab) -> Iterator[Desk]:
    made = Desk(lab, until=None)
    yield made
    made.close()


@pytest.mark.parametrize("inline_max_bytes", [0, 32 * 1024], ids=["parts", "inline"])
def test_the_frontier_follows_what_a_process_reports(lab: Lab, inline_max_bytes: int) -> None:
    desk = Desk(lab, until=4, inline_max_bytes=inline_max_bytes)
    worker = desk.worker(0)
    seen = []
    for part in worker:
        seen += desk.ids(part)
        worker.arrived(part)
        worker.arrived(part)
    assert seen == [0, 1, 2, 3]
    assert desk.subscription.frontier == CLOSED
    desk.close()
    assert not desk.machine.refresh().readers


def test_parts_of_a_process_that_is_gone_are_the_next_to_be_taken(desk: Desk) -> None:
    first, second = desk.worker(0), desk.worker(1)
    came = first.take()
    left = [first.take(), first.take()]
    first.arrived(came)
    last = second.take()
    second.arrived(last)
    assert second.take(0) is None
    desk.hang_up(0)
    assert desk.subscription.frontier == Frontier(left[0].owed)
    again = [second.take(), second.take()]
    assert sorted(part.id for part in again) == sorted(part.id for part in left)
    for part in again:
        second.arrived(part)
    assert second.take() is None
    assert desk.subscription.frontier == CLOSED


def test_a_process_that_is_gone_has_not_pressed(desk: Desk) -> None:
    first, second = desk.worker(0), desk.worker(1)
    first.take()
    second.press()
    assert second.take() is None
    desk.hang_up(0)
    assert desk.subscription.status().health is Health.WAITING
    assert desk.subscription.frontier == Frontier(0)
    assert len(desk.machine.refresh().readers) == 1
    instead = desk.worker(0)
    rows = []
    for part in instead:
        rows += desk.ids(part)
        instead.arrived(part)
    assert sorted(rows) == [0, 1, 2, 3]


@pytest.mark.parametrize("timeout_ms", [None, 60_000])
def test_a_press_ends_the_wait_for_a_part(endless: Desk, timeout_ms: int | None) -> None:
    worker = endless.worker(0)
    for _ in range(4):
        worker.arrived(worker.take())
    answers: list[PartDescriptor | None] = []
    waits = SystemTasks().start("waits", lambda: answers.append(worker.take(timeout_ms)))
    assert not waits.join(300)
    worker.press()
    assert waits.join(10_000)
    assert answers == [None]
    assert not endless.subscription.ended(1)


def test_a_part_that_comes_while_a_process_waits_is_given_to_it(endless: Desk) -> None:
    worker = endless.worker(0)
    for _ in range(4):
        worker.arrived(worker.take())
    assert worker.take(1) is None
    answers: list[PartDescriptor | None] = []
    waits = SystemTasks().start("waits", lambda: answers.append(worker.take()))
    assert not waits.join(300)
    endless.append(4)
    assert waits.join(10_000)
    assert [part and part.owed for part in answers] == [4]


def test_all_processes_end_when_the_subscription_stops(endless: Desk) -> None:
    workers = [endless.worker(0), endless.worker(1)]
    part = workers[0].take()
    endless.subscription.stop()
    workers[0].arrived(part)
    assert [worker.take() for worker in workers] == [None, None]
    assert endless.subscription.frontier == Frontier(0)


def test_a_part_that_a_process_could_not_read_freezes_the_frontier(desk: Desk) -> None:
    worker = desk.worker(1)
    worker.failed(worker.take(), OSError("no network"))
    with pytest.raises(CorruptionError, match=r"by worker 1 of .*: no network"):
        desk.subscription.poll(10_000)
    assert desk.subscription.frontier == Frontier(0)


def test_who_talks_nonsense_is_not_heard_any_more_and_loses_nothing(desk: Desk) -> None:
    worker, other = desk.worker(0), desk.worker(1)
    taken = worker.take()
    desk.ends[0].send_bytes(b"\xc1 nonsense")
    assert desk.relays[0].join(10_000)
    assert other.take().id == taken.id
    with pytest.raises(HandleClosedError, match="the process that lists is gone"):
        worker.arrived(taken)
    with pytest.raises(HandleClosedError, match="subscribe again"):
        worker.take()
