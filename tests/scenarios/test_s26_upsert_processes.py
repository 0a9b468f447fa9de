"""S24 and S26 to S28 with real processes: ingests of one file, stopped, killed and replaced."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import strandline
from strandline.ingest.bindings import Bindings
from strandline.system import SystemClock, SystemTasks

pytestmark = pytest.mark.process

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
SURVIVE_MS = 5_000
"""The promise: so long after the other one was killed, the survivor has moved on."""
PATIENCE_MS = 60_000
"""Of the test, for whatever is not promised; this machine may be busy."""

REPLICA = '''
import json, sys, threading
from pathlib import Path
import pyarrow as pa
import strandline
from strandline.ingest.bindings import Bindings
from strandline.ingest.feed import BoundFeed
from strandline.ingest.upserter import Options, Upserter

RAW = pa.schema([("k", pa.int64()), ("v", pa.string()), ("_delete", pa.bool_()),
                 ("_error", pa.string()), ("_partition", pa.string()), ("_offset", pa.int64())])


class Lines:
    """A file of commands, one in a line; its line numbers are offsets."""

    def __init__(self, path):
        self.path = Path(path)

    def lines(self):
        text = self.path.read_text()
        return text[: text.rfind("\\n") + 1].splitlines()

    def latest(self):
        return {"0": len(self.lines())}

    def read(self, taken):
        start, stop = taken["0"]
        rows = []
        for offset, line in enumerate(self.lines()[start:stop], start):
            k, v = json.loads(line)
            rows.append({"k": k, "v": v, "_delete": v is None, "_error": None,
                         "_partition": "0", "_offset": offset})
        return pa.Table.from_pylist(rows, schema=RAW)

    def close(self):
        pass


store = strandline.open(sys.argv[1])
shard = store.shard("t")
feed = BoundFeed(Lines(sys.argv[2]), Bindings(store, "t_bindings"), name="t")
options = Options(errors="t_errors", read_only=sys.argv[3] == "follow", epoch=int(sys.argv[4]),
                  pause_ms=10, stall_ms=3_000)
upserter = Upserter(store, shard, feed, options)


def orders():
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "promote":
            upserter.promote(int(rest))
        print(json.dumps({"upper": upserter.upper.time, "restarts": upserter.status().restarts,
                          "health": upserter.status().health.value,
                          "won": store.env.metrics.value("ingest_won", "t")}), flush=True)


threading.Thread(target=orders, daemon=True).start()
print("ready", flush=True)
print(upserter.run().health.value, flush=True)
'''


class Child:
    """A replica in a process of its own, asked line by line."""

    def __init__(self, folder: Path, mode: str = "write", epoch: int = 0) -> None:
        env = {**os.environ, "STRANDLINE_LEASE_MS": "2000", "STRANDLINE_UPKEEP": "off"}
        arguments = [str(folder / "lake"), str(folder / "commands"), mode, str(epoch)]
        self.popen = subprocess.Popen(
            [sys.executable, "-c", REPLICA, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        self._left = b""
        assert self.line() == "ready"

    def line(self, within_ms: int = PATIENCE_MS) -> str:
        clock = SystemClock()
        deadline = clock.monotonic_ms() + within_ms
        while b"\n" not in self._left:
            left = deadline - clock.monotonic_ms()
            assert left > 0, f"it said nothing within {within_ms} ms"
            if select.select([self.popen.stdout], [], [], left / 1000)[0]:
                more = os.read(self.popen.stdout.fileno(), 65536)
                assert more, f"it ended with {self.popen.wait()}"
                self._left += more
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    def ask(self, order: str = "status") -> dict[str, object]:
        self.popen.stdin.write(order.encode() + b"\n")
        self.popen.stdin.flush()
        return json.loads(self.line())

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.popen.pid, number)

    def end(self) -> None:
        if self.popen.poll() is None:
            self.signal(signal.SIGCONT)
            self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()


class Lake:
    """A store in a folder, a file of commands beside it, and the replicas on both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: list[tuple[int, str | None]] = []
        self.store = strandline.open(str(folder / "lake"), upkeep=False)
        self.shard = self.store.shard("t", COLUMNS, ["k"])
        self.children: list[Child] = []
        self.give(1)

    def give(self, count: int) -> None:
        """More commands: few keys, with deletions."""
        numbers = range(len(self.commands), len(self.commands) + count)
        new = [(n % 97, None if n % 11 == 3 else f"v{n}") for n in numbers]
        self.commands += new
        with (self.folder / "commands").open("a") as file:
            file.write("".join(f"{json.dumps(each)}\n" for each in new))

    def replica(self, *arguments: object) -> Child:
        self.children.append(Child(self.folder, *arguments))
        return self.children[-1]

    def upper(self) -> int:
        time = self.shard.upper.time
        assert time is not None
        return time

    def moves(self, within_ms: int = PATIENCE_MS) -> int:
        """More commands come, and the shard moves; how long that took."""
        clock = SystemClock()
        before, start = self.upper(), clock.monotonic_ms()
        self.give(3)
        until(lambda: self.upper() > before, within_ms)
        return clock.monotonic_ms() - start

    def settled(self) -> bool:
        """Whether the shard holds what the file says."""
        expected: dict[int, str] = {}
        for key, value in self.commands:
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
        rows = self.shard.snapshot().to_arrow().to_pylist() if self.upper() else []
        assert len({row["k"] for row in rows}) == len(rows)
        return {row["k"]: row["v"] for row in rows} == expected

    def close(self) -> None:
        for child in self.children:
            child.end()
        self.store.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    yield made
    made.close()


def until(true: Callable[[], object], within_ms: int = PATIENCE_MS) -> None:
    clock, tasks = SystemClock(), SystemTasks()
    deadline = clock.monotonic_ms() + within_ms
    while not true():
        assert clock.monotonic_ms() < deadline, f"not within {within_ms} ms"
        tasks.sleep(10)


@pytest.mark.parametrize(("survivor", "burst"), [(0, 0), (1, 10_000)])
def test_s27_s28_the_survivor_of_two_processes_goes_on(lake: Lake, survivor, burst) -> None:
    """One of two is stopped for three seconds, or meets a burst; then the other one is killed."""
    replicas = [lake.replica(), lake.replica()]
    usual_ms = max(lake.moves() for _ in range(5))
    until(lambda: all(each.ask()["upper"] == lake.upper() for each in replicas))
    left, gone = replicas[survivor], replicas[1 - survivor]
    if burst:
        lake.give(burst)
    else:
        left.signal(signal.SIGSTOP)
        lake.give(5)
        SystemTasks().sleep(3_000)
    gone.signal(signal.SIGKILL)
    left.signal(signal.SIGCONT)
    # A machine on which everything takes seconds proves nothing about five of them.
    lake.moves(max(SURVIVE_MS, 20 * usual_ms))
    until(lake.settled)
    # It was stalled, and says so until its next look.
    until(lambda: left.ask()["health"] == "running")
    assert left.ask()["restarts"] == 0


def test_s26_a_cold_process_takes_over_from_one_that_is_fenced(lake: Lake) -> None:
    lake.shard.fence(1)
    old = lake.replica("write", 1)
    for _ in range(10):
        lake.moves()
    cold = lake.replica("follow", 1)
    until(lambda: cold.ask()["upper"] == lake.upper())
    lake.moves()
    assert cold.ask()["won"] == 0, "it is read-only"
    assert cold.ask("promote 2")["restarts"] == 0
    assert old.line() == "fenced"
    old.end()
    for _ in range(3):
        lake.moves()
    until(lake.settled)
    assert cold.ask()["won"] > 0


def test_s24_a_process_that_can_not_go_on_says_so(lake: Lake) -> None:
    """A follower whose peers are all gone: its input goes on, its output does not."""
    lake.shard.fence(1)
    writer = lake.replica("write", 1)
    lake.moves()
    follower = lake.replica("follow", 1)
    until(lambda: follower.ask()["upper"] == lake.upper())
    writer.signal(signal.SIGSTOP)
    lake.give(3)
    with Bindings(lake.store, "t_bindings") as agreed:
        agreed.bind({"0": len(lake.commands)})
    until(lambda: follower.ask()["health"] == "stalled")
    writer.signal(signal.SIGCONT)
    until(lambda: follower.ask()["health"] == "running")
    until(lake.settled)
