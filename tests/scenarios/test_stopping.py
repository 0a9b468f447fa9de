"""S8 to S13: stopping and waiting, and what is held until the last byte has come."""

from __future__ import annotations

import pytest

from strandline.model.frontier import Frontier
from strandline.reading.accounts import Accounts
from strandline.reading.descriptor import PartDescriptor, decode_descriptor, encode_descriptor
from strandline.reading.fetch import fetch_part
from strandline.reading.stop import Stop
from strandline.reading.subscribe import Worker
from strandline.shard.lease import ReadLease
from strandline.shard.state import Retention
from strandline.testing.faults import Fault
from strandline.testing.simulation import Simulation

from .conftest import LEASE, TICK, Place, Process, Seen, catches

CLOSED = Frontier.closed()


def one_of_two_workers_stops(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 6)
    shard = process.shard
    subscription = process.call(lambda: shard.subscribe(0, workers=2))
    first, second = subscription.worker(0), subscription.worker(1)
    owed = process.call(lambda: _take_until_owed(second, 4))
    sim.run(until_ms=sim.elapsed_ms() + 1_000)

    def pressed() -> None:
        first.press()
        for _ in range(1_000):
            assert first.take(0) is None

    accounts = subscription._feed.accounts
    undrained = accounts.backlog
    process.call(pressed)
    sim.run(until_ms=sim.elapsed_ms() + 10 * LEASE)
    assert accounts.frontier == Frontier(4)
    assert accounts.backlog == undrained > 0
    assert owed.id in accounts._pins
    assert len(place.state().readers) == 1
    process.call(second.press)
    assert accounts.frontier == CLOSED
    assert (accounts.backlog, len(accounts._pins)) == (0, 0)
    sim.run_until(lambda: not place.state().readers, within_ms=1_000)


def _take_until_owed(worker: Worker, time: int) -> PartDescriptor:
    """Everything before `time` arrives; the part at `time` is owed."""
    while True:
        part = worker.take(1_000)
        assert part is not None
        if part.owed == time:
            return part
        worker.arrived(part)


def test_s08_a_local_stop_gives_up_nothing_that_another_worker_owes(sim: Simulation) -> None:
    one_of_two_workers_stops(sim)


def drops_on_local_press(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of S8: one button is enough."""
    monkeypatch.setattr(Stop, "all_pressed", property(lambda self: any(self._pressed)))


def test_s08_the_mutant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    drops_on_local_press(monkeypatch)
    catches(one_of_two_workers_stops)


def test_s09_stopping_mid_stream_leaves_nothing_behind(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 8)
    before = process.tasks()
    slow = {key for time in range(2, 8) for key in place.keys_at(time)}
    process.fates.add(lambda call, key: Fault(reply_ms=5_000) if key in slow else None)
    seen = Seen(process)
    accounts = seen.subscription._feed.accounts
    sim.run_until(lambda: seen.frontier >= Frontier(1) and len(accounts._pins) > 1)
    start = sim.elapsed_ms()
    process.call(seen.subscription.stop)
    sim.run_until(
        lambda: seen.frontier == CLOSED and not place.state().readers and process.tasks() == before,
        within_ms=60_000,
    )
    assert sim.elapsed_ms() - start <= 60_000
    assert seen.task.done()
    assert seen.subscription._feed.lease is not None
    assert seen.subscription._feed.lease.holds.pins == 0


def stop_while_parked(sim: Simulation) -> None:
    """No data, no retry, nobody who calls: only a stop from another task."""
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 2)
    seen = Seen(process)
    sim.run_until(lambda: seen.told(2))
    sim.run(until_ms=sim.elapsed_ms() + 5_000)
    process.node.start("stop", seen.subscription.stop)
    sim.run_until(seen.task.done, within_ms=1_000)
    sim.run_until_quiet(horizon_ms=1)


def test_s10_a_parked_source_notices_a_stop_within_a_second(sim: Simulation) -> None:
    stop_while_parked(sim)


def nobody_is_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of S10: whoever waits without a timeout is not told of the stop."""

    def let_go(self: Accounts) -> None:
        with self.changed:
            self._over = True
            self._todo.clear()
            self._ready.clear()

    monkeypatch.setattr(Accounts, "let_go", let_go)


def test_s10_the_mutant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_is_notified(monkeypatch)
    catches(stop_while_parked)


def _held(place: Place) -> int:
    """The oldest version whose objects the source's reader holds, as the store knows it."""
    (reader,) = [r for r in place.state().readers.values() if r.since is not None]
    return reader.seqno


def test_s11_a_lease_outlives_its_descriptor(sim: Simulation) -> None:
    """The hold moves when there is garbage to release, which compaction makes at every turn."""
    place = Place(sim)
    source, elsewhere = place.open("source"), place.open("elsewhere")
    tender = place.open("tender")
    place.fill(source, 4)
    shard = source.shard
    subscription = source.call(lambda: shard.subscribe(0, workers=1))
    worker = subscription.worker(0)
    part = source.call(lambda: worker.take(1_000))
    assert part is not None
    for _ in range(3):
        other = source.call(lambda: worker.take(1_000))
        source.call(lambda other=other: worker.arrived(other))
    pinned = subscription._feed.accounts._pins[part.id].seqno
    travelled = decode_descriptor(encode_descriptor(part))
    place.retain(tender, Retention(None, 1))
    for beat in range(10):
        place.fill(source, 6 + beat)
        _take_all(source, worker)
        tender.compact()
        tender.upkeep()
        sim.run(until_ms=sim.elapsed_ms() + TICK)
        assert _held(place) == pinned
        assert travelled.piece.key in place.objects()
    assert part.id in subscription._feed.accounts._pins
    assert elsewhere.call(lambda: fetch_part(elsewhere.blob, travelled)).num_rows == 1
    source.call(lambda: worker.arrived(part))
    _take_all(source, worker)
    sim.run(until_ms=sim.elapsed_ms() + 2 * TICK)
    assert _held(place) > pinned
    tender.upkeep()
    assert travelled.piece.key not in place.objects()


def _take_all(process: Process, worker: Worker) -> None:
    def run() -> None:
        while True:
            part = worker.take(300)
            if part is None:
                return
            worker.arrived(part)

    process.call(run)


def test_s12_the_reader_goes_when_the_last_fetch_has_ended(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 6)
    shard = process.shard
    subscription = process.call(lambda: shard.subscribe(0, until=6))
    worker = subscription.worker(0)
    parts = [process.call(lambda: worker.take(1_000)) for _ in range(6)]
    for part in parts[:3]:
        process.call(lambda part=part: worker.arrived(part))
    accounts = subscription._feed.accounts
    for left in (3, 2, 1):
        sim.run(until_ms=sim.elapsed_ms() + 3 * LEASE)
        assert accounts._ledger.listed == CLOSED, "the listing was done long ago"
        assert accounts.outstanding == left
        assert len(place.state().readers) == 1
        assert accounts.frontier != CLOSED
        part = parts[6 - left]
        process.call(lambda part=part: worker.arrived(part))
    assert accounts.frontier == CLOSED
    sim.run_until(lambda: not place.state().readers, within_ms=1_500)


def test_s13_a_reader_is_alive_before_its_caller_runs_again(sim: Simulation) -> None:
    """The commit lands; its answer, and so the caller, takes three leases."""
    place = Place(sim)
    process, other = place.open("source"), place.open("other")
    place.fill(other, 3)
    process.call(process.machine.refresh)
    caught: list[str] = []

    def rule(call: str, key: str) -> Fault | None:
        if call == "consensus.compare_and_set" and key == "shard/orders" and not caught:
            caught.append(key)
            return Fault(reply_ms=3 * LEASE)
        return None

    process.fates.add(rule)
    kept: list[ReadLease] = []

    def register() -> None:
        kept.append(process.store.leases.reader(process.machine, since=0))

    task = process.node.start("register", register)
    sim.run_until(lambda: bool(place.state().readers))
    (reader,) = place.state().readers
    for _ in range(11):
        sim.run(until_ms=sim.elapsed_ms() + TICK)
        other.call(other.bury)
        assert not task.done()
        assert reader in place.state().readers
    sim.run_until(task.done)
    assert reader in place.state().readers
