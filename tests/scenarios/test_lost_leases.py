"""S48 to S51 and S53 to S55: leases that were lost, and what nobody can read without one."""

from __future__ import annotations

import inspect

import pytest

import strandline
from strandline.errors import CorruptionError, LeaseLostError, SinceError, StrandlineError
from strandline.handles.shard import Reader
from strandline.model.frontier import Frontier
from strandline.reading.diagnose import diagnose
from strandline.shard import command as c
from strandline.shard.state import Retention
from strandline.testing.faults import Fault, FaultKind
from strandline.testing.seeds import run_seeds
from strandline.testing.simulation import Simulation

from .conftest import LEASE, TICK, Place, Process, Seen

HOUR = 3_600_000
NAP = 60 * LEASE


def _tend_for(process: Process, duration_ms: float) -> None:
    """Bury, compact and collect at every heartbeat, for a while."""

    def run() -> None:
        deadline = process.sim.elapsed_ms() + duration_ms
        while process.sim.elapsed_ms() < deadline:
            process.store.upkeep.run_once(process.machine)
            process.node.tasks.sleep(TICK)

    process.call(run)


def stopped_for_three_leases(sim: Simulation) -> None:
    """The world goes on to since 80 while a reader with a listen at 50 is stopped."""
    place = Place(sim)
    source, busy = place.open("source"), place.open("busy")
    place.fill(busy, 50)
    shard = source.shard
    reader: Reader = source.call(lambda: shard.reader(since=20))
    early = source.call(lambda: reader.snapshot(30))
    unread = source.call(early.parts)
    seen = Seen(source, as_of=49)
    sim.run_until(lambda: seen.told(50))
    shown = list(seen.log)
    source.node.suspend(3 * LEASE + 500)
    place.retain(busy, Retention(None, 1))
    place.fill(busy, 81)
    _tend_for(busy, 3 * LEASE)
    busy.compact()
    state = place.state()
    assert state.since == Frontier(80)
    assert state.readers.keys().isdisjoint({reader.id})
    assert not {part.piece.key for part in unread} & place.objects()
    sim.run(until_ms=sim.elapsed_ms() + 500)
    for read in (
        lambda: reader.snapshot(30).to_arrow(),
        lambda: reader.snapshot(80).to_arrow(),
        early.to_arrow,
        reader.clone,
        lambda: reader.downgrade(60, durable=True),
    ):
        with pytest.raises(LeaseLostError, match=r"the lease of reader r\w+ was lost"):
            source.call(read)
    sim.run(until_ms=sim.elapsed_ms() + 4 * LEASE)
    assert seen.log == shown, "it gave out rows after its lease was lost"
    assert seen.frontier == Frontier(50)
    assert [type(error) for error in seen.errors] == [LeaseLostError]
    assert source.metrics.value("leases_lost", "orders") >= 1
    # A new handle reads what there is now.
    with pytest.raises(SinceError):
        source.call(lambda: shard.snapshot(30))
    found = source.call(lambda: shard.snapshot(80).to_arrow())
    assert sorted(found["id"].to_pylist()) == list(range(81))


def test_s48_a_process_that_was_stopped_gets_an_error_and_never_other_rows(
    sim: Simulation,
) -> None:
    stopped_for_three_leases(sim)


@pytest.mark.simulation
def test_s48_under_many_seeds(seed: int | None) -> None:
    run_seeds(stopped_for_three_leases, range(100, 115) if seed is None else [seed])


@pytest.mark.parametrize("lease", [LEASE, 60 * LEASE])
def test_s48_a_lost_lease_is_named_before_its_heart_has_noticed(
    sim: Simulation, lease: int
) -> None:
    """The first call after the stop comes before the heartbeat; it must not blame history.

    With a long lease for all else in the process, only one of its two pulses has ended.
    """
    place = Place(sim, lease_ms=lease)
    source, busy = place.open("source"), place.open("busy")
    place.fill(busy, 10)
    shard = source.shard
    reader: Reader = source.call(lambda: shard.reader(since=3, lease_ms=LEASE))
    source.node.suspend(4 * LEASE)
    source.fates.add(lambda *_: Fault(request_ms=60_000) if _is_heart(sim) else None)
    place.retain(busy, Retention(None, 1))
    _tend_for(busy, 4 * LEASE - 100)
    assert place.state().since == Frontier(9)
    sim.run_until(lambda: not source.node._life.suspensions)
    with pytest.raises(LeaseLostError, match=reader.id):
        source.call(lambda: reader.snapshot(3).to_arrow())
    assert not any(heart.lost for heart in source.store.leases._hearts.values())


def _is_heart(sim: Simulation) -> bool:
    current = sim._scheduler.current
    return current is not None and current.name.startswith("heart")


def _missing_part(sim: Simulation) -> tuple[Place, Process, Reader, object]:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    shard = process.shard
    reader = process.call(lambda: shard.reader(since=0))
    part = process.call(lambda: reader.snapshot(2).parts()[1])
    place.blob.delete(part.piece.key)
    return place, process, reader, part


def _diagnosed(process: Process, reader: str, part: object) -> StrandlineError:
    error = CorruptionError(f"{part} is missing")
    return process.call(lambda: diagnose(process.machine, reader, part, error))


def test_s49_a_missing_object_of_a_reader_that_is_gone_is_a_lost_lease(sim: Simulation) -> None:
    _, process, reader, part = _missing_part(sim)
    process.call(lambda: process.machine.demand(c.Release(readers=(reader.id,))))
    found = _diagnosed(process, reader.id, part)
    assert isinstance(found, LeaseLostError)
    assert "lease of reader" in str(found)


def test_s49_a_missing_object_of_a_reader_that_is_there_is_a_bug(sim: Simulation) -> None:
    _, process, reader, part = _missing_part(sim)
    found = _diagnosed(process, reader.id, part)
    assert isinstance(found, CorruptionError)
    assert "the hold did not protect" in str(found)
    assert part.piece.key in str(found)


@pytest.mark.parametrize("way", [FaultKind.STUCK, FaultKind.NOT_APPLIED, FaultKind.LOST_REQUEST])
def test_s49_the_diagnosis_ends_within_ten_seconds(sim: Simulation, way: FaultKind) -> None:
    _, process, reader, part = _missing_part(sim)
    process.fates.add(
        lambda call, key: Fault(way) if call.startswith("consensus") and "shard" in key else None
    )
    start = sim.elapsed_ms()
    found = _diagnosed(process, reader.id, part)
    assert sim.elapsed_ms() - start <= 10_100
    assert isinstance(found, CorruptionError)
    assert "could not be found out" in str(found)


def test_s50_one_that_waits_for_ever_does_not_keep_the_third_from_its_turn(
    sim: Simulation,
) -> None:
    """The permit is a turn: whoever holds it for more than `turn_ms` is not waited for."""
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 2)
    stuck: list[str] = []

    def rule(call: str, key: str) -> Fault | None:
        if call == "consensus.compare_and_set" and key == "shard/orders" and not stuck:
            stuck.append(key)
            return Fault(FaultKind.STUCK)
        return None

    process.fates.add(rule)
    machine, node = process.machine, process.node

    def place_hold(number: int) -> None:
        machine.demand(c.Hold(f"h{number}", 0, 0, ""))

    node.start("first", lambda: place_hold(1))
    sim.run_until(lambda: bool(stuck))
    node.start("second", lambda: place_hold(2))
    third = node.start("third", lambda: place_hold(3))
    sim.run_until(third.done, within_ms=process.settings.turn_ms + 100)
    assert "h3" in place.state().holds


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(3))
def test_s50_a_hundred_of_three_hundred_finish_beside_those_that_hang(seed: int) -> None:
    with Simulation(seed, steps_max=10_000_000) as sim:
        place = Place(sim)
        process = place.open("source")
        place.fill(process, 2)
        machine, node = process.machine, process.node

        def rule(call: str, key: str) -> Fault | None:
            current = sim._scheduler.current
            if call != "consensus.compare_and_set" or key != "shard/orders" or current is None:
                return None
            if current.name.startswith("hangs"):
                return Fault(FaultKind.STUCK)
            return Fault(reply_ms=2_000) if current.name.startswith("slow") else None

        process.fates.add(rule)
        kinds = ["hangs", "slow", "quick"]
        tasks = [
            node.start(f"{kinds[n % 3]}{n}", lambda n=n: machine.demand(c.Hold(f"h{n}", 0, 0, "")))
            for n in range(300)
        ]
        mine = [task for task in tasks if not task.name.startswith("hangs")]
        sim.run_until(lambda: all(task.done() for task in mine), within_ms=10 * 60_000)
        held = place.state().holds
        assert len(held) == 200
        assert not any(task.done() for task in tasks if task not in mine)


CLOCKS = {
    "the owner's clock is 20 min ahead": lambda owner, other, sim: owner.node.clock.jump(1_200_000),
    "the other's clock is 20 min ahead": lambda owner, other, sim: other.node.clock.jump(1_200_000),
    "the store's clock jumps 1 h ahead": lambda owner, other, sim: sim.store_clock.jump(HOUR),
    "the store's clock jumps 1 h back": lambda owner, other, sim: sim.store_clock.jump(-HOUR),
    "the other's machine sleeps": lambda owner, other, sim: (
        other.node.clock.freeze(),
        other.node.suspend(NAP),
        sim.after(NAP, other.node.clock.thaw),
    ),
    "the other is stopped": lambda owner, other, sim: other.node.suspend(NAP),
    "the owner's clock drifts": lambda owner, other, sim: owner.node.clock.drift(50_000),
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_s51_no_clock_expires_a_reader_or_writer_that_can_renew(
    sim: Simulation, clock: str
) -> None:
    place = Place(sim)
    owner, other = place.open("owner"), place.open("other")
    place.fill(other, 4)
    shard = owner.shard
    reader: Reader = owner.call(lambda: shard.reader(since=0))
    writer = owner.call(lambda: shard.writer("keeps its lease"))
    burying = other.node.start("bury", lambda: other.bury(20 * LEASE))
    sim.run(until_ms=sim.elapsed_ms() + 5 * LEASE + sim.stream("when").uniform(0, TICK))
    CLOCKS[clock](owner, other, sim)
    sim.run_until(burying.done, within_ms=2 * HOUR)
    state = place.state()
    assert reader.id in state.readers
    assert writer.id in state.writers
    assert owner.call(lambda: reader.snapshot(0).to_arrow()).num_rows == 1
    assert other.metrics.value("leases_expired", "orders") == 0


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 0])
def test_s51_one_that_cannot_renew_goes_and_is_told(sim: Simulation, jump: int) -> None:
    """The dead go within a few leases whatever the clock did; who comes back gets an error."""
    place = Place(sim)
    owner, other = place.open("owner"), place.open("other")
    place.fill(other, 4)
    shard = owner.shard
    reader: Reader = owner.call(lambda: shard.reader(since=0))
    owner.node.suspend(6 * LEASE)
    sim.run(until_ms=sim.elapsed_ms() + LEASE)
    sim.store_clock.jump(jump)
    _tend_for(other, 5 * LEASE)
    assert place.reader(reader.id) is None
    sim.run(until_ms=sim.elapsed_ms() + LEASE)
    with pytest.raises(LeaseLostError):
        owner.call(lambda: reader.snapshot(0).to_arrow())


def test_s53_a_clone_holds_no_more_and_lives_by_itself(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 10)
    shard = process.shard
    reader: Reader = process.call(lambda: shard.reader(since=4))
    process.call(lambda: reader.downgrade(6))
    clone: Reader = process.call(lambda: reader.clone("a copy"))
    assert clone.id != reader.id
    assert clone.since <= reader.since
    process.call(reader.close)
    found = place.reader(clone.id)
    assert found is not None
    assert found.since is not None
    assert found.since <= 6
    process.call(lambda: clone.downgrade(7, durable=True))
    again: Reader = process.call(clone.clone)
    process.call(clone.close)
    assert place.reader(clone.id) is None
    assert place.reader(again.id) is not None
    sim.run(until_ms=sim.elapsed_ms() + 5 * LEASE)
    assert place.reader(again.id) is not None


def test_s54_a_critical_hold_outlives_its_process(sim: Simulation) -> None:
    place = Place(sim)
    down, busy = place.open("down"), place.open("busy")
    place.fill(busy, 100)
    shard = down.shard
    down.call(lambda: shard.hold("checkpoint", 40, note="what the process will start from"))
    seen = Seen(down, as_of=90)
    sim.run_until(lambda: seen.told(100))
    down.node.crash()
    place.retain(busy, Retention(None, 1))
    _tend_for(busy, 5 * LEASE)
    place.fill(busy, 120)
    _tend_for(busy, 5 * LEASE)
    state = place.state()
    assert [r for r in state.readers.values() if r.since is not None] == []
    assert state.since == Frontier(40)
    again = place.open("again")
    handle = again.shard
    found = again.call(lambda: handle.snapshot(40).to_arrow())
    assert sorted(found["id"].to_pylist()) == list(range(41))
    again.call(lambda: handle.release_hold("checkpoint"))
    busy.upkeep()
    assert place.state().since == Frontier(119)


READS = {
    "snapshot": lambda shard: shard.snapshot(1),
    "reader": lambda shard: shard.reader(since=1),
    "listen": lambda shard: shard.listen(1),
    "subscribe": lambda shard: shard.subscribe(1),
}


@pytest.mark.parametrize("way", READS)
def test_s55_every_public_read_has_a_lease_before_it_lists(sim: Simulation, way: str) -> None:
    """Whatever a shard gives back to read from is backed by a reader in the state."""
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    shard = process.shard
    handle = process.call(lambda: READS[way](shard))
    held = place.state().readers
    assert len(held) == 1
    process.call(handle.close)


def test_s55_nothing_public_reads_rows_without_a_lease() -> None:
    """What can read rows: a shard's methods above, and `fetch_part`, which needs a descriptor.

    A descriptor comes only from a leased snapshot or subscription, which holds its part.
    """
    named = {
        name
        for name, _ in inspect.getmembers(strandline.Shard, inspect.isfunction)
        if not name.startswith("_")
    }
    reads = {"snapshot", "reader", "listen", "subscribe"}
    other = {"writer", "hold", "release_hold", "retain", "evolve", "compact", "fence", "state"}
    other |= {"term_reader", "end_term", "txn", "forget_txn"}
    assert named == reads | other | {"wait_past"}, (
        "a new method: does it read rows, and under which lease?"
    )
    functions = {
        name
        for name in strandline.__all__
        if inspect.isfunction(getattr(strandline, name)) and name != "open"
    }
    assert functions == {"fetch_part"}
    parameters = list(inspect.signature(strandline.fetch_part).parameters)
    assert parameters == ["blob", "descriptor"]
