"""S26 to S29 and S35: replicas that start cold, race, are paused, die, and land late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.ingest.health import Health
from strandline.model.frontier import Frontier
from strandline.testing.faults import Fault, FaultKind
from strandline.testing.seeds import run_seeds, unreached
from strandline.testing.simulation import Simulation

from .conftest import LEASE, Place
from .ingest_place import Command, Replica, Script, ScriptFeed, opened


def command(time: int) -> Command:
    return (time, f"k{time % 5}", time, None if time % 7 == 3 else f"v{time}")


def small(sim: Simulation, **settings: int) -> Place:
    """A store in which small appends need no object of their own: nobody merges them here."""
    return Place(sim, inline_max_bytes=32 * 1024, **settings)


class Flow:
    """A script that goes on by itself: one time for every so many milliseconds."""

    def __init__(self, sim: Simulation, tick_ms: float) -> None:
        self.sim = sim
        self.script = Script()
        self.tick_ms = tick_ms
        self.ends: int | None = None
        self._next()

    def _next(self) -> None:
        time = self.script.frontier
        if self.ends is None or time < self.ends:
            self.script.give(command(time), frontier=time + 1)
            self.sim.after(self.tick_ms, self._next)

    def feed(self, speed: float = 1.0) -> ScriptFeed:
        """From now on, so much of what a live replica reads."""
        start = self.sim.elapsed_ms()
        return ScriptFeed(
            self.script, lambda: int((self.sim.elapsed_ms() - start) / self.tick_ms * speed)
        )


def replaced(sim: Simulation, backlog: int = 12) -> None:
    chance = sim.stream("scenario")
    speed, tick = 0.4, 50.0
    place = small(sim)
    flow = Flow(sim, tick)
    first, second = opened(place, "old", "new")
    old = Replica(first, flow.script, epoch=1)
    first.call(lambda: old.upserter.table.shard.fence(1))
    sim.run_until(lambda: (old.upper or 0) >= backlog, within_ms=60_000 + 4 * backlog * tick)
    # Cold: it starts at the beginning, and reads more slowly than the stream goes on.
    cold = Replica(second, flow.script, feed=flow.feed(speed), read_only=True, limit_bytes=200)
    sim.run(until_ms=sim.elapsed_ms() + chance.uniform(0, 600))
    assert second.metrics.value("appends", "t") == 0, "it is read-only"
    assert cold.count("ingest_won") == 0
    before = first.call(lambda: old.upserter.table.shard.upper).time
    read = cold.feed.pace()
    second.call(lambda: cold.upserter.promote(2))
    flow.ends = flow.script.frontier
    promoted = sim.elapsed_ms()
    sim.run_until(old.task.done, within_ms=10_000)
    assert old.health is Health.FENCED
    cold.feed.pace = flow.feed(1.0).pace if chance.random() < 0.5 else cold.feed.pace
    behind = (flow.ends - read) * tick / speed
    sim.run_until(lambda: cold.upper == flow.ends, within_ms=2 * behind + 1_000)
    assert sim.elapsed_ms() - promoted < 2 * behind + 1_000
    assert backlog <= before <= flow.ends
    assert cold.count("ingest_won") >= 1 or before == flow.ends, "it goes on where the old one was"
    cold.check()


def test_s26_a_cold_read_only_replacement_takes_over_without_a_gap() -> None:
    run_seeds(replaced, range(4))


@pytest.mark.slow
def test_s26_again_and_again() -> None:
    run_seeds(replaced, range(200))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_s26_a_thousand_times_behind() -> None:
    run_seeds(lambda sim: replaced(sim, 1_000), range(2))


def raced(sim: Simulation, burst: int = 0) -> None:
    """Both are warm; one sleeps or gets a burst, then the other one dies."""
    place = small(sim)
    flow = Flow(sim, 200.0)
    replicas = [Replica(process, flow.script) for process in opened(place, "a", "b")]
    if sim.seed % 2:
        replicas.reverse()
    survivor, victim = replicas
    sim.run_until(lambda: all((each.upper or 0) >= 4 for each in replicas), within_ms=60_000)
    assert sum(each.count("ingest_won") for each in replicas) >= 1
    if burst:
        time = flow.script.frontier
        flow.script.give(*((time, f"k{n % 50}", n, f"b{n}") for n in range(burst)))
    else:
        survivor.process.node.suspend(3_000)
    sim.run(until_ms=sim.elapsed_ms() + sim.stream("scenario").uniform(0, 3_100))
    victim.process.node.crash()
    reached = place_upper(place)
    killed = sim.elapsed_ms()
    if not burst:
        sim.run_until(lambda: sim.elapsed_ms() >= killed + 3_000, within_ms=5_000)
    sim.run_until(lambda: place_upper(place) > reached, within_ms=5_000)
    flow.ends = flow.script.frontier
    sim.run_until(lambda: survivor.upper == flow.ends, within_ms=10_000)
    survivor.check()


def place_upper(place: Place) -> Frontier:
    from strandline.shard.versions import load

    found = load(place._env, "t")
    assert found is not None
    return found.upper


def test_s27_the_survivor_of_two_goes_on_within_five_seconds() -> None:
    run_seeds(raced, range(4))


def test_s28_a_burst_of_ten_thousand_commands_in_one_time_changes_nothing() -> None:
    run_seeds(lambda sim: raced(sim, burst=10_000), range(2))


@pytest.mark.slow
def test_s27_and_s28_again_and_again() -> None:
    run_seeds(raced, range(200))
    run_seeds(lambda sim: raced(sim, burst=10_000), range(20))


def landed_late(sim: Simulation) -> None:
    """The append of an instance that is dead lands when its successor is about to append."""
    place, script = small(sim), Script()
    first, second = opened(place, "dead", "new")
    dead = Replica(first, script)
    script.give(*(command(time) for time in range(5)), frontier=5)
    sim.run_until(lambda: dead.upper == 5, within_ms=10_000)
    read = [5]
    new = Replica(second, script, feed=ScriptFeed(script, lambda: read[0]))
    sim.run_until(lambda: new.upper == 5, within_ms=10_000)
    # Both have all their leases, so that nothing but appends changes the shard from now on.
    second.call(new.upserter.table.road._writer)
    assert dead.rows(4) == new.rows(4)

    def delayed(fault: Fault) -> Callable[[str, str], Fault | None]:
        commit = ("consensus.compare_and_set", "shard/t")
        return lambda call, key: fault if (call, key) == commit else None

    first.fates.add(delayed(Fault(FaultKind.LATE, late_ms=1_000)))
    script.give(command(5), frontier=6)
    sim.run(until_ms=sim.elapsed_ms() + 100)
    first.node.crash()
    assert place_upper(place) == Frontier(5), "it has not landed yet"
    second.fates.add(delayed(Fault(request_ms=1_500)))
    read[0] = 7
    sim.run_until(lambda: new.upper == 6, within_ms=20_000)
    second.fates.rules.clear()
    script.give(command(6), frontier=7)
    sim.run_until(lambda: new.upper == 7, within_ms=20_000)
    sim.sometimes("lost to the dead" if new.count("ingest_lost") else "won")
    new.check()


def test_s29_an_append_of_a_dead_instance_counts_once() -> None:
    assert unreached(landed_late, "lost to the dead", least=6) == []


# ---- S35: nothing of this needs a restart


def test_s35_a_replica_that_lost_every_lease_goes_on_by_itself(sim: Simulation) -> None:
    place, script = small(sim), Script()
    first, second = opened(place, "away", "there")
    away = Replica(first, script)
    script.give(command(0), frontier=1)
    sim.run_until(lambda: away.upper == 1, within_ms=10_000)
    first.node.suspend(6 * LEASE)
    there = Replica(second, script)
    script.give(command(1), frontier=2)
    second.call(lambda: bury(second, 5 * LEASE))
    assert len(second.call(lambda: writers(second))) == 1, "the one that is away was buried"
    sim.run_until(lambda: there.upper == 2, within_ms=10_000)
    second.node.crash()
    script.give(command(2), frontier=3)
    sim.run_until(lambda: away.upper == 3, within_ms=60_000)
    away.check()


def bury(process, duration_ms: float) -> None:
    ends = process.sim.elapsed_ms() + duration_ms
    machine = process.store.machine("t")
    while process.sim.elapsed_ms() < ends:
        machine.refresh()
        process.store.leases.bury(machine)
        process.node.tasks.sleep(LEASE / 8)


def writers(process) -> list[str]:
    return list(process.store.machine("t").refresh().writers)


def test_s35_a_store_that_is_away_for_minutes_needs_no_restart(sim: Simulation) -> None:
    place, script = small(sim, read_deadline_ms=1_000, commit_deadline_ms=1_000), Script()
    (process,) = opened(place, "replica")
    replica = Replica(process, script)
    script.give(command(0), frontier=1)
    sim.run_until(lambda: replica.upper == 1, within_ms=10_000)
    process.fates.add(lambda _call, _key: Fault(FaultKind.NOT_APPLIED))
    script.give(command(1), frontier=2)
    sim.run(until_ms=sim.elapsed_ms() + 180_000)
    assert replica.health is Health.STALLED
    assert "no turn has worked" in replica.upserter.status().cause
    process.fates.rules.clear()
    sim.run_until(lambda: replica.upper == 2, within_ms=60_000)
    replica.check()
