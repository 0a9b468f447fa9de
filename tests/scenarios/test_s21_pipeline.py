"""S21 to S23, S25, S27 to S31, S34 and S35 for pipelines: replicas that lag, race, pause and die.

Here a source's rows get their time when they are sealed, and nothing is computed at t before
COMMIT(t - 1) was read. So of the three ways of S22 two are left at the target: LATE and DUE. What
would be EARLY stays in its source, and S23's stash is what a replica has computed and not landed.
S24 is about status, see tests/pipeline/test_runner.py; S26 is in test_s26_pipeline.py, S32 and S33
in test_s32_pipeline.py. S35 holds in all of them: `check` counts how often each member began.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.handles.store import Store
from strandline.journal.log import Journal
from strandline.pipeline.states import State
from strandline.testing.bank_pipeline import BANK
from strandline.testing.faults import Fault, FaultKind
from strandline.testing.mutants import planted
from strandline.testing.seeds import run_seeds, unreached
from strandline.testing.simulation import Simulation
from strandline.testing.world import LEASE_MS

from .conftest import catches
from .pipeline_place import NAME, TINY
from .pipeline_together import VIEWED, Member, Row, Together

SKEW_MS = 30_000


def row(number: int) -> Row:
    """Rows that upsert and delete a few keys over and over."""
    return (number % 5, None if number % 7 == 3 else number)


def commits(place: Together, *members: Member, upto: int) -> None:
    """Rows come until so many transactions are committed, and all members have seen that."""
    given = sum(place.topic.ends.values())
    place.give(*(row(number) for number in range(given, upto)))
    place.until(lambda: all(each.next_t >= upto for each in members))


def slow_landing(ms: float) -> Callable[[str, str], Fault | None]:
    """Whatever a replica writes to a shard takes so long to get there."""
    landing = ("consensus.compare_and_set", "shard/")
    return lambda call, key: Fault(request_ms=ms) if (call, key[:6]) == landing else None


# ---- S21 to S25: what was settled by others is dropped


def lagging_replacement(sim: Simulation) -> None:
    place = Together(sim)
    peer = place.open("peer")
    commits(place, peer, upto=10)
    peer.host.node.crash()
    before = place.changes("orders", 1, 9)
    lagging = place.open("lagging")
    place.until(lambda: lagging.running)
    assert lagging.next_t == 10, "it is where the others were"
    commits(place, lagging, upto=11)
    assert lagging.computed == [10], "nothing that is settled is computed, or sent"
    assert place.changes("orders", 1, 9) == before
    place.check(lagging)


def test_s21_a_lagging_replacement_goes_on_where_the_others_were(sim: Simulation) -> None:
    lagging_replacement(sim)


def test_s21_a_replacement_that_begins_anew_would_be_noticed() -> None:
    (found,) = [each for each in BANK if each.name == "plan_starts_at_the_checkpoint"]
    with planted(found):
        catches(lagging_replacement, seeds=2)


def test_s22_what_is_late_is_dropped_and_what_is_due_is_against_what_there_is(
    sim: Simulation,
) -> None:
    place = Together(sim, VIEWED)
    peer, other = place.open("peer"), place.open("other")
    place.give((1, 50))
    place.until(lambda: peer.next_t == other.next_t == 1)
    # It has computed the second one, and before it lands that, the peer has committed it.
    other.slow[1] = 5_000
    peer.fates.add(slow_landing(300))
    place.give((1, 60))
    place.until(lambda: peer.next_t == 2)
    landed = appends(other)
    place.until(lambda: other.next_t == 2)
    assert 1 in other.computed, "it raced for it"
    assert appends(other) == landed, "it is late: dropped"
    peer.host.node.crash()
    for each in ((1, 70), (2, 80)):
        place.give(each)
        place.until(lambda: place.taken(other))
    assert place.changes("orders", 1, 3) == [
        (1, 1, 50, -1), (1, 1, 60, 1), (2, 1, 60, -1), (2, 1, 70, 1), (3, 2, 80, 1),
    ]  # fmt: skip
    assert place.changes("large", 1, 3) == place.changes("orders", 1, 3)
    place.check(other)


def appends(member: Member) -> list[tuple[str, str, float]]:
    table = member.host.store.env.metrics.table()
    return [each for each in table if each[0] == "appends"]


def test_s23_a_replica_that_others_overtake_by_far_jumps(sim: Simulation) -> None:
    place = Together(sim)
    peer, behind = place.open("peer"), place.open("behind")
    commits(place, peer, behind, upto=5)
    behind.slow[5] = 1_000_000
    place.give(row(5))
    place.until(lambda: 5 in behind.computed)
    commits(place, peer, upto=30)
    assert behind.next_t == 5
    peer.host.node.crash()
    place.until(lambda: behind.next_t == 30, within_ms=2_000_000)
    commits(place, behind, upto=32)
    assert [t for t in behind.computed if t > 5] == [30, 31], "what was settled is skipped"
    place.check(behind)


def overtaken_while_it_starts(sim: Simulation) -> None:
    """What a replica read when it began is not what it goes by: others go on meanwhile."""
    chance = sim.stream("scenario")
    place, last = Together(sim), 24
    peer = place.open("peer")
    commits(place, peer, upto=8)
    peer.fates.latency(sim, chance.choice((0, 2, 20)))
    late = place.open("late")
    late.fates.latency(sim, chance.choice((1, 10, 50)))
    for number in range(8, last):
        place.give(row(number))
        place.rest(chance.uniform(0, 60))
    place.until(lambda: peer.next_t == last)
    peer.host.node.crash()
    place.until(lambda: late.next_t == last)
    sim.sometimes("raced" if [t for t in late.computed if t < last] else "only looked")
    commits(place, late, upto=last + 1)
    assert late.computed[-1] == last
    place.check(late)


def test_s25_where_a_replica_began_is_not_what_it_goes_by() -> None:
    run_seeds(overtaken_while_it_starts, range(3))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_s25_a_thousand_times() -> None:
    run_seeds(overtaken_while_it_starts, range(1_000))


# ---- S27 to S29: racing, paused, dead


class Flow:
    """Rows that come by themselves, one in so many ms, until they are stopped."""

    def __init__(self, place: Together, tick_ms: float) -> None:
        self.place, self.tick_ms = place, tick_ms
        self.over = False
        self._next()

    def _next(self) -> None:
        if not self.over:
            self.place.give(row(sum(self.place.topic.ends.values())))
            self.place.sim.after(self.tick_ms, self._next)


def raced(sim: Simulation, burst: int = 0) -> None:
    """Both are warm; one sleeps or both get a burst, then the other one dies."""
    place = Together(sim)
    flow = Flow(place, 200.0)
    members = [place.open(name, rows_max=20_000) for name in ("a", "b")]
    if sim.seed % 2:
        members.reverse()
    survivor, victim = members
    place.until(lambda: all(each.next_t >= 4 for each in members))
    if burst:
        place.give(*((number % 50, number) for number in range(burst)))
    else:
        survivor.host.node.suspend(3_000)
    place.rest(sim.stream("scenario").uniform(0, 3_100))
    victim.host.node.crash()
    reached = place.committed()
    if not burst:
        # The survivor may be asleep for a while yet: that is its pause, and not its recovery.
        place.rest(3_000)
    sim.run_until(lambda: survivor.next_t > reached, within_ms=5_000)
    flow.over = True
    place.until(lambda: survivor.running and place.taken(survivor))
    place.check(survivor)


def test_s27_the_survivor_of_two_goes_on_within_five_seconds() -> None:
    run_seeds(raced, range(3))


def test_s28_a_burst_of_ten_thousand_rows_at_once_changes_nothing() -> None:
    run_seeds(lambda sim: raced(sim, burst=10_000), range(2))


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_s27_and_s28_again_and_again() -> None:
    run_seeds(raced, range(200))
    run_seeds(lambda sim: raced(sim, burst=10_000), range(10))


def landed_late(sim: Simulation, key: str) -> None:
    """What a dead replica sent, an append or a record, lands when its successor is at work."""
    place = Together(sim)
    dead, new = place.open("dead"), place.open("new")
    commits(place, dead, new, upto=3)
    new.host.node.suspend(300)

    sent: list[str] = []

    def delayed(fault: Fault) -> Callable[[str, str], Fault | None]:
        def rule(call: str, at: str) -> Fault | None:
            if call != "consensus.compare_and_set" or not at.startswith(key):
                return None
            sent.append(at)
            return fault

        return rule

    dead.fates.add(delayed(Fault(FaultKind.LATE, late_ms=1_000)))
    place.give((1, 99))
    place.rest(100)
    dead.host.node.crash()
    assert sent, "something is on its way"
    new.fates.add(delayed(Fault(request_ms=1_500)))
    place.until(lambda: new.next_t == 4)
    new.fates.rules.clear()
    commits(place, new, upto=6)
    place.check(new)


@pytest.mark.parametrize("key", ["shard/", "journal/"])
def test_s29_what_a_dead_replica_sent_counts_once(key: str) -> None:
    run_seeds(lambda sim: landed_late(sim, key), range(4))


# ---- S30 and S31: the same answers, the same times


def test_s30_a_replica_that_computes_something_else_stops_itself(sim: Simulation) -> None:
    diverged(sim)


def diverged(sim: Simulation) -> None:
    place = Together(sim)
    right = place.open("right")
    commits(place, right, upto=2)
    wrong = place.open("wrong", fetch=lambda _split: [])
    place.until(lambda: wrong.running)
    # It reads no rows. It computes the third one, too, and by then the right answer has landed.
    wrong.slow[2] = 5_000
    right.fates.add(slow_landing(300))
    place.give(row(2))
    place.until(lambda: wrong.runner.status().state is State.FAILED)
    assert "ReplayDivergedError" in wrong.runner.status().cause
    right.fates.rules.clear()
    commits(place, right, upto=5)
    place.check(right)


def test_s30_a_difference_that_nobody_looks_for_would_be_noticed() -> None:
    (found,) = [each for each in BANK if each.name == "answers_are_not_compared"]
    with planted(found):
        catches(diverged, seeds=2)


def skewed(sim: Simulation) -> None:
    """Clocks that disagree by a minute, and a store's clock that jumps."""
    chance = sim.stream("scenario")
    place = Together(sim, VIEWED)
    members = [place.open("early"), place.open("late", jump_ms=2 * SKEW_MS)]
    for number in range(12):
        place.give(row(number))
        place.rest(chance.uniform(0, 40))
        if number == 6:
            sim.store_clock.jump(chance.choice((-SKEW_MS, SKEW_MS)))
    place.until(lambda: all(each.next_t == 12 for each in members))
    one, other = (each.answers for each in members)
    for t in one.keys() & other.keys():
        assert one[t] == other[t], f"at {t}"
        sim.sometimes("both computed it")
    nows = [(one.get(t) or other[t])[0] for t in range(12)]
    assert nows == sorted(nows), "now() never goes back"
    place.check(*members)


def test_s31_equal_rows_have_equal_times_whatever_the_clocks_show() -> None:
    assert unreached(skewed, "both computed it", least=4) == []


# ---- S34


def differential(sim: Simulation) -> None:
    """Random rows, replicas of random paces: the same table at every time."""
    chance = sim.stream("scenario")
    place = Together(sim, chance.choice((VIEWED, TINY)))
    sizes = {"rows_max": chance.choice((1, 3, 50)), "checkpoint_every": chance.choice((2, 1_000))}
    members = [place.open(name, **sizes) for name in "abc"[: chance.randrange(1, 4)]]
    for each in members:
        each.fates.latency(sim, chance.choice((0, 1, 20)))
    for _ in range(chance.randrange(1, 25)):
        some = [(chance.randrange(4), chance.choice((None, 5, 20, 21))) for _ in range(3)]
        place.give(*some[: chance.randrange(1, 4)])
        place.rest(chance.choice((0.1, 5, 50)))
        each = chance.choice(members)
        if each.starts and chance.random() < 0.15:
            each.host.node.suspend(chance.uniform(0, 100))
    place.until(lambda: all(each.running and place.taken(each) for each in members))
    times = [t for each in members for t in each.computed]
    sim.sometimes("raced" if len(set(times)) < len(times) else "alone")
    place.check(*members)


def test_s34_the_pipeline_and_a_plain_dict_agree_at_every_time() -> None:
    assert unreached(differential, "raced", "alone", least=8) == []


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_s34_a_thousand_streams() -> None:
    run_seeds(differential, range(1_000))


# ---- S35: nothing of this needs a restart


def test_s35_a_replica_that_lost_every_lease_goes_on_by_itself(sim: Simulation) -> None:
    place = Together(sim)
    away, there = place.open("away"), place.open("there")
    commits(place, away, there, upto=2)
    away.host.node.suspend(6 * LEASE_MS)
    commits(place, there, upto=4)

    def bury() -> None:
        store = there.host.store
        for _ in range(40):
            for name in store.shards():
                machine = store.machine(name)
                machine.refresh()
                store.leases.bury(machine)
            there.host.node.tasks.sleep(LEASE_MS / 8)

    burying = there.host.node.start("bury", bury)
    place.until(burying.done)
    assert place.ask(writers) == 1, "the one that is away was buried"
    there.host.node.crash()
    commits(place, away, upto=6)
    place.check(away)


def writers(store: Store) -> int:
    shard = Journal(store.env, NAME).refresh().bindings["orders"].shard
    return len(store.machine(shard).refresh().writers)


def test_s35_a_store_that_is_away_for_minutes_needs_no_restart(sim: Simulation) -> None:
    place = Together(sim)
    member = place.open("replica", poll_ms=200)
    commits(place, member, upto=2)
    member.fates.add(lambda _call, _key: Fault(FaultKind.NOT_APPLIED))
    place.give(row(2))
    place.rest(180_000)
    assert member.runner.status().state is State.STALLED
    member.fates.rules.clear()
    place.until(lambda: member.next_t == 3)
    place.until(lambda: member.running)
    commits(place, member, upto=4)
    place.check(member)
