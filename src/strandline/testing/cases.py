"""Whole histories: who does what for how long, what may go wrong, and how it is judged.

A case is a scenario for `run_seeds`. It ends like every history here: faults stop, every process
ends by itself, what the dead left behind is cleaned up, and then all checkers look at it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.errors import ConflictError, LeaseLostError
from strandline.testing import (
    brokered,
    changing,
    clerks,
    jobs,
    owners,
    publishers,
    roles,
    streaming,
    upserting,
    verdicts,
)
from strandline.testing.checkers import HistoryError, check_history
from strandline.testing.observer import number
from strandline.testing.remains import check_remains
from strandline.testing.streams import Options
from strandline.testing.world import LEASE_MS, OPTIONS, World
from strandline.upkeep.findings import Severity
from strandline.upkeep.fsck import fsck

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.testing.simulation import Simulation
    from strandline.testing.world import Host

_LATEST_MS = 6_000
"""By then every call that was late has landed."""


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario; call it with a simulation."""

    name: str
    people: Callable[[World], None]
    """Starts the processes."""
    faults_ms: float = 4_000
    on: Mapping[str, float] = field(default_factory=dict)
    """Options that every seed has, with their values."""
    off: tuple[str, ...] = ()
    timeline: str = ""
    """The timeline that the shards are attached to."""
    clean: bool = True
    """Whether what is left in the store is looked at as well."""
    judge: Callable[[World], None] | None = None
    """Judges what no checker of shards knows of."""

    def __call__(self, sim: Simulation) -> None:
        drawn = Options.from_seed(sim.stream("options"), OPTIONS)
        world = World(sim, Options({**drawn.values, **dict.fromkeys(self.off, 0), **self.on}))
        self.people(world)
        try:
            world.run(faults_ms=self.faults_ms)
            if self.clean or self.timeline:
                world.start("janitor", self._clean)
                sim.run_until(world.all_done)
            check_history(world.history)
            if self.judge is not None:
                self.judge(world)
            if self.clean:
                check_remains(world)
        except AssertionError as error:
            error.add_note(f"case {self.name}, {world.options}")
            raise

    def _clean(self, process: Host) -> None:
        """Bury the dead, collect their garbage, sweep their orphans."""
        world = process.world
        if self.timeline:
            upper = number(process.store.timeline(self.timeline).upper.time)
            world.settle(process.store.timeline(self.timeline).shards, upper)
        process.node.tasks.sleep(_LATEST_MS)
        _end_terms(world)
        machines = [process.store.machine(name) for name in world.observer.states]
        for _ in range(8):
            for machine in machines:
                process.store.leases.bury(machine)
            process.node.tasks.sleep(LEASE_MS / 2)
        for machine in machines:
            for _ in range(4):
                if not _tidy(process, machine.name):
                    break
            process.store.upkeep.collector.sweep(machine, delete=True)
        process.store.upkeep.collector.sweep_dropped(delete=True)
        report = fsck(process.store.env, process.store.leases, deep=True)
        damage = [str(finding) for finding in report.of(Severity.DAMAGE)]
        if damage and self.clean:
            raise HistoryError("\n".join(f"fsck: {what}" for what in damage))


def _end_terms(world: World) -> None:
    """Let the store's clock reach the end of every term: what is over must be dropped."""
    ends = [end for state in world.observer.states.values() for end in state.terms().values()]
    world.sim.store_clock.jump(max(0, max(ends, default=0) - world.sim.now_ms()))


def _tidy(process: Host, name: str) -> bool:
    try:
        return process.store.upkeep.run_once(process.store.machine(name))
    except ConflictError:
        return True


def _shard(world: World) -> None:
    """Independent and racing writers, readers of all kinds, upkeep in two processes."""
    world.history.tiled.add("a")
    key = ("id",) if world.sim.stream("key").random() < 0.5 else ()
    world.start("w1", roles.appender("a", key))
    world.start("w2", roles.racer("a", key))
    world.start("r1", roles.reader("a", key))
    world.start("s1", streaming.subscriber("a", key))
    world.start("h1", roles.holder("a", key))
    world.start("h2", roles.holder("a", key, critical=True))
    world.start("st", roles.steward("a", key))
    world.start("u1", roles.tender("a", key=key))
    world.start("u2", roles.tender("a", key=key))


def _writes(world: World) -> None:
    """Nothing but writers that race, and a reader."""
    world.history.tiled.add("a")
    for number_ in range(2):
        world.start(f"w{number_}", roles.appender("a", pause_ms=30))
        world.start(f"c{number_}", roles.racer("a", pause_ms=30))
    world.start("r1", roles.reader("a", pause_ms=200))


def _reads(world: World) -> None:
    """Readers and subscribers of a shard that is compacted and collected all the time."""
    world.history.tiled.add("a")
    key = ("id",)
    world.start("w1", roles.appender("a", key, pause_ms=50))
    world.start("r1", roles.reader("a", key, pause_ms=30))
    world.start("r2", roles.reader("a", key, pause_ms=30))
    world.start("s1", streaming.subscriber("a", key, pause_ms=50))
    world.start("st", roles.steward("a", key))
    world.start("u1", roles.tender("a", key=key, pause_ms=20))
    world.start("u2", roles.tender("a", key=key, pause_ms=20))


def _streams(world: World) -> None:
    world.history.tiled.add("a")
    world.start("w1", roles.appender("a", pause_ms=50))
    world.start("s1", streaming.subscriber("a", pause_ms=50))
    world.start("s2", streaming.subscriber("a", pause_ms=50))
    world.start("s3", streaming.crew("a", pause_ms=50))
    world.start("u1", roles.tender("a", pause_ms=200))


def _changes(world: World) -> None:
    """Who reads changes, from the first time on, too, while all of them are merged."""
    world.history.tiled.add("a")
    key = ("id",) if world.sim.stream("key").random() < 0.5 else ()
    world.start("w1", roles.appender("a", key, pause_ms=50))
    world.start("w2", roles.racer("a", key, pause_ms=200))
    world.start("c1", streaming.chronicler("a", key, pause_ms=50))
    world.start("c2", streaming.chronicler("a", key, pause_ms=50))
    world.start("u1", roles.tender("a", key=key, pause_ms=50))
    world.start("u2", roles.tender("a", key=key, pause_ms=50))


def _replicas(world: World) -> None:
    world.history.tiled.add("a")
    for number_ in range(3):
        world.start(f"p{number_}", roles.replica("a", pause_ms=50))
    world.start("d1", roles.liar("a"))
    world.start("r1", roles.reader("a", ("id",)))
    world.start("u1", roles.tender("a", key=("id",)))


def _timeline(world: World) -> None:
    world.history.tiled.add("timeline t")
    world.start("o1", owners.owner("t", ("a", "b")))
    world.start("o2", owners.owner("t", ("a", "b")))
    world.start("i1", owners.intruder("a"))
    world.start("ra", roles.reader("a", ("id",), pause_ms=30))
    world.start("rb", roles.reader("b", ("id",), pause_ms=30))
    world.start("s1", streaming.subscriber("a", ("id",)))
    world.start("u1", roles.tender("a", "b", key=("id",)))


def _clocks(world: World) -> None:
    """Nobody who renews may lose a lease, whatever the clocks show."""

    def strictly(role: roles.Role) -> roles.Role:
        def run(process: Host) -> None:
            role(process)
            if world.sim.seen[LeaseLostError.__name__]:
                raise HistoryError("a living process that could renew has lost its lease")

        return run

    world.start("w1", strictly(roles.appender("a")))
    world.start("h1", strictly(roles.holder("a")))
    world.start("h2", strictly(roles.holder("a")))
    world.start("u1", strictly(roles.tender("a")))
    world.start("u2", strictly(roles.tender("a")))


def _expiry(world: World) -> None:
    """Writers that are away for longer than their lease, and somebody who notices."""
    world.history.tiled.add("a")
    for number_ in range(6):
        world.start(f"w{number_}", roles.appender("a", pause_ms=5))
    world.start("u1", roles.tender("a", pause_ms=200))
    world.start("u2", roles.sweeper("a", pause_ms=200))
    world.start("r1", roles.reader("a", pause_ms=300))
    world.spared.update(("u1", "u2", "r1"))


def _takeover(world: World) -> None:
    world.history.tiled.add("timeline t")
    for number_ in range(4):
        world.start(f"o{number_}", owners.owner("t", ("a", "b"), pause_ms=5))
    world.start("ra", roles.reader("a", ("id",), pause_ms=200))


def _slow(world: World) -> None:
    """Reads that take longer than a tick of the leases, beside eager upkeep."""
    key = ("id",)
    world.start("w1", roles.appender("a", key, pause_ms=20))
    world.start("w2", roles.appender("a", key, pause_ms=20))
    for number_ in range(3):
        world.start(f"r{number_}", roles.reader("a", key, pause_ms=20))
        world.start(f"u{number_}", roles.tender("a", key=key, pause_ms=20))


def _commits(world: World) -> None:
    """One owner that commits all the time, and readers that are interrupted."""
    world.history.tiled.add("timeline t")
    world.start("o1", owners.owner("t", ("a", "b"), pause_ms=2))
    for number_ in range(3):
        world.start(f"r{number_}", roles.reader("ab"[number_ % 2], ("id",), pause_ms=5))
    world.start("s1", streaming.subscriber("a", ("id",), pause_ms=20))


def _objects(world: World) -> None:
    """Writers of objects beside sweepers, and manifests all the time."""
    world.history.tiled.add("a")
    world.start("w1", roles.appender("a", pause_ms=20))
    world.start("w2", roles.appender("a", pause_ms=20))
    world.start("w3", roles.newcomer("a", pause_ms=20))
    world.start("u1", roles.tender("a", pause_ms=20))
    world.start("u2", roles.sweeper("a", pause_ms=20))
    world.start("r1", roles.reader("a", pause_ms=100))


def _holds(world: World) -> None:
    world.start("w1", roles.appender("a", pause_ms=30))
    world.start("h1", roles.holder("a"))
    world.start("h2", roles.holder("a", critical=True))
    world.start("st", roles.steward("a", evolve=False, pause_ms=300))
    world.start("u1", roles.tender("a", pause_ms=20))


def _sinks(world: World) -> None:
    """Applications whose processes die and come back, one of them twice at once."""
    world.history.tiled.add("a")
    world.start("k1", jobs.sink("a", "query 1"))
    world.start("k2", jobs.sink("a", "query 1"))
    world.start("k3", jobs.sink("a", "query 2"))
    world.start("w1", roles.appender("a"))
    world.start("u1", roles.tender("a", pause_ms=50))
    world.start("r1", roles.reader("a"))


def _terms(world: World) -> None:
    """Planners that are gone when others read what they planned."""
    world.start("w1", roles.appender("a", pause_ms=30))
    world.start("p1", jobs.planner("a"))
    world.start("p2", jobs.planner("a"))
    world.start("e1", jobs.executor("a"))
    world.start("e2", jobs.executor("a"))
    world.start("st", roles.steward("a", evolve=False, pause_ms=300))
    world.start("u1", roles.tender("a", pause_ms=20))
    world.start("u2", roles.tender("a", pause_ms=20))


def _rebirth(world: World) -> None:
    world.start("p1", roles.phoenix("a", drops=True))
    world.start("p2", roles.phoenix("a", drops=False))
    world.start("p3", roles.phoenix("a", drops=False))
    world.start("u1", roles.tender("a", pause_ms=50))


def _broken(world: World) -> None:
    world.start("w1", roles.appender("a", pause_ms=30))
    world.start("v1", roles.vandal("a"))
    world.start("s1", streaming.witness("a"))
    world.start("s2", streaming.witness("a"))


def _ingest(world: World) -> None:
    """Replicas of one ingest that race, and one that only follows."""
    topic = _topic(world)
    world.start("i1", upserting.upserting(topic))
    world.start("i2", upserting.upserting(topic))
    world.start("i3", upserting.upserting(topic, read_only=True))
    world.start("u1", upserting.keeper())


def _ingest_wrong(world: World) -> None:
    """Replicas of one ingest, and one that computes something else: it must be told."""
    topic = _topic(world)
    world.start("i1", upserting.upserting(topic))
    world.start("i2", upserting.upserting(topic, read_only=True, wrong=True))


def _topic(world: World) -> upserting.Topic:
    return upserting.Topic.from_seed(world.sim.seed, lasts_ms=1_500)


def _ingested(world: World) -> None:
    upserting.judge(world, _topic(world))


_CALM = (
    "not_applied", "lost_request", "lost_reply", "late", "stuck", "crash_before", "crash_after",
    "crash", "suspend", "nap", "drift", "jump", "store_jump",
)  # fmt: skip
_OBJECTS = {"no_inline": 1, "fanout": 2, "upkeep_ms": 5}

CASES = {
    case.name: case
    for case in (
        Case("shard", _shard),
        Case("writes", _writes, on={"lost_reply": 0.1, "latency_ms": 5}),
        Case("reads", _reads, on={**_OBJECTS, "latency_ms": 10}, off=("suspend", "stuck")),
        Case("streams", _streams, on={**_OBJECTS, "latency_ms": 10}, off=("stuck",)),
        Case("changes", _changes, on=_OBJECTS, off=("suspend", "stuck", "store_jump")),
        Case("replicas", _replicas),
        Case("timeline", _timeline, timeline="t"),
        Case(
            "expiry",
            _expiry,
            on={"suspend": 0.03, "lost_reply": 0.3, "latency_ms": 50, "no_inline": 1},
            off=("crash_before", "crash_after", "crash", "stuck"),
            faults_ms=8_000,
        ),
        Case("slow", _slow, on={**_OBJECTS, "latency_ms": 100}, off=("suspend", "stuck", "crash")),
        Case("commits", _commits, on={"nap": 0.2}, off=("suspend", "stuck"), timeline="t"),
        Case("takeover", _takeover, on={"lost_reply": 0.2, "latency_ms": 5}, timeline="t"),
        Case(
            "objects",
            _objects,
            on={
                **_OBJECTS,
                "manifest_every": 6,
                "latency_ms": 5,
                "crash": 0.05,
                "crash_after": 0.01,
            },
        ),
        Case("holds", _holds, on={"upkeep_ms": 5}, off=("suspend", "stuck")),
        Case(
            "sinks",
            _sinks,
            on={"crash": 0.05, "lost_reply": 0.1, "manifest_every": 2, "latency_ms": 5},
            off=("suspend", "stuck"),
        ),
        Case(
            "terms",
            _terms,
            on={**_OBJECTS, "jump": 0.05, "latency_ms": 5},
            off=("suspend", "stuck"),
        ),
        Case("ingest", _ingest, judge=_ingested, faults_ms=2_000),
        Case(
            "ingest_wrong",
            _ingest_wrong,
            judge=_ingested,
            off=("suspend", "crash"),
            faults_ms=1_000,
        ),
        Case("broken", _broken, on={"no_inline": 1}, off=("stuck", "chunks"), clean=False),
        Case(
            "journal",
            clerks.clerks,
            on={"lost_reply": 0.1, "late": 0.02, "latency_ms": 5, "store_jump": 0.05},
            off=("stuck",),
            clean=False,
            faults_ms=2_000,
            judge=clerks.judge,
        ),
        Case(
            "pipeline",
            verdicts.pipelines,
            off=("stuck",),
            clean=False,
            faults_ms=2_000,
            judge=verdicts.judge,
        ),
        Case(
            "publish",
            publishers.publishers,
            on={"upkeep_ms": 50},
            off=("stuck", "store_jump"),
            clean=False,
            faults_ms=1_500,
            judge=publishers.judge,
        ),
        Case(
            "publish_forgets",
            publishers.forgotten,
            on={"crash": 0.05},
            off=("stuck", "store_jump", "suspend"),
            clean=False,
            faults_ms=1_500,
            judge=publishers.judge,
        ),
        Case(
            "publish_unfenced",
            publishers.unfenced,
            on={"upkeep_ms": 50},
            off=("stuck", "store_jump"),
            clean=False,
            faults_ms=1_500,
            judge=publishers.judge,
        ),
        Case(
            "kafka",
            brokered.brokered,
            on={"upkeep_ms": 50, "crash": 0.03, "suspend": 0.03},
            off=("stuck", "store_jump"),
            clean=False,
            faults_ms=1_200,
            judge=brokered.judge,
        ),
        Case(
            "kafka_forgets",
            brokered.forgetful,
            on={"crash": 0.05},
            off=("stuck", "store_jump", "suspend"),
            clean=False,
            faults_ms=1_200,
            judge=brokered.judge,
        ),
        Case(
            "kafka_changes",
            changing.changing,
            on={"crash": 0.02},
            off=("stuck", "store_jump"),
            clean=False,
            faults_ms=1_000,
            judge=changing.judge,
        ),
        Case("rebirth", _rebirth, off=("suspend", "stuck")),
        Case("clocks", _clocks, off=_CALM, on={"store_jump": 0.3, "latency_ms": 5}),
        Case("naps", _clocks, off=_CALM, on={"nap": 0.1, "latency_ms": 5}),
    )
}
