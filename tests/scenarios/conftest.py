"""A simulated store for the scenarios: a few processes on it, and whatever goes wrong with them.

    with Simulation(seed) as sim:
        place = Place(sim)
        writer, reader = place.open("writer"), place.open("reader")
        place.fill(writer, 3)                # one row and one object for each time
        seen = Seen(reader, as_of=0)         # a subscription, consumed by a task
        sim.run_until_quiet()
        assert seen.ids() == [0, 1, 2]

Time is virtual and everything that varies follows from the seed. A test waits for something to
hold (`run_until`), for quiet, or for a virtual deadline; nothing here counts iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pytest

from strandline.errors import StrandlineError
from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.reading.events import Failure, Progress, Updates
from strandline.reading.subscribe import Subscription
from strandline.shard.env import Env
from strandline.shard.machine import Machine
from strandline.shard.metrics import Metrics
from strandline.shard.pulse import decode_pulse
from strandline.shard.pulses import TaskHeart
from strandline.shard.settings import Settings
from strandline.shard.state import Reader, Retention, State
from strandline.shard.timeline import PlainTimeline
from strandline.shard.versions import load
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.faults import Fault, FaultyBlob, FaultyConsensus
from strandline.testing.seeds import try_seeds
from strandline.testing.simulation import Simulation

T = TypeVar("T")

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
LEASE = 2_000
TICK = LEASE // 4
"""A heartbeat: four in a lease."""
KEEP_ALL = Retention(None, None)

SETTINGS = Settings(lease_ms=LEASE, inline_max_bytes=0)
"""Every append is an object of its own, so that it can be missing, slow or deleted."""


class Fates:
    """What happens to the store calls of one process: the first rule that has an answer."""

    def __init__(self) -> None:
        self.rules: list[Callable[[str, str], Fault | None]] = []
        self.calls: Counter[str] = Counter()

    def decide(self, call: str, key: str) -> Fault:
        self.calls[call] += 1
        for rule in self.rules:
            fault = rule(call, key)
            if fault is not None:
                return fault
        return Fault()

    def add(self, rule: Callable[[str, str], Fault | None]) -> None:
        self.rules.append(rule)

    def latency(self, sim: Simulation, most_ms: float, *, calls: str = "") -> None:
        """Every call whose name starts so takes a while, there and back."""
        chance = sim.stream("latency")

        def rule(call: str, key: str) -> Fault | None:
            if not call.startswith(calls):
                return None
            return Fault(request_ms=chance.uniform(0, most_ms), reply_ms=chance.uniform(0, most_ms))

        self.add(rule)


class Process:
    """One simulated process with an open store."""

    def __init__(self, place: Place, name: str, settings: Settings, drift_ppm: int = 0) -> None:
        self.place = place
        self.sim = place.sim
        self.node = self.sim.node(name, drift_ppm=drift_ppm)
        self.fates = Fates()
        self.blob = FaultyBlob(place.blob, self.fates, self.sim, self.node.crash)
        self.consensus = FaultyConsensus(place.consensus, self.fates, self.sim, self.node.crash)
        self.settings = settings
        self.store: Store = self.call(self._open)

    def _open(self) -> Store:
        env = Env(
            blob=self.blob,
            consensus=self.consensus,
            clock=self.node.clock,
            tasks=self.node.tasks,
            random=self.node.random,
            metrics=Metrics(),
            settings=self.settings,
            timelines=lambda name: PlainTimeline(env, name),
        )

        def heart(lease_ms: int) -> TaskHeart:
            ports = (self.consensus, self.node.tasks, self.node.random)
            return TaskHeart(*ports, lease_ms=lease_ms, owner=self.node.name)

        return Store(env, heart, url=f"sim://{self.node.name}")

    @property
    def shard(self) -> Shard:
        return self.call(lambda: self.store.shard("orders"))

    @property
    def machine(self) -> Machine:
        return self.store.machine("orders")

    @property
    def metrics(self) -> Metrics:
        return self.store.env.metrics

    def call(self, run: Callable[[], T], *, within_ms: float = 600_000.0) -> T:
        """Run something as a task of this process, everything else beside it."""
        return self.sim.call(self.node, run, within_ms=within_ms)

    def bury(self, duration_ms: float = 0.0) -> None:
        """For a while, look for the dead three times in a heartbeat; call it from a task."""
        ends = self.sim.elapsed_ms() + duration_ms
        while True:
            self.machine.refresh()
            self.store.leases.bury(self.machine)
            if self.sim.elapsed_ms() >= ends:
                return
            self.node.tasks.sleep(TICK / 3)

    def upkeep(self) -> None:
        """Rounds of upkeep until there is nothing left to do."""
        while self.call(lambda: self.store.upkeep.run_once(self.machine)):
            pass

    def compact(self) -> None:
        """Merge everything there is, and delete what that frees."""
        self.call(lambda: self.store.upkeep.compact(self.machine, full=True))

    def tasks(self) -> list[str]:
        """The names of the tasks of this process that have not ended."""
        living = self.sim._scheduler.living.values()
        return sorted(task.name for task in living if task.life.name == self.node.name)


class Place:
    """One shared store with one shard, `orders`."""

    def __init__(self, sim: Simulation, **settings: object) -> None:
        self.sim = sim
        self.settings = replace(SETTINGS, **settings)
        self.blob = MemoryBlob()
        self.consensus = MemoryConsensus(sim.now_ms)
        self._writers: dict[str, Writer] = {}
        observer = sim.node("observer")
        self._env = Env(
            blob=self.blob,
            consensus=self.consensus,
            clock=observer.clock,
            tasks=observer.tasks,
            random=observer.random,
            metrics=Metrics(),
            settings=self.settings,
            timelines=lambda name: PlainTimeline(self._env, name),
        )

    def open(self, name: str, *, drift_ppm: int = 0, **settings: object) -> Process:
        process = Process(self, name, replace(self.settings, **settings), drift_ppm)
        process.call(lambda: process.store.shard("orders", COLUMNS))
        return process

    def writer(self, process: Process) -> Writer:
        name = process.node.name
        if name not in self._writers:
            shard = process.shard
            self._writers[name] = process.call(lambda: shard.writer("a scenario"))
        return self._writers[name]

    def fill(self, process: Process, upto: int, *, per_time: int = 1) -> None:
        """Settle every time before `upto` with rows whose id is their time, one object each."""
        writer = self.writer(process)
        upper = process.call(lambda: process.store.shard("orders").upper).time
        assert upper is not None

        def run() -> None:
            for time in range(upper, upto):
                ids = [time] * per_time
                writer.append(rows(*ids))

        process.call(run)

    def retain(self, process: Process, rule: Retention) -> None:
        shard = process.shard
        process.call(lambda: shard.retain(rule))

    def state(self) -> State:
        """The newest state, read past all faults."""
        found = load(self._env, "orders")
        assert found is not None
        return found

    def reader(self, reader_id: str) -> Reader | None:
        return self.state().readers.get(reader_id)

    def keys_at(self, time: int) -> list[str]:
        """The objects of the batch that begins at a time."""
        batches = [batch for batch in self.state().batches if batch.lower == time]
        return [part.key for batch in batches for part in batch.parts]

    def delete(self, time: int) -> str:
        """Somebody deletes the object of a time behind everybody's back."""
        (key,) = self.keys_at(time)
        assert self.blob.delete(key)
        return key

    def objects(self) -> set[str]:
        return {entry.key for entry in self.blob.list("")}

    def records(self) -> int:
        """How many versions Consensus keeps of the shard."""
        return len(self.consensus.scan("shard/orders", SeqNo(0), 10**9))

    def pulse(self, slot: int) -> int:
        head = self.consensus.head(f"pulse/{slot}")
        assert head is not None
        return decode_pulse(slot, head.seqno, head.data).counter


class Seen:
    """A subscription, and a task that takes everything it gives out."""

    def __init__(self, process: Process, as_of: int | None = 0, **options: object) -> None:
        self.process = process
        self.errors: list[StrandlineError] = []
        self.events: list[Updates | Progress] = []
        self.log: list[tuple[str, object]] = []
        """(what, value) in the order in which it was given out."""
        options.setdefault("on_error", self.errors.append)
        shard = process.shard
        self.subscription: Subscription = process.call(lambda: shard.subscribe(as_of, **options))
        self.task = process.node.start("consume", self._consume)

    def _consume(self) -> None:
        for event in self.subscription:
            if isinstance(event, Progress):
                self.log.append(("frontier", event.frontier))
            elif isinstance(event, Failure):
                self.errors.append(event.error)
            else:
                ids = event.rows["id"].to_pylist()
                for row_id, time in zip(ids, event.times.tolist(), strict=True):
                    self.log.append(("row", (row_id, time)))

    def ids(self) -> list[int]:
        return sorted(row[0] for row in self.rows())

    def rows(self) -> list[tuple[int, int]]:
        return [value for what, value in self.log if what == "row"]

    def steps(self) -> list[Frontier]:
        return [value for what, value in self.log if what == "frontier"]

    def told(self, upper: int) -> bool:
        """Whether the consumer was told that everything before `upper` has come."""
        return bool(self.steps()) and self.steps()[-1] == Frontier(upper)

    @property
    def frontier(self) -> Frontier:
        """What was told last, as a test sees it without taking a lock."""
        return self.subscription._feed.accounts.frontier

    def check_definite(self) -> None:
        """Nothing came at a time that was told to be complete, and each row at its own time."""
        told = Frontier(0)
        for what, value in self.log:
            if what == "frontier":
                assert told < value, f"the frontier went from {told} to {value}"
                told = value
            else:
                row_id, time = value
                assert row_id == time, f"row {row_id} was given out at {time}"
                assert not told.settled(time), f"a row at {time} after the frontier {told}"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{i}" for i in ids]}, schema=COLUMNS)


def catches(scenario: Callable[[Simulation], None], seeds: int = 5) -> None:
    """The scenario must fail, under every seed, with the bug that was planted before the call."""
    report = try_seeds(scenario, range(seeds), failures_max=seeds + 1)
    missed = sorted(set(range(seeds)) - set(report.failures))
    assert not missed, f"the planted bug was not caught with seeds {missed}"


@pytest.fixture(params=range(3))
def sim(request: pytest.FixtureRequest) -> Iterator[Simulation]:
    """A few histories of each scenario; those that need many seeds say so themselves."""
    with Simulation(request.param) as simulation:
        yield simulation
