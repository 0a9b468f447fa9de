"""S1 to S7: what a source shows when its fetches fail, race, or come in any order."""

from __future__ import annotations

from collections import Counter

import pytest

from strandline.errors import CorruptionError, LeaseLostError, SinceError, StalledError
from strandline.model.frontier import Frontier
from strandline.reading import feed
from strandline.reading.ledger import Ledger
from strandline.reading.watch import Health
from strandline.shard import command as c
from strandline.shard.state import Retention
from strandline.testing.faults import Fault
from strandline.testing.seeds import run_seeds
from strandline.testing.simulation import Simulation

from .conftest import COLUMNS, TICK, Place, Process, Seen, catches, rows

IDLE_ROUNDS = 100
POLL_MS = 200
"""A caught-up source looks this often: one idle round."""


def missing_part(sim: Simulation, gone: int) -> None:
    """Three batches, one of which has lost its object; read one by one."""
    place = Place(sim, fetch_concurrency=1)
    process = place.open("source")
    place.fill(process, 3)
    key = place.delete(gone)
    seen = Seen(process)
    sim.run_until(lambda: bool(seen.errors), within_ms=5_000)
    for idle_ms in (POLL_MS, IDLE_ROUNDS * POLL_MS):
        sim.run(until_ms=sim.elapsed_ms() + idle_ms)
        assert seen.frontier == Frontier(gone)
        assert [row for row in seen.rows() if row[1] < gone] == [(t, t) for t in range(gone)]
        assert gone not in seen.ids()
        seen.check_definite()
        assert [key in str(error) for error in seen.errors] == [True]
    status = process.call(seen.subscription.status)
    assert status.health is Health.STALLED
    assert key in status.cause


def test_s01_a_fetch_error_freezes_the_frontier_at_its_time(sim: Simulation) -> None:
    missing_part(sim, 1)


def test_s02_a_missing_first_part_lets_nothing_out_at_its_time(sim: Simulation) -> None:
    missing_part(sim, 0)


def failure_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of S1: after an error the account is closed as if its rows had come."""
    failed, arrived = Ledger.failed, Ledger.arrived

    def forget(self: Ledger, part: str, error: BaseException) -> None:
        failed(self, part, error)
        self._failed.discard(part)
        arrived(self, part)

    monkeypatch.setattr(Ledger, "failed", forget)


@pytest.mark.parametrize("gone", [0, 1])
def test_s01_the_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, gone: int) -> None:
    failure_is_forgotten(monkeypatch)
    catches(lambda sim: missing_part(sim, gone))


def concurrent_with_a_missing_middle(sim: Simulation) -> None:
    place = Place(sim, fetch_concurrency=8)
    process = place.open("source")
    place.fill(process, 12)
    missing = place.delete(5)
    process.fates.latency(sim, 50, calls="blob.get")
    seen = Seen(process)
    sim.run_until(lambda: bool(seen.errors))
    sim.run_until(lambda: not seen.subscription._feed.accounts.outstanding)
    sim.run(until_ms=sim.elapsed_ms() + POLL_MS)
    assert seen.frontier == Frontier(5)
    assert {row for row in seen.rows() if row[1] < 5} == {(t, t) for t in range(5)}
    assert 5 not in seen.ids()
    seen.check_definite()
    assert len(seen.errors) == 1
    # The part that never came is held, and so is its time, however long that lasts.
    assert [key.split()[0] for key in seen.subscription._feed.accounts._pins] == [missing]
    pinned = next(iter(seen.subscription._feed.accounts._pins.values())).seqno
    other = place.open("other")
    place.retain(other, Retention(None, 1))
    sim.run(until_ms=sim.elapsed_ms() + 8 * TICK)
    other.call(lambda: other.machine.demand(c.AdvanceSince(now_ms=sim.now_ms())))
    state = place.state()
    (reader,) = [r for r in state.readers.values() if r.since is not None]
    assert reader.since == 4
    assert reader.seqno <= pinned
    assert state.since <= Frontier(5)


@pytest.mark.simulation
def test_s03_a_missing_middle_among_many_at_once(seed: int | None) -> None:
    seeds = range(200) if seed is None else [seed]
    run_seeds(concurrent_with_a_missing_middle, seeds)


def arrivals_in_reverse(sim: Simulation) -> None:
    place = Place(sim, fetch_concurrency=8)
    process = place.open("source")
    place.fill(process, 16)
    at = {key: time for time in range(16) for key in place.keys_at(time)}
    ended = _downloads(process)
    process.fates.add(
        lambda call, key: Fault(reply_ms=10 * (16 - at[key])) if call == "blob.get" else None
    )
    seen = Seen(process, until=16)
    order: list[int] = []

    def watched() -> bool:
        """Looked at after every step of every task."""
        order.extend(at[key] for key in list(ended)[len(order) :])
        accounts = seen.subscription._feed.accounts
        if accounts._ledger.listed.is_closed:  # Before that, the listing's own pin holds them.
            held = {part.split()[0] for part in accounts._pins}
            assert set(at) - set(ended) <= held, "a part was let go before its own bytes came"
        return seen.task.done()

    sim.run_until(watched)
    seen.check_definite()
    assert seen.rows() != sorted(seen.rows()), "nothing came out of order"
    assert order != sorted(order)
    assert seen.ids() == list(range(16))
    assert seen.steps()[-1] == Frontier.closed()


def _downloads(process: Process) -> Counter[str]:
    """The objects whose bytes have arrived, in the order in which they did."""
    ended: Counter[str] = Counter()
    get = process.blob.get

    def counted(key: str) -> bytes | None:
        found = get(key)
        ended[key] += 1
        return found

    process.blob.get = counted  # type: ignore[method-assign]
    return ended


def test_s04_rows_keep_their_times_whatever_the_order_of_arrivals(sim: Simulation) -> None:
    arrivals_in_reverse(sim)


def first_come_first_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of S4: an arrival settles the oldest account instead of its own."""
    arrived = Ledger.arrived
    monkeypatch.setattr(Ledger, "arrived", lambda self, _: arrived(self, next(iter(self._owed))))


def test_s04_the_mutant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    first_come_first_served(monkeypatch)
    catches(arrivals_in_reverse)


def _three_parts_at_three(sim: Simulation) -> tuple[Place, Process, list[str]]:
    """Times 0 to 5; time 3 has three objects, in no particular order."""
    place = Place(sim, fetch_concurrency=8)
    process = place.open("source", part_target_rows=1)
    place.fill(process, 3)
    place.fill(process, 4, per_time=3)
    place.fill(process, 6)
    parts = place.keys_at(3)
    assert len(parts) == 3
    return place, process, parts


def test_s05_a_time_is_not_complete_while_one_of_its_parts_is_missing(sim: Simulation) -> None:
    place, process, parts = _three_parts_at_three(sim)
    place.blob.delete(parts[1])
    seen = Seen(process)
    sim.run_until(lambda: seen.ids().count(3) == 2 and bool(seen.errors))
    sim.run(until_ms=sim.elapsed_ms() + IDLE_ROUNDS * POLL_MS)
    assert seen.frontier == Frontier(3)
    assert seen.ids().count(3) == 2


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_s05_a_time_completes_with_the_last_of_its_parts(sim: Simulation, slow: int) -> None:
    _, process, parts = _three_parts_at_three(sim)
    late = ("blob.get", parts[slow])
    process.fates.add(lambda *asked: Fault(reply_ms=5_000) if asked == late else None)
    start = sim.elapsed_ms()
    seen = Seen(process)
    sim.run(until_ms=start + 4_900)
    assert seen.ids().count(3) == 2
    assert seen.frontier == Frontier(3)
    sim.run_until(lambda: seen.ids().count(3) == 3, within_ms=200)
    sim.run_until(lambda: seen.told(6), within_ms=10)
    seen.check_definite()


def test_s06_a_listing_error_is_told_once_and_stays_with_its_source(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    other = process.call(lambda: process.store.shard("stock", COLUMNS))
    place.fill(process, 5)
    place.retain(process, Retention(None, 2))
    process.call(lambda: process.machine.demand(c.AdvanceSince(now_ms=sim.now_ms())))
    assert place.state().since == Frontier(3)
    seen = Seen(process, as_of=1)
    neighbour = process.call(lambda: other.subscribe(0))
    sim.run(until_ms=sim.elapsed_ms() + IDLE_ROUNDS * POLL_MS)
    assert [type(error) for error in seen.errors] == [SinceError]
    assert seen.frontier == Frontier(1)
    assert seen.log == []
    writer = process.call(other.writer)
    process.call(lambda: writer.append(rows(7)))
    event = process.call(lambda: neighbour.poll(1_000))
    assert event is not None
    assert event.rows["id"].to_pylist() == [7]


def test_s07_after_a_listing_error_nothing_is_listed(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    seen = Seen(process)
    sim.run_until(lambda: seen.told(3))
    (reader,) = place.state().readers
    process.call(lambda: process.machine.demand(c.Release(readers=(reader,))))
    place.fill(process, 5)
    sim.run_until(lambda: bool(seen.errors))
    given_out = list(seen.log)
    accounts = seen.subscription._feed.accounts
    place.fill(process, 60)
    sim.run(until_ms=sim.elapsed_ms() + IDLE_ROUNDS * POLL_MS)
    assert [type(error) for error in seen.errors] == [LeaseLostError]
    assert seen.log == given_out
    assert seen.frontier == Frontier(3)
    assert (accounts.backlog, len(accounts._owed), len(accounts._ready)) == (0, 0, 0)


def test_s07_a_frozen_source_holds_a_bounded_amount(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_BACKLOG", 16)
    place = Place(sim)
    process = place.open("source", fetch_bytes_max=6_000)
    place.fill(process, 2)
    place.delete(0)
    shard = process.shard
    subscription = process.call(lambda: shard.subscribe(0))

    def take() -> None:
        with pytest.raises(CorruptionError):
            list(subscription)
        with pytest.raises(StalledError):
            next(subscription)

    process.call(take)
    most = 0
    for upto in range(10, 101, 10):
        place.fill(process, upto)
        sim.run(until_ms=sim.elapsed_ms() + 5_000)
        most = max(most, int(process.metrics.value("bytes_in_flight", "orders")))
    accounts = subscription._feed.accounts
    assert 0 < most <= 6_000
    listed = accounts.backlog + len(accounts._owed) + len(accounts._ready)
    assert listed < 100, "a frozen source goes on listing without end"
    process.call(subscription.close)
    assert (len(accounts._owed), len(accounts._ready), len(accounts._pins)) == (0, 0, 0)
