"""S21 to S25: what was settled by others is dropped, what is early waits, a stall is told."""

from __future__ import annotations

import pytest

from strandline.ingest.health import Health
from strandline.model.frontier import Frontier
from strandline.testing.bank_ingest import BANK
from strandline.testing.faults import Fault, FaultKind
from strandline.testing.mutants import planted
from strandline.testing.seeds import run_seeds, unreached
from strandline.testing.simulation import Simulation

from .conftest import Place, catches
from .ingest_place import Replica, Script, ScriptFeed, opened, peer, row, settle, settled


def mutant(name: str):
    (found,) = [each for each in BANK if each.name == name]
    return planted(found)


def lagging_replacement(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    other, process = opened(place, "peer", "lagging")
    settle(other, peer(other), [], range(10))
    replica = Replica(process, script)
    script.give((5, "k0", 1, "1"), (7, "k1", 2, "2"), frontier=11)
    sim.run_until(lambda: replica.upper == 11, within_ms=10_000)
    sim.run_until_quiet(horizon_ms=5)
    assert replica.updates(0, 10) == []
    status = replica.upserter.status()
    assert (status.health, status.oldest, status.restarts) == (Health.RUNNING, None, 0)
    assert replica.count("ingest_dropped") == 2


def test_s21_a_lagging_replacement_drops_what_is_settled_and_moves_on(sim: Simulation) -> None:
    lagging_replacement(sim)


def test_s21_data_that_is_stashed_again_below_the_upper_would_be_noticed() -> None:
    with mutant("late_is_stashed_again"):
        catches(lagging_replacement, seeds=2)


def three_ways(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    other, process = opened(place, "peer", "replica")
    settle(other, peer(other), [row(3, "k1", "a")], range(10))
    replica = Replica(process, script)
    script.give((5, "k1", 1, "b"), (10, "k1", 2, "c"), (12, "k2", 3, "d"), frontier=11)
    sim.run_until(lambda: replica.upper == 11, within_ms=10_000)
    assert replica.updates(9, 10) == [(10, "k1", "a", -1), (10, "k1", "c", 1)]
    assert replica.upserter.status().oldest == 12
    script.give(frontier=13)
    sim.run_until(lambda: replica.upper == 13, within_ms=10_000)
    assert replica.updates(10, 12) == [(12, "k2", "d", 1)]
    assert replica.upserter.status().restarts == 0


def test_s22_what_comes_is_late_or_due_or_early(sim: Simulation) -> None:
    three_ways(sim)


def test_s22_a_time_that_is_settled_too_soon_would_be_noticed() -> None:
    with mutant("settles_one_time_too_many"):
        catches(three_ways, seeds=2)


def jump(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    other, process = opened(place, "peer", "replica")
    writer = peer(other)
    settle(other, writer, [row(2, "k", "zero")], range(5))
    replica = Replica(process, script)
    script.give((2, "k", 0, "zero"), (7, "k", 1, "a"), (49, "k", 2, "b"), (50, "k", 3, "c"))
    script.give((53, "k", 4, "d"), frontier=5)
    sim.run_until(lambda: len(replica.upserter.table.stash.sizes()) == 4, within_ms=10_000)
    changes = [row(7, "k", "zero", -1), row(7, "k", "a"), row(49, "k", "a", -1), row(49, "k", "b")]
    settle(other, writer, changes, range(5, 50))
    script.give(frontier=51)
    sim.run_until(lambda: replica.upper == 51, within_ms=10_000)
    assert replica.updates(49, 50) == [(50, "k", "b", -1), (50, "k", "c", 1)]
    sim.run_until(lambda: list(replica.upserter.table.stash.sizes()) == [53], within_ms=1_000)
    replica.check()


def test_s23_a_jump_drops_what_it_passes_and_the_rest_meets_the_state_at_its_end(
    sim: Simulation,
) -> None:
    jump(sim)


def test_s23_the_state_before_the_jump_would_be_noticed() -> None:
    """The mutant takes old rows as of the last time that this replica itself has looked them up."""

    def twice(sim: Simulation) -> None:
        place, script = Place(sim), Script()
        other, process = opened(place, "peer", "replica")
        writer = peer(other)
        replica = Replica(process, script)
        script.give((0, "k", 0, "zero"), frontier=1)
        sim.run_until(lambda: replica.upper == 1, within_ms=10_000)
        settle(other, writer, [row(30, "k", "zero", -1), row(30, "k", "a")], range(1, 50))
        script.give((30, "k", 1, "a"), (50, "k", 2, "b"), frontier=51)
        sim.run_until(lambda: replica.upper == 51, within_ms=10_000)
        replica.check()

    with Simulation(0) as sim:
        twice(sim)
    with mutant("jump_is_taken_for_a_step"):
        catches(twice, seeds=2)


# ---- S24: a freeze is told


def refusing(call: str, key: str) -> Fault | None:
    """The output takes no commits any more."""
    write = call == "consensus.compare_and_set" and key == "shard/t"
    return Fault(FaultKind.NOT_APPLIED) if write else None


def test_s24_an_output_that_takes_nothing_is_a_stall_and_heals_by_itself(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    (process,) = opened(place, "replica")
    replica = Replica(process, script)
    script.give((3, "k", 1, "a"), frontier=4)
    sim.run_until(lambda: replica.upper == 4, within_ms=10_000)
    process.fates.add(refusing)
    script.give((6, "k", 2, "b"), frontier=40)
    start = sim.elapsed_ms()
    sim.run_until(lambda: replica.health is Health.STALLED, within_ms=60_000)
    assert sim.elapsed_ms() - start >= 29_000, "a short pause is no stall"
    status = replica.upserter.status()
    assert (status.upper, status.frontier, status.oldest) == (Frontier(4), Frontier(40), 6)
    assert status.cause
    sim.run_until(lambda: replica.count("ingest_stalls") == 1, within_ms=60_000 - 31_000)
    process.fates.rules.clear()
    sim.run_until(lambda: replica.upper == 40, within_ms=120_000)
    replica.check()
    assert replica.count("ingest_stalls") == 1, "one stall is counted once"


class SilentFeed(ScriptFeed):
    """An input that does not answer for as long as it is told to."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.silent = None

    def poll(self, want):
        if self.silent is not None:
            self.silent.wait()
        return super().poll(want)


def test_s24_an_input_that_hangs_is_a_stall_too(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    (process,) = opened(place, "replica")
    feed = SilentFeed(script)
    replica = Replica(process, script, feed=feed)
    script.give((3, "k", 1, "a"), frontier=4)
    sim.run_until(lambda: replica.upper == 4, within_ms=10_000)
    feed.silent = process.node.tasks.event()
    sim.run_until(lambda: replica.count("ingest_stalls") == 1, within_ms=60_000)
    status = replica.upserter.status()
    assert status.health is Health.STALLED
    assert "waiting for its input" in status.cause
    process.call(feed.silent.set)
    script.give(frontier=9)
    sim.run_until(lambda: replica.upper == 9, within_ms=10_000)
    replica.check()


def test_s24_the_bug_that_froze_in_silence_would_not_be_silent_any_more() -> None:
    """Data below the upper is stashed again, as it was in the seed: the status tells."""
    with mutant("late_is_stashed_again"), Simulation(1) as sim:
        place, script = Place(sim), Script()
        other, process = opened(place, "peer", "frozen")
        settle(other, peer(other), [], range(10))
        replica = Replica(process, script, pause_ms=500)
        script.give((5, "k0", 1, "1"), frontier=41)
        sim.run_until(lambda: replica.count("ingest_stalls") == 1, within_ms=60_000)
        status = replica.upserter.status()
        assert (status.health, status.oldest) == (Health.STALLED, 5)
        assert (status.upper, status.frontier) == (Frontier(10), Frontier(41))


def test_s24_an_idle_ingest_is_running(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    (process,) = opened(place, "replica")
    replica = Replica(process, script, pause_ms=1_000)
    sim.run(until_ms=sim.elapsed_ms() + 200_000)
    assert replica.health is Health.RUNNING
    assert replica.count("ingest_stalls") == 0


# ---- S25: the upper is never captured


def overtaken(sim: Simulation) -> None:
    place, script = Place(sim), Script()
    chance = sim.stream("scenario")
    other, process = opened(place, "peer", "replica")
    writer = peer(other)
    for time in range(61):
        script.give((time, f"k{time % 3}", time, f"v{time}"))
    settle(other, writer, changes(script, range(20)), range(20))
    pace = [0]
    replica = Replica(process, script, feed=ScriptFeed(script, lambda: pace[0]))
    script.frontier = 61
    upper = 20
    while upper < 60:
        if chance.random() < 0.6 and pace[0] < 60:
            pace[0] = min(60, pace[0] + chance.randrange(1, 12))
        else:
            upper = advance(other, writer, script, upper)
        sim.run(until_ms=sim.elapsed_ms() + chance.choice((0.1, 3, 20)))
    pace[0] = 60
    sim.run_until(lambda: replica.upper == 60, within_ms=10_000)
    sim.run_until(lambda: not replica.upserter.table.stash.sizes(), within_ms=1_000)
    pace[0] = 61
    sim.run_until(lambda: replica.upper == 61, within_ms=10_000)
    assert replica.rows(60) == script.content(60)
    assert replica.upserter.status().restarts == 0
    sim.sometimes("dropped" if replica.count("ingest_dropped") else "not dropped")
    sim.sometimes("won" if replica.count("ingest_won") > 1 else "won the last one only")


def advance(process, writer, script: Script, upper: int) -> int:
    """The peer settles one time, unless the replica has done so meanwhile."""
    seen = process.call(lambda: process.store.shard("t").upper).time
    if seen == upper and upper < 60:
        times = range(upper, upper + 1)
        # The replica may do so between the look and the append.
        seen = settled(process, writer, changes(script, times), times).time
    assert seen is not None
    return max(seen, upper)


def changes(script: Script, times: range) -> list[dict[str, object]]:
    found = []
    for time in times:
        before, after = (script.content(at) if at >= 0 else {} for at in (time - 1, time))
        found += [row(time, k, v, -1) for k, v in before.items() if after.get(k) != v]
        found += [row(time, k, v) for k, v in after.items() if before.get(k) != v]
    return found


def test_s25_a_peer_that_overtakes_us_while_we_catch_up_pins_nothing() -> None:
    assert unreached(overtaken, "dropped", least=12) == []


@pytest.mark.slow
def test_s25_a_thousand_times() -> None:
    run_seeds(overtaken, range(1_000))
