"""Stores that fail on purpose."""

from __future__ import annotations

import random
import threading
from collections import Counter
from itertools import count

import pytest

from strandline.errors import MaybeAppliedError, NotAppliedError
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.conformance import check_blob, check_consensus
from strandline.testing.faults import (
    FailNth,
    Fault,
    FaultKind,
    FaultyBlob,
    FaultyConsensus,
    NoFaults,
    PlainWorld,
    SeededFaults,
)
from strandline.testing.simulation import Simulation
from strandline.testing.task import SimulatedCrash

TABLE = [
    # kind, what the caller hears, and whether it happened: at once, and in the end
    (FaultKind.NONE, None, (True, True)),
    (FaultKind.NOT_APPLIED, NotAppliedError, (False, False)),
    (FaultKind.LOST_REQUEST, MaybeAppliedError, (False, False)),
    (FaultKind.LOST_REPLY, MaybeAppliedError, (True, True)),
    (FaultKind.LATE, MaybeAppliedError, (False, True)),
    (FaultKind.CRASH_BEFORE, SimulatedCrash, (False, False)),
    (FaultKind.CRASH_AFTER, SimulatedCrash, (True, True)),
]


def test_without_faults_the_wrappers_keep_the_contract():
    blob, consensus = MemoryBlob(), MemoryConsensus(lambda: 5)
    check_blob(lambda: FaultyBlob(blob.client(), NoFaults()))
    check_consensus(lambda: FaultyConsensus(consensus.client(), NoFaults()))


def test_the_table_covers_every_kind_but_the_stuck_one():
    assert {row[0] for row in TABLE} == {*FaultKind} - {FaultKind.STUCK}


@pytest.mark.parametrize(("kind", "heard", "happened"), TABLE)
def test_each_fault_of_a_put_and_of_a_compare_and_set_is_what_the_table_says(
    kind: FaultKind, heard: type[BaseException] | None, happened: tuple[bool, bool]
):
    at_once, in_the_end = happened
    blob, consensus, world = MemoryBlob(), MemoryConsensus(lambda: 5), PlainWorld()
    faulty_blob = FaultyBlob(blob, FailNth(0, Fault(kind)), world)
    faulty_consensus = FaultyConsensus(consensus, FailNth(0, Fault(kind)), world)
    new = Versioned(SeqNo(0), b"v")
    for call in (
        lambda: faulty_blob.put("k", b"v"),
        lambda: faulty_consensus.compare_and_set("k", new),
    ):
        if heard is None:
            call()
        else:
            with pytest.raises(heard):
                call()
    assert (blob.get("k") is not None, consensus.head("k") is not None) == (at_once, at_once)
    world.settle()
    assert (blob.get("k"), consensus.head("k")) == ((b"v", new) if in_the_end else (None, None))


def test_a_late_compare_and_set_that_lost_its_race_changes_nothing():
    consensus, world = MemoryConsensus(lambda: 5), PlainWorld()
    faulty = FaultyConsensus(consensus, FailNth(0, Fault(FaultKind.LATE)), world)
    with pytest.raises(MaybeAppliedError):
        faulty.compare_and_set("k", Versioned(SeqNo(0), b"late"))
    assert faulty.compare_and_set("k", Versioned(SeqNo(0), b"first")) is CasResult.COMMITTED
    assert world.settle() == 1
    assert consensus.head("k") == Versioned(SeqNo(0), b"first")


def test_a_stuck_call_hangs_until_it_is_released():
    blob = MemoryBlob()
    faulty = FaultyBlob(blob, FailNth(0, Fault(FaultKind.STUCK)))
    thread = threading.Thread(target=faulty.put, args=("k", b"v"))
    thread.start()
    while not faulty.stuck:
        thread.join(0.001)
    assert blob.get("k") is None
    faulty.release()
    thread.join(30)
    assert blob.get("k") == b"v"
    assert not faulty.stuck


def test_a_sweep_by_nth_call_reaches_every_call_once():
    struck = []
    for nth in count():
        plan = FailNth(nth, Fault(FaultKind.NOT_APPLIED), lambda call, _key: call != "blob.get")
        faulty = FaultyBlob(MemoryBlob(), plan)
        for name, call in (
            ("get", lambda faulty=faulty: faulty.get("k")),
            ("put", lambda faulty=faulty: faulty.put("k", b"v")),
            ("list", lambda faulty=faulty: [*faulty.list("")]),
            ("delete", lambda faulty=faulty: faulty.delete("k")),
        ):
            try:
                call()
            except NotAppliedError:
                struck.append(name)
        if not plan.reached:
            break
    assert struck == ["put", "list", "delete"]


def test_seeded_faults_come_at_their_rates_and_repeat_by_seed():
    rates = {FaultKind.NOT_APPLIED: 0.2, FaultKind.LOST_REPLY: 0.1}

    def fates(seed: int) -> list[Fault]:
        plan = SeededFaults(random.Random(seed), rates, latency_ms_max=10)
        return [plan.decide("blob.put", "k") for _ in range(2000)]

    counts = Counter(fault.kind for fault in fates(1))
    assert 300 < counts[FaultKind.NOT_APPLIED] < 500
    assert 130 < counts[FaultKind.LOST_REPLY] < 270
    assert set(counts) == {FaultKind.NONE, *rates}
    assert all(0 <= fault.request_ms <= 10 for fault in fates(1))
    assert fates(1) == fates(1)
    assert fates(1) != fates(2)


@pytest.mark.simulation
def test_under_the_simulator_latency_late_delivery_and_crashes_follow_its_time():
    with Simulation(1) as sim:
        blob = MemoryBlob()
        dies, lives = sim.node("dies"), sim.node("lives")
        crash = FaultyBlob(blob, FailNth(1, Fault(FaultKind.CRASH_AFTER)), sim, dies.crash)
        slow = Fault(FaultKind.LATE, request_ms=30, late_ms=500)
        late = FaultyBlob(blob, FailNth(0, slow), sim, lives.crash)
        seen: dict[str, object] = {}

        def put_late() -> None:
            with pytest.raises(MaybeAppliedError):
                late.put("late", b"v")
            seen["told after ms"] = round(sim.elapsed_ms())
            seen["at once"] = late.get("late")
            lives.tasks.sleep(600)
            seen["in the end"] = late.get("late")

        def put_and_die() -> None:
            crash.put("first", b"v")
            crash.put("second", b"v")
            crash.put("third", b"v")

        lives.start("late", put_late)
        dies.start("die", put_and_die)
        sim.run()
        assert seen == {"told after ms": 30, "at once": None, "in the end": b"v"}
        assert not dies.alive
        assert lives.alive
        assert {entry.key for entry in blob.list("")} == {"first", "second", "late"}
