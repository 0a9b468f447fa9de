"""S24 for a pipeline: a replica that hangs is stalled within a minute, and heals by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import strandline
from strandline.errors import NotFoundError
from strandline.journal.log import Journal
from strandline.model.frontier import Frontier
from strandline.pipeline.attendant import Attendant
from strandline.pipeline.compute import Computed, Work
from strandline.pipeline.replica import Replica
from strandline.pipeline.report import PipelineStatus, status_of
from strandline.pipeline.rig import Rig
from strandline.pipeline.runner import Runner
from strandline.pipeline.said import BEAT_MS, Said
from strandline.pipeline.states import State
from strandline.system import SystemTasks
from strandline.testing.computing import ArrowComputer
from strandline.testing.scripted_source import ScriptedSource
from strandline.testing.simulation import Simulation
from strandline.testing.world import Host

from .pipeline_place import NAME, Place

Change = Callable[["Life", Host, Rig], Rig]


@dataclass
class Life:
    """One replica that runs for as long as the test lasts, and what may hang in it."""

    place: Place
    change: Change
    gates: list[object] = field(default_factory=list)
    runners: list[Runner] = field(default_factory=list)
    hosts: list[Host] = field(default_factory=list)

    def start(self) -> None:
        self.place.world.start("replica", self._run)

    def _run(self, process: Host) -> None:
        env = process.store.env
        rig = self.change(self, process, self.place.rig(process.store, poll_ms=200))
        self.hosts.append(process)
        self.gates.append(env.tasks.event())
        runner = Runner(Replica(rig), env, rig.settings)
        self.runners.append(runner)
        now_ms = env.consensus.now_ms()
        said = Said(f"token{len(self.runners)}", "host", 1, False, now_ms, now_ms)
        with Attendant(env, NAME, runner, name="a", said=said):
            runner.run()

    @property
    def runner(self) -> Runner:
        return self.runners[-1]

    @property
    def stalls(self) -> float:
        return self.hosts[-1].store.env.metrics.value("replica_stalls") if self.hosts else 0

    @property
    def committed(self) -> int:
        return self.runner.standing.next_t if self.runners else 0

    def wait(self) -> None:
        """Hang until the test lets go."""
        self.gates[-1].wait()

    def let_go(self) -> None:
        self.hosts[-1].node.start("let go", self.gates[-1].set)

    def seen(self) -> PipelineStatus:
        """What another process sees, a beat from now."""
        sim = self.place.sim
        sim.run(until_ms=sim.elapsed_ms() + BEAT_MS)
        found = self.place.ask(lambda store: status_of(Journal(store.env, NAME)))
        assert isinstance(found, PipelineStatus)
        return found


def blocks_at(t: int) -> Change:
    """A computation that does not come back."""

    def change(life: Life, process: Host, rig: Rig) -> Rig:
        class Blocking(ArrowComputer):
            def compute(self, work: Work) -> Computed:
                if work.time == t:
                    life.wait()
                return super().compute(work)

        return replace(rig, computer=Blocking(process.store, fetch=life.place.topic.fetch))

    return change


def silent_after(count: int) -> Change:
    """A source that does not answer any more once so many transactions are committed."""

    def change(life: Life, process: Host, rig: Rig) -> Rig:
        class Silent(ScriptedSource):
            def plan(self, *arguments: object) -> object:
                if life.committed >= count:
                    life.wait()
                return super().plan(*arguments)

        return replace(rig, sources={"orders": Silent(life.place.topic)})

    return change


def begun(sim: Simulation, change: Change) -> Life:
    life = Life(Place(sim), change)
    life.place.send(*range(9))
    life.start()
    return life


def test_s24_a_computation_that_hangs_is_a_stall_and_heals_by_itself(sim: Simulation) -> None:
    life = begun(sim, blocks_at(2))
    sim.run_until(lambda: life.committed == 2, within_ms=10_000)
    start = sim.elapsed_ms()
    sim.run(until_ms=start + 30_000)
    assert life.seen().state == State.RUNNING, "a short pause is no stall"
    sim.run_until(lambda: life.stalls == 1, within_ms=60_000 - 30_000)
    status = life.seen()
    assert sim.elapsed_ms() - start <= 60_000
    assert (status.state, status.committed, status.sealed) == (State.STALLED, Frontier(2), 2)
    assert "computing transaction 2 for 4" in status.cause
    assert "committed up to {2}, 2 is sealed" in status.cause
    assert status.still_seconds >= 45
    life.let_go()
    sim.run_until(lambda: life.committed == 3, within_ms=10_000)
    healed = life.seen()
    assert (healed.state, healed.cause, healed.still_seconds) == (State.RUNNING, "", 0.0)
    assert life.stalls == 1, "one stall is counted once"


def test_s24_a_source_that_hangs_is_a_stall_too(sim: Simulation) -> None:
    life = begun(sim, silent_after(3))
    sim.run_until(lambda: life.committed == 3, within_ms=10_000)
    sim.run_until(lambda: life.stalls == 1, within_ms=60_000)
    status = life.seen()
    assert (status.state, status.committed, status.sealed) == (State.STALLED, Frontier(3), None)
    assert "asking the sources for transaction 3 for" in status.cause
    life.let_go()
    life.place.send(20, 21, 22)
    sim.run_until(lambda: life.committed == 4, within_ms=10_000)
    assert life.seen().state == State.RUNNING


def slow(life: Life, process: Host, rig: Rig) -> Rig:
    """Computations and answers of the source take a while, and not too long."""

    class Slow(ArrowComputer):
        def compute(self, work: Work) -> Computed:
            process.node.tasks.sleep(20_000)
            return super().compute(work)

    class Lazy(ScriptedSource):
        def plan(self, *arguments: object) -> object:
            process.node.tasks.sleep(1_500)
            return super().plan(*arguments)

    computer = Slow(process.store, fetch=life.place.topic.fetch)
    return replace(rig, computer=computer, sources={"orders": Lazy(life.place.topic)})


def test_s24_work_that_comes_after_a_long_rest_is_no_stall(sim: Simulation) -> None:
    life = begun(sim, slow)
    sim.run_until(lambda: life.committed == 3, within_ms=90_000)
    sim.run(until_ms=sim.elapsed_ms() + 300_000)
    assert (life.seen().state, life.stalls) == (State.RUNNING, 0)
    life.place.send(20)
    sim.run_until(lambda: life.committed == 4, within_ms=30_000)
    assert life.stalls == 0


def test_s24_rows_that_wait_for_more_are_no_stall(sim: Simulation) -> None:
    def patient(life: Life, process: Host, rig: Rig) -> Rig:
        settings = replace(rig.settings, rows_max=1_000, delay_ms=120_000)
        return replace(slow(life, process, rig), settings=settings)

    life = begun(sim, patient)
    sim.run(until_ms=sim.elapsed_ms() + 119_000)
    assert (life.committed, life.stalls) == (0, 0)
    assert life.seen().state == State.RUNNING
    sim.run_until(lambda: life.committed == 1, within_ms=60_000)
    assert life.stalls == 0


def test_s24_the_loop_that_tells_only_its_errors_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it was: a replica says what its loop last said of itself."""
    monkeypatch.setattr(
        "strandline.pipeline.runner.judged", lambda sight, _: (sight.state, sight.cause)
    )
    with Simulation(0) as sim:
        life = begun(sim, blocks_at(2))
        sim.run_until(lambda: life.committed == 2, within_ms=10_000)
        sim.run(until_ms=sim.elapsed_ms() + 120_000)
        assert (life.seen().state, life.stalls) == (State.RUNNING, 0)


HANGS = """
import sys, threading
import strandline
from strandline.pipeline.engine import PipelineEngine
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.engines import arrow_engine

class Hangs(ArrowComputer):
    def compute(self, work):
        if work.time == 1:
            threading.Event().wait()
        return super().compute(work)

with strandline.open(sys.argv[1]) as store:
    settings = PipelineSettings(rows_max=10, delay_ms=0, stall_ms=1_500)
    text = "CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING generator " \
        "OPTIONS (keys '5', rows '30', rowsPerSecond '0');"
    engine = lambda store: PipelineEngine(Hangs(store), arrow_engine(store).answer)
    store.pipeline("shop", text, settings=settings, engine=engine).run()
"""


@pytest.mark.process
def test_s24_a_process_that_hangs_is_seen_from_another_one(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    child = subprocess.Popen([sys.executable, "-c", HANGS, lake])
    try:
        told = _told(lake, child)
        assert (told.committed, told.sealed) == (Frontier(1), 1)
        assert "computing transaction 1 for" in told.cause
        assert told.still_seconds >= 1.5
    finally:
        child.kill()
        child.wait(60)


def _told(lake: str, child: subprocess.Popen[bytes]) -> PipelineStatus:
    """The status once it says stalled."""
    for _ in range(600):
        assert child.poll() is None, "it ended"
        with suppress(NotFoundError), strandline.open(lake, create=False) as store:
            found = store.pipeline("shop").status()
            if found.state == State.STALLED:
                return found
        SystemTasks().sleep(100)
    raise AssertionError("it was not told within a minute")
