"""S37 to S44: what an open reader holds back, for how long, and what letting go costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.errors import UsageError
from strandline.model.frontier import Frontier
from strandline.reading import lister, snapshot
from strandline.reading.view import View
from strandline.shard.lease import Pin, ReadLease
from strandline.shard.state import Retention, State
from strandline.testing.faults import Fault
from strandline.testing.simulation import Simulation
from strandline.upkeep.garbage import named

from .conftest import LEASE, TICK, Place, Process, catches, rows

SOON = TICK + 100
"""Within a heartbeat: the tick itself, and the calls that it makes."""


class Load:
    """A process that appends and tends its shard, and what the store kept meanwhile."""

    def __init__(self, place: Place, process: Process, *, appends: int, over_ms: int) -> None:
        self.place = place
        self.process = process
        self.appends = appends
        self.pause_ms = over_ms / appends
        self.records = 0
        self.unreferenced = 0
        self.blocked_ms = 0.0
        self._blocked_since: dict[int, float] = {}

    def run(self) -> None:
        sim, process = self.place.sim, self.process
        writer = self.place.writer(process)
        start = sim.elapsed_ms()

        def write() -> None:
            for number in range(self.appends):
                writer.append(rows(number))
                process.node.tasks.sleep(self.pause_ms)

        process.call(process.store.upkeep.start)
        task = process.node.start("append", write)
        for at in _moments(start, TICK / 4):
            sim.run(until_ms=at)
            self._look()
            if task.done():
                return

    def _look(self) -> None:
        sim, place = self.place.sim, self.place
        state = place.state()
        self.records = max(self.records, place.records())
        self.unreferenced = max(self.unreferenced, len(place.objects() - named(state)))
        held = [entry.seqno for entry in state.garbage if entry.seqno > state.seqno_hold()]
        since = {seqno: self._blocked_since.get(seqno, sim.elapsed_ms()) for seqno in held}
        self._blocked_since = since
        self.blocked_ms = max([self.blocked_ms, *(sim.elapsed_ms() - at for at in since.values())])


def _moments(start: float, every_ms: float) -> Iterator[float]:
    while True:
        start += every_ms
        yield start


@pytest.mark.simulation
@pytest.mark.parametrize(("appends", "leases"), [(500, 5), (2_000, 20)])
def test_s37_an_idle_reader_costs_the_same_however_much_is_appended(
    appends: int, leases: int
) -> None:
    """Its hold moves only where that frees something: nothing waits for more than a heartbeat.

    One bound for both: at the same rate, neither records nor garbage grow with the appends.
    """
    with Simulation(37) as sim:
        place = Place(sim, upkeep_ms=100, manifest_every=64)
        idle, busy = place.open("idle"), place.open("busy")
        place.fill(busy, 1)
        shard = idle.shard
        reader = idle.call(lambda: shard.reader(purpose="nobody calls it"))
        load = Load(place, busy, appends=appends, over_ms=leases * LEASE)
        load.run()
        assert sim.elapsed_ms() >= leases * LEASE
        assert place.reader(reader.id) is not None
        assert busy.metrics.value("leases_expired", "orders") == 0
        assert busy.metrics.value("compactions", "orders") >= appends / 20
        assert load.blocked_ms <= SOON
        assert load.records <= 100
        assert load.unreferenced <= 60
        found = idle.call(lambda: reader.snapshot(0).to_arrow())
        assert found["id"].to_pylist() == [0]


def test_s38_a_snapshot_that_waits_holds_its_time_and_nothing_else(sim: Simulation) -> None:
    place = Place(sim, manifest_every=4)
    waiting, busy = place.open("waiting"), place.open("busy")
    place.fill(busy, 50)
    place.retain(busy, Retention(None, 1))
    shard, other = waiting.shard, busy.shard
    answers: list[list[int]] = []

    def read() -> None:
        answers.append(sorted(shard.snapshot(as_of=100).to_arrow()["id"].to_pylist()))

    task = waiting.node.start("read", read)
    sim.run_until(lambda: any(r.since == 100 for r in place.state().readers.values()))
    (reader,) = [key for key, r in place.state().readers.items() if r.since == 100]
    holds = []
    for beat in range(80):
        busy.call(lambda beat=beat: other.hold("metadata", 49, epoch=beat))
        busy.upkeep()
        sim.run(until_ms=sim.elapsed_ms() + TICK)
        found = place.reader(reader)
        assert found is not None, f"lost after {beat} heartbeats"
        holds.append(found.seqno)
    assert not task.done()
    assert len(set(holds)) > 10, "the hold did not keep advancing"
    assert holds == sorted(holds)
    busy.call(lambda: other.release_hold("metadata", epoch=80))
    for upper in range(60, 151, 10):
        place.fill(busy, upper)
        busy.compact()
    sim.run_until(task.done, within_ms=1_000)
    assert answers == [list(range(101))]
    sim.run_until(lambda: place.reader(reader) is None, within_ms=1_000)


def test_s39_a_caller_that_does_nothing_for_three_leases_keeps_its_lease(sim: Simulation) -> None:
    """In virtual time a heart is a task of its own; real GILs are held in `test_processes`."""
    place = Place(sim)
    owner, other = place.open("owner"), place.open("other")
    place.fill(other, 3)
    shard = owner.shard

    def own() -> str:
        reader = shard.reader(since=0)
        owner.node.tasks.sleep(3 * LEASE)
        reader.snapshot(0).to_arrow()
        kept.append(reader)
        return reader.id

    kept: list[object] = []
    tending = other.node.start("bury", lambda: other.bury(4 * LEASE))
    reader_id = owner.call(own)
    sim.run_until(tending.done)
    assert place.reader(reader_id) is not None


def _pinned(process: Process) -> tuple[ReadLease, Pin]:
    leases = process.store.leases
    lease = process.call(lambda: leases.own_reader(process.machine))
    return lease, process.call(lease.pin)


def _churn(place: Place, process: Process, times: int) -> None:
    """Appends and full compactions: every object from before is garbage afterwards."""
    upper = place.state().upper.time
    assert upper is not None
    place.fill(process, upper + times)
    process.compact()


def test_s40_only_what_is_outstanding_is_held_for_long(sim: Simulation) -> None:
    """R10: the durable hold does not pass a pin. R11: without one, only the newest is held."""
    place = Place(sim)
    process, busy = place.open("source"), place.open("busy")
    _churn(place, busy, 8)
    lease, pin = _pinned(process)
    state = process.call(pin.state)
    objects = named(state)
    for _ in range(10):
        _churn(place, busy, 50)
        sim.run(until_ms=sim.elapsed_ms() + TICK)
    sim.run(until_ms=sim.elapsed_ms() + SOON)
    busy.upkeep()
    now = place.state()
    assert now.upper == Frontier(508)
    assert now.readers[lease.id].seqno <= pin.seqno <= state.seqno.number
    assert objects <= place.objects(), "what is outstanding was deleted"
    assert min(entry.seqno for entry in now.garbage) > pin.seqno, "more is held than outstanding"
    process.call(pin.give_back)
    sim.run(until_ms=sim.elapsed_ms() + SOON)
    newest = max(entry.seqno for entry in now.garbage)
    assert place.state().readers[lease.id].seqno >= newest
    busy.upkeep()
    assert place.state().garbage == ()
    assert not objects & place.objects()


def test_s41_two_parts_of_one_version_are_two_leases(sim: Simulation) -> None:
    place = Place(sim)
    process, busy = place.open("source"), place.open("busy")
    place.fill(busy, 4)
    lease, pin = _pinned(process)
    other = process.call(pin.share)
    objects = named(process.call(pin.state))
    process.call(pin.give_back)
    process.call(pin.give_back)
    for _ in range(3):
        _churn(place, busy, 8)
        sim.run(until_ms=sim.elapsed_ms() + SOON)
        busy.upkeep()
    assert objects <= place.objects()
    assert place.state().readers[lease.id].seqno <= other.seqno
    process.call(other.give_back)
    sim.run(until_ms=sim.elapsed_ms() + SOON)
    busy.upkeep()
    assert not objects & place.objects()


def collected_between_pick_and_lease(sim: Simulation) -> None:
    """Whenever the reader has looked at the state, the world moves on before its next act."""
    place = Place(sim)
    process, tender = place.open("source"), place.open("tender")
    place.fill(tender, 4)
    shard, machine = process.shard, process.machine
    process.call(lambda: shard.snapshot().to_arrow())
    looked, go_on = process.node.tasks.event(), process.node.tasks.event()
    refresh = machine.refresh

    def slow() -> State:
        state = refresh()
        current = sim._scheduler.current
        if current is not None and current.name == "read":
            looked.set()
            go_on.wait()
            go_on.clear()
        return state

    machine.refresh = slow  # type: ignore[method-assign]
    answers: list[list[int]] = []

    def read() -> None:
        answers.append(sorted(shard.snapshot(3).to_arrow()["id"].to_pylist()))

    task = process.node.start("read", read)
    while not task.done():
        sim.run_until(lambda: looked.is_set() or task.done())
        if looked.is_set():
            process.call(looked.clear)
            _churn(place, tender, 2)
            sim.run(until_ms=sim.elapsed_ms() + 2 * TICK)
            tender.upkeep()
            process.call(go_on.set)
    assert answers == [[0, 1, 2, 3]]


def test_s42_a_lease_is_taken_before_anything_is_selected(sim: Simulation) -> None:
    """R9: the pin comes before the listing."""
    collected_between_pick_and_lease(sim)


def selects_before_it_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of S42: the state is looked at first and pinned afterwards."""

    def late(lease: ReadLease) -> View:
        state = lease.machine.refresh()
        return View(lease.pin(), state.upper, state)

    monkeypatch.setattr(snapshot, "pinned_view", late)
    monkeypatch.setattr(lister, "pinned_view", late)


def test_s42_the_mutant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    selects_before_it_leases(monkeypatch)
    catches(collected_between_pick_and_lease)


def test_s43_a_handle_behind_the_heartbeat_waits_until_it_has_caught_up(sim: Simulation) -> None:
    """A page of records that is late twice stands for whatever could show an older state."""
    place = Place(sim)
    process, busy = place.open("source"), place.open("busy")
    place.fill(busy, 3)
    lease = process.call(lambda: process.store.leases.own_reader(process.machine))
    old = process.call(process.machine.refresh)
    place.fill(busy, 6)
    process.call(lambda: process.store.leases.sync(process.machine))
    process.machine._seen = old
    scan, late = process.consensus.scan, [True, True]
    process.consensus.scan = (  # type: ignore[method-assign]
        lambda *page: [] if late and late.pop() else scan(*page)
    )
    pin = process.call(lease.pin)
    assert pin.seqno == place.state().seqno.number > old.seqno.number
    assert process.call(pin.state).seqno.number >= pin.seqno
    assert not late, "the older state was never shown"


def test_s44_a_downgrade_returns_at_once_and_is_durable_within_a_heartbeat(
    sim: Simulation,
) -> None:
    """R12: holds only move forward."""
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 10)
    process.fates.latency(sim, 5)
    shard = process.shard
    reader = process.call(lambda: shard.reader(since=0))
    before = process.fates.calls.total()
    reader_calls = process.call(lambda: _without_calls(process, lambda: reader.downgrade(4)))
    assert reader_calls == 0, f"it asked the store, {before} calls before"
    assert reader.since == 4
    sim.run(until_ms=sim.elapsed_ms() + SOON)
    found = place.reader(reader.id)
    assert found is not None
    assert found.since == 4
    process.call(lambda: reader.downgrade(7, durable=True))
    found = place.reader(reader.id)
    assert found is not None
    assert found.since == 7
    with pytest.raises(UsageError, match="cannot move since back from 7 to 6"):
        process.call(lambda: reader.downgrade(6, durable=True))
    sim.run(until_ms=sim.elapsed_ms() + 2 * SOON)
    found = place.reader(reader.id)
    assert found is not None
    assert found.since == 7


def _without_calls(process: Process, act: object) -> int:
    calls = process.fates.calls.total()
    start = process.sim.elapsed_ms()
    act()  # type: ignore[operator]
    assert process.sim.elapsed_ms() - start < 1
    return process.fates.calls.total() - calls


def test_s44_concurrent_durable_downgrades_join(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 40)
    shard = process.shard
    reader = process.call(lambda: shard.reader(since=0))
    process.fates.add(
        lambda call, _: Fault(reply_ms=50) if call == "consensus.compare_and_set" else None
    )
    before = place.state().seqno.number
    done: list[int] = []

    def downgrade(since: int) -> None:
        try:
            reader.downgrade(since, durable=True)
        except UsageError:
            return  # Somebody who came later has moved it further already.
        found = place.reader(reader.id)
        assert found is not None
        assert found.since is not None
        assert found.since >= since
        done.append(since)

    tasks = [process.node.start(f"d{n}", lambda n=n: downgrade(n)) for n in range(1, 31)]
    sim.run_until(lambda: all(task.done() for task in tasks), within_ms=5_000)
    assert max(done) == 30
    assert place.state().seqno.number - before <= 3
