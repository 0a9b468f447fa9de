"""S9, S37, S38, S39 and S48 with real processes, real time and short leases."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import strandline
from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.shard.settings import Settings
from strandline.shard.state import Retention
from strandline.store.locate import CONSENSUS_FILE
from strandline.system import SystemClock, SystemTasks
from strandline.upkeep.garbage import named

pytestmark = pytest.mark.process

LEASE = 1_000
WAIT = 10 * LEASE
"""Half of what the simulator waits: this is real time."""
KEPT = 100
"""More records and objects than upkeep leaves of any number of appends."""
SCHEMA = pa.schema([("id", pa.int64())])
SETTINGS = Settings(lease_ms=LEASE, inline_max_bytes=0, upkeep_ms=50, manifest_every=32)

OPENED = """
import ctypes, sys, threading
import strandline
from strandline.system import SystemClock

store = strandline.open(sys.argv[1])
shard = store.shard("orders")

def say(*words):
    print(*words, flush=True)

def told():
    return sys.stdin.readline().strip()

def error_of(read):
    try:
        read()
    except strandline.StrandlineError as error:
        return type(error).__name__
    return "no error"
"""


class Child:
    """Another process on the same store; it is told and asked line by line."""

    def __init__(self, folder: Path, script: str) -> None:
        env = {**os.environ, "STRANDLINE_LEASE_MS": str(LEASE), "STRANDLINE_UPKEEP": "off"}
        self.popen = subprocess.Popen(
            [sys.executable, "-c", OPENED + script, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        self._left = b""

    def says(self, within_ms: int = 10_000) -> str:
        """The next line it says."""
        output = self.popen.stdout
        assert output is not None
        clock = SystemClock()
        deadline = clock.monotonic_ms() + within_ms
        while b"\n" not in self._left:
            left = deadline - clock.monotonic_ms()
            assert left > 0, f"it said nothing within {within_ms} ms"
            if self.has_spoken(left):
                more = os.read(output.fileno(), 65536)
                assert more, f"it ended with {self.popen.wait()}"
                self._left += more
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    def has_spoken(self, within_ms: int = 0) -> bool:
        ready, _, _ = select.select([self.popen.stdout], [], [], within_ms / 1000)
        return bool(ready)

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


class Lake:
    """A store in a folder, with this process tending it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: Store = strandline.open(str(folder), settings=SETTINGS, upkeep=True)
        self.shard: Shard = self.store.shard("orders", SCHEMA)
        self.writer = self.shard.writer()
        self.children: list[Child] = []

    def fill(self, upto: int) -> None:
        start = self.shard.upper.time
        assert start is not None
        for time in range(start, upto):
            self.writer.append(pa.table({"id": [time]}))

    def child(self, script: str) -> Child:
        self.children.append(Child(self.folder, script))
        return self.children[-1]

    def records(self) -> int:
        with closing(sqlite3.connect(self.folder / CONSENSUS_FILE)) as connection:
            counted = "select count(*) from versions where key = 'shard/orders'"
            (count,) = connection.execute(counted).fetchone()
        return int(count)

    def unneeded(self) -> int:
        """How many objects the newest version does not refer to."""
        listed = {entry.key for entry in self.store.env.blob.list("")}
        return len(listed - named(self.shard.state()))

    def close(self) -> None:
        for child in self.children:
            child.end()
        self.writer.close()
        self.store.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake")
    yield made
    made.close()


def _until(true: Callable[[], object], within_ms: int = 10_000) -> None:
    clock, tasks = SystemClock(), SystemTasks()
    deadline = clock.monotonic_ms() + within_ms
    while not true():
        assert clock.monotonic_ms() < deadline, "not within the deadline"
        tasks.sleep(5)


def test_s09_a_stopped_source_leaves_no_reader_and_no_task(lake: Lake) -> None:
    lake.fill(6)
    child = lake.child(
        """
before = {t.name for t in threading.enumerate()}
subscription = shard.subscribe(0)
for event in subscription:
    if subscription.frontier.settled(3):
        break
say("running")
told()
subscription.close()
left = sorted({t.name for t in threading.enumerate()} - before - {"leases"})
say(subscription.status().frontier, [name for name in left if "orders" in name])
told()
"""
    )
    assert child.says() == "running"
    assert len(lake.shard.state().readers) >= 1
    child.tell("stop")
    assert child.says() == "{} []"
    purposes = [reader.purpose for reader in lake.shard.state().readers.values()]
    assert not [purpose for purpose in purposes if purpose.startswith("subscription")]


def test_s37_an_idle_reader_of_another_process_stays_alive_and_costs_little(lake: Lake) -> None:
    lake.fill(1)
    child = lake.child(
        """
reader = shard.reader(purpose="idle")
say(reader.id)
told()
say(reader.snapshot(0).to_arrow()["id"].to_pylist())
told()
"""
    )
    name = child.says()
    clock = SystemClock()
    ends = clock.monotonic_ms() + WAIT
    appends = 0
    while clock.monotonic_ms() < ends or appends < 4 * KEPT:
        lake.fill(appends + 10)
        appends += 10
        assert name in lake.shard.state().readers, f"lost after {appends} appends"
    # How many pile up while appends go on depends on this machine; what the idle reader holds is
    # what is left once upkeep has caught up.
    _until(lambda: lake.records() <= KEPT and lake.unneeded() <= KEPT, within_ms=60_000)
    assert name in lake.shard.state().readers
    child.tell("read")
    assert child.says() == "[0]"


def test_s38_a_process_blocked_in_a_snapshot_keeps_its_time(lake: Lake) -> None:
    lake.fill(50)
    lake.shard.retain(Retention(None, 1))
    child = lake.child(
        """
say("blocked")
found = shard.snapshot(as_of=100, timeout_ms=60_000).to_arrow()
say(sorted(found["id"].to_pylist()) == list(range(101)))
told()
"""
    )
    assert child.says() == "blocked"
    _until(lambda: any(r.since == 100 for r in lake.shard.state().readers.values()))
    clock = SystemClock()
    ends = clock.monotonic_ms() + WAIT
    epoch = 0
    while clock.monotonic_ms() < ends:
        lake.shard.hold("metadata", 49, epoch=epoch)
        epoch += 1
        assert any(r.since == 100 for r in lake.shard.state().readers.values())
    lake.shard.release_hold("metadata", epoch=epoch)
    lake.fill(130)
    assert child.says() == "True"
    lake.shard.compact()
    assert lake.shard.since.time == 129


BUSY = {
    "a native call that holds the GIL": f"ctypes.PyDLL(None).usleep({3 * LEASE * 1000})",
    "a Python loop": f"""
clock = SystemClock()
ends = clock.monotonic_ms() + {3 * LEASE}
while clock.monotonic_ms() < ends:
    sum(range(1_000))
""",
}


THREAD = """
from strandline import assembly
from strandline.shard.pulses import TaskHeart
from strandline.system import SystemTasks

def beside(consensus, random, *, url, lease_ms, owner):
    return TaskHeart(consensus, SystemTasks(), random, lease_ms=lease_ms, owner=owner)

assembly.OutsideHeart = beside
store = strandline.open(sys.argv[1])
shard = store.shard("orders")
"""


def _work(lake: Lake, work: str, *, heart: str = "") -> tuple[bool, str]:
    """Whether a reader is still listed after its process was busy, and what it then reads."""
    lake.fill(5)
    child = lake.child(
        f"""{heart}
reader = shard.reader(since=2)
say(reader.id)
told()
{BUSY[work]}
error = error_of(lambda: reader.snapshot(2))
say(error)
say(reader.snapshot(2).to_arrow().num_rows if error == "no error" else 0)
told()
"""
    )
    name = child.says()
    lake.shard.retain(Retention(None, 1))
    lake.fill(10)
    child.tell("work")
    while not child.has_spoken(20):
        lake.store.upkeep.run_once(lake.shard.machine)  # It looks for the dead, too.
    return name in lake.shard.state().readers, f"{child.says()}, {child.says()} rows"


@pytest.mark.parametrize("work", BUSY)
def test_s39_a_busy_process_keeps_its_lease(lake: Lake, work: str) -> None:
    assert _work(lake, work) == (True, "no error, 3 rows")
    lake.shard.compact()
    assert lake.shard.since.time == 2


def test_s39_a_heart_within_reach_of_the_gil_is_caught(lake: Lake) -> None:
    """The mutant of S39: the heartbeat is a thread of the process."""
    listed, read = _work(lake, "a native call that holds the GIL", heart=THREAD)
    assert (listed, read) == (False, "LeaseLostError, 0 rows")


def test_s48_a_stopped_process_is_told_that_its_lease_was_lost(lake: Lake) -> None:
    lake.fill(20)
    child = lake.child(
        """
reader = shard.reader(since=2)
listed = reader.snapshot(5)
subscription = shard.subscribe(19)
list(iter(lambda: subscription.frontier.settled(19) or subscription.poll(100), True))
(heart,) = store.leases._hearts.values()
say(reader.id, heart.beater_pid)
told()
say(error_of(lambda: reader.snapshot(2).to_arrow()))
say(error_of(listed.to_arrow))
say(error_of(lambda: list(subscription)), subscription.frontier)
told()
"""
    )
    name, beater = child.says().split()
    stopped = (child.popen.pid, int(beater))
    lake.shard.retain(Retention(None, 1))
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    clock = SystemClock()
    start = clock.monotonic_ms()
    try:
        lake.fill(81)
        _until(lambda: name not in lake.shard.state().readers)
        _until(lambda: lake.shard.since.time == 80)
        lake.shard.compact(full=True)
        _until(lambda: clock.monotonic_ms() > start + 3 * LEASE)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    child.tell("read")
    assert child.says() == "LeaseLostError"
    assert child.says() == "LeaseLostError"
    assert child.says() == "LeaseLostError {20}"
