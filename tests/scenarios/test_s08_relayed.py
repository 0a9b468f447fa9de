"""S8 behind channels, simulated: workers die at any moment, and others take their place."""

from __future__ import annotations

from collections import deque

import pytest

from strandline.errors import HandleClosedError
from strandline.model.frontier import Frontier
from strandline.model.tasks import Condition
from strandline.reading.fetch import fetch_part
from strandline.reading.relay import Relay, RemoteWorker
from strandline.reading.subscribe import Subscription
from strandline.testing.simulation import Simulation

from .conftest import Place, Process, catches

TIMES = 12
DEATHS = 5


class End:
    """One end of a simulated channel."""

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self._inbox: deque[bytes] = deque()
        self.other: End | None = None
        self._closed = False

    def send_bytes(self, message: bytes) -> None:
        assert self.other is not None
        with self._changed:
            if self._closed or self.other._closed:
                raise BrokenPipeError("the other end is closed")
            self.other._inbox.append(message)
            self._changed.notify_all()

    def recv_bytes(self) -> bytes:
        with self._changed:
            while not self._inbox:
                if self._over():
                    raise EOFError
                self._changed.wait()
            return self._inbox.popleft()

    def poll(self, timeout: float) -> bool:
        assert timeout == 0
        return bool(self._inbox) or self._over()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _over(self) -> bool:
        assert self.other is not None
        return self._closed or self.other._closed


class Crew:
    """Two workers behind channels; one that has died is replaced, a few seconds later."""

    def __init__(self, process: Process, subscription: Subscription) -> None:
        self.process = process
        self.subscription = subscription
        self.random = process.sim.stream("crew")
        self.seen: set[int] = set()
        self.deaths = 0

    def works(self, number: int) -> None:
        """The life of all processes that have this place, one after the other."""
        while not self.subscription.ended(number):
            changed = self.process.node.tasks.condition()
            ours, theirs = End(changed), End(changed)
            ours.other, theirs.other = theirs, ours
            self.subscription.serve(number, ours)
            self._lives(RemoteWorker(theirs), theirs)
            self.process.node.tasks.sleep(self.random.randrange(3_000))

    def _lives(self, worker: RemoteWorker, end: End) -> None:
        for part in worker:
            self.process.node.tasks.sleep(self.random.randrange(200))
            rows = fetch_part(self.process.blob, part)
            if self.deaths < DEATHS and (not self.deaths or self.random.random() < 0.5):
                self.deaths += 1
                break
            self.seen.update(rows["id"].to_pylist())
            worker.arrived(part)
        end.close()
        with pytest.raises(HandleClosedError):
            worker.press()

    def is_ahead(self) -> bool:
        """Whether anything counts as arrived that nobody has."""
        frontier = self.subscription.frontier
        return any(frontier.settled(time) and time not in self.seen for time in range(TIMES))


def workers_die_and_are_replaced(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, TIMES)
    shard = process.shard
    subscription = process.call(lambda: shard.subscribe(0, until=TIMES, workers=2))
    crew = Crew(process, subscription)
    tasks = [process.node.start(f"crew {n}", lambda n=n: crew.works(n)) for n in range(2)]
    while not all(task.done() for task in tasks):
        assert sim.elapsed_ms() < 60_000, "somebody waits for ever"
        sim.run(until_ms=sim.elapsed_ms() + 50)
        assert not crew.is_ahead()
    assert crew.deaths >= 1
    assert crew.seen == set(range(TIMES))
    assert subscription.frontier == Frontier.closed()
    sim.run_until(lambda: not place.state().readers, within_ms=2_000)


def test_s08_workers_behind_channels_die_and_nothing_is_lost(sim: Simulation) -> None:
    workers_die_and_are_replaced(sim)


def death_is_a_press(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relay, "_give_back", lambda self: self._worker.press())


def the_dead_take_their_parts_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relay, "_give_back", lambda self: None)


def the_dead_have_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_back(self: Relay) -> None:
        for part in self._held.values():
            self._worker.arrived(part)

    monkeypatch.setattr(Relay, "_give_back", give_back)


@pytest.mark.parametrize(
    "mutant", [death_is_a_press, the_dead_take_their_parts_along, the_dead_have_delivered]
)
def test_s08_the_mutants_behind_channels_are_caught(mutant, monkeypatch) -> None:
    mutant(monkeypatch)
    catches(workers_die_and_are_replaced)
