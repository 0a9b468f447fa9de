"""S27 for pipelines, with real processes: either of two replicas may be stopped or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kills.waiting import Waiting

import strandline
from strandline.journal.log import Journal
from strandline.pipeline.report import history_of
from strandline.system import SystemClock, SystemTasks
from strandline.testing.engines import arrow_engine

pytestmark = pytest.mark.process

SURVIVE_MS = 5_000
"""The promise: so long after the other one was killed, the survivor has moved on. What it waited
for a processor, because others had it, is not its own time."""
ALONE_MS = 60_000
"""Of the test, for what is not promised; this machine may be busy."""
TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '50', deletes '0.1', rowsPerSecond '200');
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 10;
"""
REPLICA = """
import sys
import strandline
from strandline import PipelineSettings
from strandline.testing.engines import arrow_engine
settings = PipelineSettings(rows_max=50, delay_ms=50, poll_ms=10)
store = strandline.open(sys.argv[1])
pipeline = store.pipeline(
    "shop", sys.argv[3], settings=settings, replica=sys.argv[2], engine=arrow_engine
)
print("ready", flush=True)
pipeline.run()
"""


class Lake:
    """A store in a folder, and replicas on it in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.url = str(folder / "lake")
        self.store = strandline.open(self.url, upkeep=False)
        self.journal = Journal(self.store.env, "shop")
        self._clock, self._tasks = SystemClock(), SystemTasks()
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        env = {**os.environ, "STRANDLINE_LEASE_MS": "2000", "STRANDLINE_UPKEEP": "off"}
        child = subprocess.Popen(
            [sys.executable, "-c", REPLICA, self.url, name, TEXT],
            stdout=subprocess.PIPE,
            env=env,
        )
        self._children[name] = child
        assert child.stdout.readline() == b"ready\n"

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self._children[name].pid, number)
        if number is signal.SIGKILL:
            child = self._children.pop(name)
            child.wait()
            child.stdout.close()

    def committed(self) -> int:
        return self.journal.refresh().next_t

    def moved(self, within_ms: int, by: int = 1) -> int:
        """How long it took until so many more transactions were committed."""
        start, before = self._clock.monotonic_ms(), self.committed()
        while self.committed() < before + by:
            took = self._clock.monotonic_ms() - start
            assert took < within_ms, f"nothing was committed within {within_ms} ms"
            self._tasks.sleep(10)
        return self._clock.monotonic_ms() - start

    def survives(self, name: str) -> None:
        """This one has lost the other, and moves on as it is promised."""
        waiting = Waiting(self._children[name].pid)
        took = self.moved(ALONE_MS)
        own = took - 1_000 * waiting.seconds()
        assert own <= SURVIVE_MS, (
            f"the survivor moved on after {took} ms, {own:.0f} of them its own"
        )

    def halt(self, name: str) -> None:
        """Stop a replica where it holds no lock on SQLite's file, which would stop everybody."""
        while True:
            self.signal(name, signal.SIGSTOP)
            try:
                self.moved(SURVIVE_MS)
            except AssertionError:
                self.signal(name, signal.SIGCONT)
                self.moved(ALONE_MS)
            else:
                return

    def close(self) -> None:
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.wait()
            child.stdout.close()
        self.store.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("victim", ["a", "b"])
def test_s27_the_survivor_of_two_replicas_moves_on_within_seconds(lake: Lake, victim: str) -> None:
    lake.start("a")
    lake.start("b")
    lake.moved(ALONE_MS, by=3)
    for _ in range(2):
        lake.signal(victim, signal.SIGKILL)
        lake.survives("ab".replace(victim, ""))
        lake.moved(ALONE_MS, by=2)
        lake.start(victim)
        lake.moved(ALONE_MS, by=2)
    verify(lake)


@pytest.mark.parametrize(("paused", "killed"), ["ab", "ba"])
def test_s27_a_replica_that_stood_still_survives_the_other(
    lake: Lake, paused: str, killed: str
) -> None:
    lake.start("a")
    lake.start("b")
    lake.moved(ALONE_MS, by=3)
    lake.halt(paused)
    lake.moved(ALONE_MS, by=5)
    lake.signal(paused, signal.SIGCONT)
    lake.signal(killed, signal.SIGKILL)
    lake.survives(paused)
    lake.moved(ALONE_MS, by=2)
    verify(lake)


def verify(lake: Lake) -> None:
    """Nothing lost, nothing twice, nothing changed: every transaction again, and no gap."""
    pipeline = lake.store.pipeline("shop", TEXT, engine=arrow_engine)
    last = lake.committed()
    told = [each.t for each in history_of(lake.journal, last)][-last:]
    assert sorted(told)[:last] == list(range(last))
    assert [each.t for each in pipeline.replay(0, last)] == list(range(last))
