"""S8 with real processes: workers that fetch by descriptor stop together, and die alone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

import strandline
from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.model.frontier import Frontier
from strandline.reading.subscribe import Subscription
from strandline.shard.settings import Settings
from strandline.shard.state import Retention
from strandline.store.blob import Blob, Content
from strandline.system import SystemClock, SystemTasks

pytestmark = pytest.mark.process

LEASE = 1_000
WITHIN_S = 30
SCHEMA = pa.schema([("id", pa.int64())])
SETTINGS = Settings(lease_ms=LEASE, inline_max_bytes=0, upkeep_ms=50, manifest_every=32)
SPAWN = get_context("spawn")


class Halting:
    """A process's objects; in the middle of each read it says so, and waits to be told to go on."""

    def __init__(self, blob: Blob, line: Connection) -> None:
        self._blob = blob
        self._line = line

    def get(self, key: str) -> Content | None:
        self._line.send_bytes(json.dumps(["within", key]).encode())
        self._line.recv_bytes()
        return self._blob.get(key)


def work(folder: str, channel: Connection, line: Connection) -> None:
    """A worker process: it fetches until there is nothing more, or until it is asked to stop."""
    worker = strandline.RemoteWorker(channel)
    signal.signal(signal.SIGTERM, lambda *_: worker.press())
    with strandline.open(folder, upkeep=False) as store:
        blob = Halting(store.env.blob, line)
        for part in worker:
            rows = strandline.fetch_part(blob, part)
            line.send_bytes(json.dumps(["has", *rows["id"].to_pylist()]).encode())
            worker.arrived(part)
    line.send_bytes(json.dumps(["end"]).encode())


class Hand:
    """One worker process, as its lister sees it."""

    def __init__(self, folder: Path, subscription: Subscription, number: int) -> None:
        channel, far = SPAWN.Pipe()
        self._line, line = SPAWN.Pipe()
        self.process = SPAWN.Process(target=work, args=(str(folder), far, line))
        self.process.start()
        far.close()  # As long as anybody else has this end, its death is not seen.
        line.close()
        self.relay = subscription.serve(number, channel)
        self.rows: list[int] = []

    def within(self) -> str:
        """Wait until it is in the middle of a read, and tell of which object."""
        what, key = self._says()
        assert what == "within"
        return str(key)

    def goes_on(self) -> None:
        """Let it finish its read; its rows are there when this returns."""
        self._line.send_bytes(b"go on")
        what, *rows = self._says()
        assert what == "has"
        self.rows += rows

    def ends(self) -> None:
        assert self._says() == ["end"]
        self.process.join(WITHIN_S)
        assert self.process.exitcode == 0
        assert self.relay.join(10_000)

    def asked_to_stop(self) -> None:
        os.kill(self.process.pid, signal.SIGTERM)

    def killed(self) -> None:
        self.process.kill()
        self.process.join(WITHIN_S)
        assert self.process.exitcode == -signal.SIGKILL
        assert self.relay.join(10_000)

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self._line.close()

    def _says(self) -> list[object]:
        assert self._line.poll(WITHIN_S), "it says nothing"
        said: list[object] = json.loads(self._line.recv_bytes())
        return said


class Lake:
    """A store in a folder that this process tends, with a subscription of two workers."""

    def __init__(self, folder: Path, *, until: int | None) -> None:
        self.folder = folder
        self.store: Store = strandline.open(str(folder), settings=SETTINGS, upkeep=True)
        self.shard: Shard = self.store.shard("orders", SCHEMA)
        self.writer = self.shard.writer()
        self.fill(6)
        self.subscription = self.shard.subscribe(0, workers=2, until=until)
        self.hands: list[Hand] = []

    def fill(self, upto: int) -> None:
        start = self.shard.upper.time
        assert start is not None
        for time in range(start, upto):
            self.writer.append(pa.table({"id": [time]}))

    def hand(self, number: int) -> Hand:
        self.hands.append(Hand(self.folder, self.subscription, number))
        return self.hands[-1]

    def press_on(self) -> None:
        """Whatever is not held is deleted: two leases of appends, merges and collections."""
        self.shard.retain(Retention(None, 1))
        clock = SystemClock()
        ends = clock.monotonic_ms() + 2 * LEASE
        upper = self.shard.upper.time
        assert upper is not None
        while clock.monotonic_ms() < ends:
            self.fill(upper := upper + 1)
            self.shard.compact()
            self.store.upkeep.run_once(self.shard.machine)

    def holds(self, key: str) -> bool:
        return self.store.env.blob.get_range(key, 0, 1) is not None

    def reading(self) -> bool:
        readers = self.shard.state().readers.values()
        return any(reader.purpose.startswith("subscription") for reader in readers)

    def close(self) -> None:
        for hand in self.hands:
            hand.close()
        self.subscription.close()
        self.writer.close()
        self.store.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake", until=None)
    yield made
    made.close()


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake", until=6)
    yield made
    made.close()


def _until(true: Callable[[], object]) -> None:
    clock, tasks = SystemClock(), SystemTasks()
    deadline = clock.monotonic_ms() + 1_000 * WITHIN_S
    while not true():
        assert clock.monotonic_ms() < deadline, "not within the deadline"
        tasks.sleep(5)


def test_s08_a_process_that_stops_gives_up_nothing_that_another_one_owes(lake: Lake) -> None:
    slow = lake.hand(0)
    owed = slow.within()
    quick = lake.hand(1)
    for _ in range(3):
        quick.within()
        quick.goes_on()
    quick.within()
    quick.asked_to_stop()
    _until(lambda: lake.subscription.ended(1))
    quick.goes_on()
    quick.ends()
    assert quick.rows == [1, 2, 3, 4]
    lake.press_on()
    assert lake.subscription.frontier == Frontier(0), "time 0 is still owed"
    assert lake.holds(owed)
    assert lake.reading()

    slow.goes_on()
    later = slow.within()
    _until(lambda: lake.subscription.frontier == Frontier(5))
    assert lake.holds(later)
    slow.asked_to_stop()  # In the middle of a read: now all have pressed, and let go.
    _until(lambda: not lake.reading())
    assert lake.subscription.status().frontier == Frontier.closed()
    assert lake.subscription.frontier == Frontier(5), "what was not reported was not given"
    assert slow.rows == [0]


def test_s08_nothing_is_missed_by_who_goes_on_where_all_have_stopped(lake: Lake) -> None:
    hand, other = lake.hand(0), lake.hand(1)
    with lake.shard.reader(since=0):
        for each in (hand, other):
            each.within()
            each.asked_to_stop()
        _until(lambda: lake.subscription.status().frontier.is_closed)
        for each in (hand, other):
            each.goes_on()
            each.ends()
        assert lake.subscription.frontier == Frontier(0), "reported when all had let go"
        with lake.shard.subscribe(0, until=6) as again:
            tables = [event.rows for event in again if isinstance(event, strandline.Updates)]
    assert sorted(pa.concat_tables(tables)["id"].to_pylist()) == [0, 1, 2, 3, 4, 5]


def test_s08_what_a_killed_process_was_fetching_is_fetched_by_another_one(ending: Lake) -> None:
    victim = ending.hand(0)
    owed = victim.within()
    other = ending.hand(1)
    for _ in range(5):
        other.within()
        other.goes_on()
    victim.killed()
    assert other.within() == owed
    assert ending.subscription.frontier == Frontier(0)
    ending.press_on()
    assert ending.holds(owed)
    other.goes_on()
    other.ends()
    assert ending.subscription.frontier == Frontier.closed()
    assert sorted(other.rows) == [0, 1, 2, 3, 4, 5]
    _until(lambda: not ending.reading())


def test_s08_a_killed_process_has_not_pressed_and_its_times_stay_owed(ending: Lake) -> None:
    victim = ending.hand(0)
    owed = victim.within()
    other = ending.hand(1)
    other.within()
    other.asked_to_stop()
    _until(lambda: ending.subscription.ended(1))
    other.goes_on()
    other.ends()
    victim.killed()
    ending.press_on()
    assert ending.subscription.frontier == Frontier(0)
    assert ending.reading()
    assert ending.holds(owed)
    instead = ending.hand(0)
    for _ in range(5):
        instead.within()
        instead.goes_on()
    instead.ends()
    assert ending.subscription.frontier == Frontier.closed()
    assert sorted(other.rows + instead.rows) == [0, 1, 2, 3, 4, 5]
