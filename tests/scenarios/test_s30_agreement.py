"""S30 and S31: replicas agree on times beforehand, and notice when they do not agree on rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import ReplicaDivergedError
from strandline.ingest.bindings import Bindings
from strandline.ingest.health import Health
from strandline.model.frontier import Frontier
from strandline.testing.seeds import run_seeds
from strandline.testing.simulation import Simulation

from .conftest import Place, catches
from .ingest_place import Replica, Script, opened
from .test_s21_late_and_early import mutant

SKEW_MS = 30_000


def diverged(sim: Simulation) -> None:
    """One of two has the same commands at other times; whoever is second is told."""
    place = Place(sim)
    first, second = opened(place, "right", "wrong")
    script, other = Script(), Script()
    times = range(3, 9)
    script.give(*((time, "k", time, f"v{time}") for time in times), frontier=0)
    other.give(*((time + 1, "k", time, f"v{time}") for time in times), frontier=0)
    right, wrong = Replica(first, script, audits=True), Replica(second, other, audits=True)
    sim.run_until(lambda: right.upserter._turned and wrong.upserter._turned, within_ms=1_000)
    script.frontier = other.frontier = 10
    sim.run_until(lambda: right.task.done() or wrong.task.done(), within_ms=20_000)
    stopped, left = (right, wrong) if right.task.done() else (wrong, right)
    assert isinstance(stopped.task.error, ReplicaDivergedError)
    assert stopped.health is Health.FAILED
    assert "another writer settled" in stopped.upserter.status().cause
    sim.run_until(lambda: left.upper == 10, within_ms=20_000)
    left.check()
    sim.sometimes(stopped.process.node.name)


def test_s30_a_replica_with_other_times_is_stopped_and_nothing_is_merged() -> None:
    run_seeds(diverged, range(4))


def test_s30_a_race_that_is_not_compared_would_be_noticed() -> None:
    with mutant("divergence_is_dropped_unseen"):
        catches(diverged, seeds=1)


def test_s30_equal_rows_are_a_peers_and_no_error(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    script.give(*((time, "k", time, f"v{time}") for time in range(6)), frontier=0)
    replicas = [Replica(process, script) for process in opened(place, "a", "b", "c")]
    sim.run_until_quiet(horizon_ms=5)
    for frontier in range(1, 7):
        script.frontier = frontier
        sim.run_until(lambda: all(r.upper == script.frontier for r in replicas), within_ms=10_000)
    assert sum(each.count("ingest_won") for each in replicas) == 6, "one writes each time"
    for each in replicas:
        each.check()


# ---- S31


def skewed(sim: Simulation) -> None:
    """Clocks that disagree by a minute, a store's clock that jumps, and racing replicas."""
    place = Place(sim, inline_max_bytes=32 * 1024)
    chance = sim.stream("scenario")
    first, second = opened(place, "early", "late")
    second.node.clock.jump(2 * SKEW_MS)
    times = chance.choice(("next", "clock"))
    views = {
        process: process.call(lambda p=process: Bindings(p.store, "b", times=times))
        for process in (first, second)
    }
    ends = {"0": 0, "1": 0}
    done = []

    def bind(process) -> None:
        for _ in range(8):
            ends[chance.choice(("0", "1"))] += chance.randrange(1, 5)
            views[process].bind(dict(ends))
            process.node.tasks.sleep(chance.uniform(0, 5))
        views[process].refresh()
        done.append(process)

    tasks = [process.node.start("bind", lambda p=process: bind(p)) for process in views]
    sim.store_clock.jump(chance.choice((-SKEW_MS, 0, SKEW_MS)))
    sim.run_until(lambda: all(task.done() for task in tasks), within_ms=60_000)
    assert len(done) == 2
    for process, view in views.items():
        process.call(lambda v=view: v.bind(dict(ends)))
        process.call(view.refresh)
    one, other = (view.known for view in views.values())
    assert one.upper == other.upper > Frontier(0)
    for partition, end in ends.items():
        offsets = pa.array(range(end)).to_numpy()
        assert one.times(partition, offsets).tolist() == other.times(partition, offsets).tolist()
    for view, process in zip(views.values(), views, strict=True):
        process.call(view.close)


def test_s31_equal_offsets_have_equal_times_whatever_the_clocks_show() -> None:
    run_seeds(skewed, range(12))


@pytest.mark.slow
def test_s31_a_thousand_times() -> None:
    run_seeds(skewed, range(1_000))


def test_s31_a_time_that_is_drawn_locally_would_be_noticed() -> None:
    with mutant("time_is_minted_locally"):
        catches(skewed, seeds=3)
