"""A store with processes in it, all simulated: crashes, faults, clocks, and in the end peace.

    with Simulation(seed) as sim:
        world = World(sim)
        world.start("writer", write_forever)
        world.run(faults_ms=10_000)      # safety: everything may go wrong
        check_history(world.history)     # ... and was it right all the same?

Every process opens the shared store with faulty handles and settings of its own; whoever dies is
started again. Which faults a history has follows from its seed (`OPTIONS`). When the time of
faults is over, all of them stop, and every process must end by itself (liveness).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from strandline.errors import StoreError, invariant
from strandline.handles.store import Store
from strandline.journal.timeline import timeline_of
from strandline.shard.env import Env
from strandline.shard.metrics import Metrics
from strandline.shard.pulses import TaskHeart
from strandline.shard.settings import Settings
from strandline.testing.faults import FaultKind, FaultyBlob, FaultyConsensus, SeededFaults
from strandline.testing.history import History
from strandline.testing.observer import ObservedBlob, ObservedConsensus, Observer
from strandline.testing.streams import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.testing.node import Node
    from strandline.testing.simulation import Simulation
    from strandline.testing.task import SimulatedTask

LEASE_MS = 2_000
NAP_MS_MAX = 0.6 * LEASE_MS
"""A process that rests for no longer than this, and then can renew, keeps its leases."""

OPTIONS = {
    # What the store does to calls, as chances.
    "not_applied": (0.01, 0.05, 0.2),
    "lost_request": (0.01, 0.05),
    "lost_reply": (0.01, 0.05, 0.2),
    "late": (0.01, 0.05),
    "stuck": (0.001, 0.005),
    "crash_before": (0.0005, 0.003),
    "crash_after": (0.0005, 0.003),
    "latency_ms": (1, 10, 100),
    "late_ms": (10, 500, 5_000),
    # What happens to processes and clocks, as chances per tick.
    "crash": (0.01, 0.05),
    "suspend": (0.02, 0.1),
    "nap": (0.1,),
    "drift": (1,),
    "jump": (0.05,),
    "store_jump": (0.02, 0.1),
    # Rare but legal behaviour of our own code.
    "no_inline": (1,),
    "small_inline": (1,),
    "part_rows": (1, 3),
    "chunks": (1, 3),
    "manifest_every": (2, 6),
    "scan_page": (1, 2),
    "flush": (1, 4),
    "moments": (2, 8),
    "fanout": (2, 3),
    "upkeep_ms": (5, 50),
    "fetch_bytes": (1,),
    "fetch_one": (1,),
    "catch_up": (1,),
}
_FAULTS = {
    "not_applied": FaultKind.NOT_APPLIED,
    "lost_request": FaultKind.LOST_REQUEST,
    "lost_reply": FaultKind.LOST_REPLY,
    "late": FaultKind.LATE,
    "stuck": FaultKind.STUCK,
    "crash_before": FaultKind.CRASH_BEFORE,
    "crash_after": FaultKind.CRASH_AFTER,
}
_TICK_MS = 100.0
_STUCK_MS_MAX = 3_000.0
_HOUR_MS = 3_600_000
_NEVER = 10**12


def settings_of(options: Options) -> Settings:
    """The numbers of a simulated process: leases of seconds, and limits that are reached."""

    def value(name: str, otherwise: int) -> int:
        return int(options[name]) if options.on(name) else otherwise

    inline = 400 if options.on("small_inline") else 32 * 1024
    return Settings(
        inline_max_bytes=0 if options.on("no_inline") else inline,
        inline_total_bytes=4_000 if options.on("small_inline") else 4 * 1024 * 1024,
        inline_flush_bytes=100_000,
        inline_flush_batches=value("flush", 16),
        listed_parts=int(options["chunks"]) or 256,
        manifest_every=value("manifest_every", 32),
        scan_page=value("scan_page", 256),
        moments_loose=value("moments", 64),
        lease_ms=LEASE_MS,
        commit_deadline_ms=8_000,
        read_deadline_ms=8_000,
        turn_ms=200,
        fetch_concurrency=1 if options.on("fetch_one") else 4,
        fetch_bytes_max=1 if options.on("fetch_bytes") else 256 * 1024 * 1024,
        fetch_timeout_ms=4_000,
        stall_ms=30_000,
        diagnose_ms=10_000,
        audit_share=1.0,
        catch_up_bytes=1_000_000 if options.on("catch_up") else 0,
        part_target_rows=value("part_rows", 4_000_000),
        fanout=value("fanout", 8),
        upkeep_ms=value("upkeep_ms", 300),
    )


class Host:
    """One life of a simulated process, with its handle on the store."""

    def __init__(self, world: World, name: str, node: Node) -> None:
        self.world = world
        self.role = name
        self.node = node
        sim, options = world.sim, world.options
        self.plan = SeededFaults(
            sim.stream(f"faults/{node.name}"),
            world.fault_rates(),
            latency_ms_max=options["latency_ms"],
            late_ms_max=options["late_ms"] or 100,
        )
        objects = ObservedBlob(world.observer, node.name)
        self.blob = FaultyBlob(objects, self.plan, sim, node.crash)
        self.consensus = FaultyConsensus(world.consensus, self.plan, sim, node.crash)
        self.random = sim.stream(f"role/{node.name}")
        self.task: SimulatedTask | None = None
        self.opened: Store | None = None
        self.awake_ms = 0.0
        """When it may take its next nap: so that it can renew between two."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def store(self) -> Store:
        invariant(self.opened is not None, "a role runs with an open store")
        return self.opened  # type: ignore[return-value]  # proven on the line above

    def running(self) -> bool:
        """Whether the time of faults goes on; when it is over, a role finishes its work."""
        return not self.world.healed

    def sleep(self, most_ms: float) -> None:
        self.node.tasks.sleep(self.random.uniform(0, most_ms))

    def open(self) -> Store:
        """Open the store as `assembly` does, on this process's ports."""
        env = Env(
            blob=self.blob,
            consensus=self.consensus,
            clock=self.node.clock,
            tasks=self.node.tasks,
            random=self.node.random,
            metrics=Metrics(),
            settings=self.world.settings,
            timelines=lambda name: timeline_of(env, name),
        )

        def heart(lease_ms: int) -> TaskHeart:
            ports = (self.consensus, self.node.tasks, self.node.random)
            return TaskHeart(*ports, lease_ms=lease_ms, owner=self.name)

        self.opened = Store(env, heart, url=f"sim://{self.name}")
        return self.opened

    def heal(self) -> None:
        self.plan.rates = {}
        self.plan.latency_ms_max = min(1.0, self.plan.latency_ms_max)
        self.blob.release()
        self.consensus.release()
        self.node.crash_often(0.0)
        self.node.crash_after(_NEVER)


@dataclass(slots=True)
class _Role:
    """What a process does, in all of its lives."""

    run: Callable[[Host], None]
    process: Host
    back_ms: float | None = None
    done: bool = False


@dataclass(slots=True)
class World:
    """One shared store and its processes."""

    sim: Simulation
    options: Options = field(default_factory=lambda: Options(dict.fromkeys(OPTIONS, 0)))
    history: History = field(default_factory=History)
    healed: bool = False
    spared: set[str] = field(default_factory=set)
    """Roles that are never suspended."""
    rows: int = 0
    """How many rows were made up so far: the last id that was used."""
    batches: dict[str, list[list[dict[str, object]]]] = field(default_factory=dict)
    """What the batches of each application are: its source can be read again after a crash."""
    settings: Settings = field(init=False)
    observer: Observer = field(init=False)
    consensus: ObservedConsensus = field(init=False)
    _roles: dict[str, _Role] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = settings_of(self.options)
        self.observer = Observer(self.history, self.now_us, self.sim.now_ms)
        self.consensus = ObservedConsensus(self.observer, self.sim.now_ms)

    @classmethod
    def swarm(cls, sim: Simulation) -> World:
        """A world whose faults the seed chooses."""
        return cls(sim, Options.from_seed(sim.stream("options"), OPTIONS))

    def now_us(self) -> int:
        return round(self.sim.elapsed_ms() * 1000)

    def fault_rates(self) -> dict[FaultKind, float]:
        if self.healed:
            return {}
        return {kind: self.options[name] for name, kind in _FAULTS.items()}

    def start(self, name: str, run: Callable[[Host], None]) -> None:
        """A process that runs `run` until it returns, and again whenever it dies before."""
        self._roles[name] = _Role(run, self._born(name, run))

    def run(self, *, faults_ms: float, peace_ms: float = 600_000) -> None:
        """Faults for a while, then none; every role must end within `peace_ms` after that."""
        self.sim.after(_TICK_MS, self._tick)
        self.sim.run(until_ms=self.sim.elapsed_ms() + faults_ms)
        self.heal()
        self.sim.run_until(self.all_done, within_ms=peace_ms)

    def settle(self, shards: tuple[str, ...], committed: int) -> None:
        """What the last owner staged and did not commit is not there for anybody."""
        found = self.history.committed
        found[:] = [
            replace(each, gone=True) if each.shard in shards and each.lower >= committed else each
            for each in found
        ]

    def heal(self) -> None:
        """Stop all faults, and start again whoever is dead."""
        self.healed = True
        self.sim.note("heal")
        for name, role in self._roles.items():
            if not role.done and not role.process.node.alive:
                role.process = self._born(name, role.run)
            role.process.heal()

    def all_done(self) -> bool:
        return all(role.done for role in self._roles.values())

    def hosts(self) -> list[Host]:
        """The living ones."""
        return [role.process for role in self._roles.values() if role.process.node.alive]

    def _born(self, name: str, run: Callable[[Host], None]) -> Host:
        drift = self.sim.stream("drift").choice((-10_000, 0, 10_000))
        node = self.sim.node(name, drift_ppm=drift if self.options.on("drift") else 0)
        process = Host(self, name, node)

        def body() -> None:
            while process.opened is None:
                try:
                    process.open()
                except StoreError:
                    process.sleep(_TICK_MS)
            run(process)
            process.store.close()
            self._roles[name].done = True

        process.task = node.start(name, body)
        return process

    def _tick(self) -> None:
        """Bring the dead back after a while, and let things happen to the living."""
        nemesis = self.sim.stream("nemesis")
        for name, role in self._roles.items():
            if not role.done and not role.process.node.alive:
                self._bring_back(name, role)
            elif not role.done and not self.healed:
                self._harm(role.process)
        if not self.healed and nemesis.random() < self.options["store_jump"]:
            self.sim.store_clock.jump(nemesis.choice((-_HOUR_MS, -3_000, 3_000, _HOUR_MS)))
        if not self.healed or not self.all_done():
            self.sim.after(_TICK_MS, self._tick)

    def _bring_back(self, name: str, role: _Role) -> None:
        if role.back_ms is None:
            away_ms = self.sim.stream("nemesis").uniform(0, 1.5 * LEASE_MS)
            role.back_ms = self.sim.elapsed_ms() + away_ms
        elif role.back_ms <= self.sim.elapsed_ms():
            role.back_ms = None
            role.process = self._born(name, role.run)

    def _harm(self, process: Host) -> None:
        nemesis = self.sim.stream("nemesis")
        crash, suspend, nap, jump, calm = (nemesis.random() for _ in range(5))
        if crash < self.options["crash"]:
            self.sim.sometimes("crash")
            process.node.crash_after(nemesis.randrange(40))
        if suspend < self.options["suspend"] and process.role not in self.spared:
            self.sim.sometimes("suspend")
            process.node.suspend(nemesis.uniform(0, 3 * LEASE_MS))
        if nap < self.options["nap"] and process.awake_ms < self.sim.elapsed_ms():
            nap_ms = nemesis.uniform(0, NAP_MS_MAX)
            process.awake_ms = self.sim.elapsed_ms() + nap_ms + NAP_MS_MAX
            process.node.suspend(nap_ms)
        if jump < self.options["jump"]:
            process.node.clock.jump(nemesis.choice((1_000, _HOUR_MS)))
        if calm < _TICK_MS / _STUCK_MS_MAX and self.options.on("stuck"):
            # What is stuck goes on, and what comes may get stuck again.
            process.blob.release()
            process.consensus.release()
