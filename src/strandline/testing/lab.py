"""A store in memory with real threads, for tests that need no simulated time.

lab = Lab()
machine = lab.machine("orders")
lab.clock.now += 60_000
lab.close()
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.handles.ownership import TimelineOwner
from strandline.handles.store import Store
from strandline.handles.write import Writer
from strandline.journal.timeline import timeline_of
from strandline.model.schema import Schema
from strandline.shard import command as c
from strandline.shard.env import Env, Home
from strandline.shard.frontiers import visible
from strandline.shard.leases import Leases
from strandline.shard.machine import Machine
from strandline.shard.metrics import Metrics
from strandline.shard.pulses import TaskHeart
from strandline.shard.settings import Settings
from strandline.shard.timeline import PlainTimeline
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.system import SystemClock, SystemRandom, SystemTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.frontier import Frontier

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


class HandClock:
    """The store's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@dataclass
class Lab:
    """One store in memory, and as many processes on it as a test wants."""

    clock: HandClock = field(default_factory=HandClock)
    settings: Settings = field(default_factory=lambda: Settings(lease_ms=60_000))
    blob: MemoryBlob = field(default_factory=MemoryBlob)
    opened: list[Leases] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.consensus = MemoryConsensus(self.clock)

    def env(self, **settings: int) -> Env:
        env = Env(
            blob=self.blob.client(),
            consensus=self.consensus.client(),
            clock=SystemClock(),
            tasks=SystemTasks(),
            random=SystemRandom(),
            metrics=Metrics(),
            settings=replace(self.settings, **settings),
            timelines=lambda name: timeline_of(env, name),
        )
        return env

    def machine(self, name: str = "orders", env: Env | None = None) -> Machine:
        """A view of a shard, which is created if it does not exist."""
        env = env or self.env()
        machine = Machine(env, name)
        schema = Schema.create(COLUMNS, ["id"])
        machine.commit(c.Create(name, f"s{env.random.token()}", schema, self.clock.now))
        return machine

    def close(self) -> None:
        """Give back every lease that was taken."""
        for leases in self.opened:
            leases.close()

    def leases(self, env: Env) -> Leases:
        leases = Leases(
            env,
            lambda ms: TaskHeart(env.consensus, env.tasks, env.random, lease_ms=ms, owner="a test"),
        )
        self.opened.append(leases)
        return leases


class Client:
    """One process on the lab's store, with two shards that can be attached."""

    def __init__(self, lab: Lab, **settings: int) -> None:
        self.env = lab.env(**settings)
        self.machines: dict[str, Machine] = {
            name: lab.machine(name, self.env) for name in ("orders", "stock")
        }
        self.leases: Leases = lab.leases(self.env)
        self.timeline = PlainTimeline(self.env, "shop")

    def attach(self) -> None:
        for machine in self.machines.values():
            self.timeline.attach(machine)

    def own(self) -> TimelineOwner:
        return TimelineOwner(self.timeline, self.machines.__getitem__, self.writer)

    def writer(self, name: str) -> Writer:
        machine = self.machines[name]
        return Writer(machine, self.leases.writer(machine))

    def upper(self, name: str) -> Frontier:
        return visible(self.machines[name])[0]


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": ["x"] * len(ids)}, schema=COLUMNS)


def new_store(lab: Lab, *, is_here: Callable[[], bool] = lambda: True) -> Store:
    env = replace(lab.env(), home=Home(is_here=is_here))
    return Store(
        env,
        lambda ms: TaskHeart(env.consensus, env.tasks, env.random, lease_ms=ms, owner="a test"),
        url="memory://",
    )
