"""Snapshots and the changes after them, with real tasks on a store in memory."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from strandline.errors import (
    BoundsError,
    CorruptionError,
    LeaseLostError,
    NotAppliedError,
    NotFoundError,
    SinceError,
    StalledError,
    StrandlineError,
    UsageError,
)
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.reading import lister
from strandline.reading.descriptor import PartDescriptor
from strandline.reading.events import Event, Failure, Progress, Updates
from strandline.reading.fetch import fetch_part
from strandline.reading.subscribe import Subscription, start_subscription
from strandline.reading.watch import Health
from strandline.shard import command as c
from strandline.shard.state import Retention
from strandline.testing.lab import Lab

CLOSED = Frontier.closed()


class Desk:
    """One shard, one writer, one process."""

    def __init__(self, lab: Lab, **settings: int) -> None:
        self.lab = lab
        self.env = lab.env(**settings)
        self.machine = lab.machine(env=self.env)
        self.leases = lab.leases(self.env)
        self.writer = Writer(self.machine, self.leases.writer(self.machine))

    def fill(self, start: int, stop: int) -> None:
        """One row for each time, with the time as its id."""
        for time in range(start, stop):
            self.writer.append(pa.table({"id": [time], "name": [f"n{time}"]}))

    def subscribe(self, as_of: int | None = 0, **options: object) -> Subscription:
        return start_subscription(self.machine, self.leases, as_of, **options)

    def delete_part_of(self, time: int) -> str:
        (batch,) = [b for b in self.machine.refresh().batches if b.lower == time]
        self.lab.blob.delete(batch.parts[0].key)
        return batch.parts[0].key

    def readers(self) -> int:
        return len(self.machine.refresh().readers)


@pytest.fixture(params=[32 * 1024, 0], ids=["inline", "parts"])
def desk(lab: Lab, request: pytest.FixtureRequest) -> Desk:
    return Desk(lab, inline_max_bytes=request.param)


@pytest.fixture
def parts_desk(lab: Lab) -> Desk:
    return Desk(lab, inline_max_bytes=0)


def _until(subscription: Subscription, frontier: int | None) -> list[Event]:
    """Take events until the frontier is told."""
    seen: list[Event] = []
    while not (seen and seen[-1] == Progress(Frontier(frontier))):
        event = subscription.poll(10_000)
        assert event is not None, f"ended after {seen}"
        seen.append(event)
    return seen


def _wait(desk: Desk, true: Callable[[], bool]) -> None:
    deadline = desk.env.clock.monotonic_ms() + 30_000
    while not true():
        assert desk.env.clock.monotonic_ms() < deadline, "not within the deadline"
        desk.env.tasks.sleep(1)


def _rows(events: list[Event]) -> list[tuple[int, int, int]]:
    """(id, time, diff) of all updates, checked against the frontiers told before them."""
    found, told = [], Frontier(0)
    for event in events:
        if isinstance(event, Progress):
            assert told <= event.frontier
            told = event.frontier
        elif isinstance(event, Updates):
            assert not any(told.settled(int(time)) for time in event.times)
            ids = event.rows["id"].to_pylist()
            found += zip(ids, event.times.tolist(), event.diffs.tolist(), strict=True)
    return sorted(found)


def test_the_snapshot_and_the_changes_meet_without_gap_or_overlap(desk: Desk) -> None:
    desk.fill(0, 5)
    with desk.subscribe(2) as subscription:
        assert subscription.frontier == Frontier(2)
        events = _until(subscription, 5)
        desk.fill(5, 7)
        events += _until(subscription, 7)
    assert _rows(events) == [(n, max(n, 2), 1) for n in range(7)]


def test_listening_starts_after_the_time_it_names(desk: Desk) -> None:
    desk.fill(0, 4)
    with desk.subscribe(1, snapshot=False) as subscription:
        assert _rows(_until(subscription, 4)) == [(2, 2, 1), (3, 3, 1)]


def test_it_waits_for_a_time_that_is_not_settled(desk: Desk) -> None:
    with desk.subscribe(1) as subscription:
        assert subscription.poll(1) is None
        assert subscription.frontier == Frontier(1)
        desk.fill(0, 3)
        assert _rows(_until(subscription, 3)) == [(0, 1, 1), (1, 1, 1), (2, 2, 1)]


def test_retractions_within_a_snapshot_part_cancel(desk: Desk) -> None:
    rows = {"id": [1, 1, 2], "name": ["a", "a", "b"], "_time": [0, 1, 1], "_diff": [1, -1, 1]}
    desk.writer.compare_and_append(pa.table(rows), lower=0, upper=2)
    with desk.subscribe(1) as subscription:
        assert _rows(_until(subscription, 2)) == [(2, 1, 1)]


def test_s15_until_is_exclusive_and_ends_the_subscription(desk: Desk) -> None:
    desk.fill(0, 10)
    subscription = desk.subscribe(0, until=7)
    events = list(subscription)
    assert events[-1] == Progress(CLOSED)
    assert _rows(events) == [(n, n, 1) for n in range(7)]
    subscription.close()
    assert desk.readers() == 0


def test_s15_until_ends_it_without_any_data_after_it(desk: Desk) -> None:
    desk.fill(0, 2)
    subscription = desk.subscribe(0, until=7)
    desk.writer.compare_and_append(
        pa.table({"id": [3], "name": ["x"]}).slice(0, 0), lower=2, upper=7
    )
    assert _rows(list(subscription)) == [(0, 0, 1), (1, 1, 1)]
    subscription.close()


def test_nothing_comes_of_a_subscription_that_ends_before_it_starts(desk: Desk) -> None:
    desk.fill(0, 5)
    subscription = desk.subscribe(3, until=3)
    assert list(subscription) == [Progress(CLOSED)]
    subscription.close()


def test_an_outage_is_a_stall_that_ends_with_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(lab, stall_ms=100, read_deadline_ms=1)
    desk.fill(0, 1)
    with desk.subscribe(0) as subscription:
        _until(subscription, 1)
        _wait(desk, lambda: subscription.status().health is Health.RUNNING)

        def away(*_: object) -> None:
            raise NotAppliedError("the store is away")

        monkeypatch.setattr(lister, "pinned_view", away)
        _wait(desk, lambda: desk.env.metrics.value("stalls", desk.machine.name) > 0)
        _wait(desk, lambda: "the store is away" in subscription.status().cause)
        assert subscription.status().health is Health.STALLED
        monkeypatch.undo()
        _wait(desk, lambda: subscription.status().health is Health.RUNNING)
        desk.fill(1, 2)
        assert _rows(_until(subscription, 2)) == [(1, 1, 1)]


@pytest.mark.parametrize("polls", [0, 1])
def test_a_subscription_that_nobody_polls_waits_for_its_consumer(lab: Lab, polls: int) -> None:
    desk = Desk(lab, inline_max_bytes=0, stall_ms=1)
    desk.fill(0, 4)
    with desk.subscribe(0, until=4) as subscription:
        for _ in range(polls):
            assert subscription.poll(10_000) is not None
        _wait(desk, lambda: subscription.status().health is Health.WAITING)
        if polls:
            _wait(desk, lambda: subscription.status().frontier == CLOSED)
        assert subscription.status().health is Health.WAITING
        list(subscription)
        assert subscription.status().health is Health.CLOSED


def test_another_shard_of_the_same_name_is_an_error(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.fill(0, 2)
    register = desk.leases.reader

    def anew() -> None:
        desk.machine.demand(c.Drop())
        machine = desk.lab.machine(env=desk.env)
        desk.writer = Writer(machine, desk.leases.writer(machine))
        desk.fill(0, 6)

    def late(*arguments: object, **options: object) -> object:
        anew()
        return register(*arguments, **options)

    with desk.subscribe(0) as subscription:
        _until(subscription, 2)
        anew()
        with pytest.raises(NotFoundError):
            list(subscription)
        assert subscription.frontier == Frontier(2)
    monkeypatch.setattr(desk.leases, "reader", late)
    with pytest.raises(NotFoundError, match="created anew"):
        desk.subscribe(0)


def test_columns_and_filters_are_applied(desk: Desk) -> None:
    desk.fill(0, 4)
    wanted = {"columns": ["id"], "filter": [("name", "in", ["n0", "n3"])]}
    with desk.subscribe(1, **wanted) as subscription:
        events = _until(subscription, 4)
    assert _rows(events) == [(0, 1, 1), (3, 3, 1)]
    assert all(
        e.rows.column_names == ["id", "_time", "_diff"] for e in events if type(e) is Updates
    )


def test_s01_a_missing_part_freezes_the_frontier_and_is_named_once(parts_desk: Desk) -> None:
    parts_desk.fill(0, 3)
    key = parts_desk.delete_part_of(1)
    with parts_desk.subscribe(0) as subscription:
        events = _until(subscription, 1)
        assert _rows(events)[0] == (0, 0, 1)
        with pytest.raises(CorruptionError, match=key):
            list(subscription)
        for _ in range(3):
            with pytest.raises(StalledError, match=r"stalled at \{1\}") as caught:
                next(subscription)
            assert isinstance(caught.value.__cause__, CorruptionError)
        assert subscription.frontier == Frontier(1)
        status = subscription.status()
        assert status.health is Health.STALLED
        assert key in status.cause
        assert parts_desk.readers() == 1
    assert parts_desk.readers() == 0


def test_s03_parts_beyond_the_missing_one_stay_behind_the_frontier(parts_desk: Desk) -> None:
    parts_desk.fill(0, 12)
    parts_desk.delete_part_of(5)
    with parts_desk.subscribe(0, on_error="signal") as subscription:
        events = []
        while not any(isinstance(event, Failure) for event in events):
            event = subscription.poll(10_000)
            assert event is not None
            events.append(event)
        assert {row for row in _rows(events) if row[0] < 5} == {(n, n, 1) for n in range(5)}
        assert subscription.frontier == Frontier(5)


def test_an_error_can_go_to_a_callback_of_ones_own(parts_desk: Desk) -> None:
    parts_desk.fill(0, 2)
    key = parts_desk.delete_part_of(0)
    errors: list[StrandlineError] = []
    told = parts_desk.env.tasks.event()

    def on_error(error: StrandlineError) -> None:
        errors.append(error)
        told.set()

    with parts_desk.subscribe(0, on_error=on_error) as subscription:
        subscription.poll(1)
        assert told.wait(10_000)
        assert subscription.frontier == Frontier(0)
    assert [key in str(error) for error in errors] == [True]


def test_a_halted_subscription_raises_before_anything_else(parts_desk: Desk) -> None:
    parts_desk.fill(0, 3)
    parts_desk.delete_part_of(1)
    with parts_desk.subscribe(0, on_error="halt") as subscription:
        with pytest.raises(CorruptionError):
            list(subscription)
        with pytest.raises(StalledError):
            next(subscription)


def test_s06_a_time_before_since_is_an_error_of_the_subscription(desk: Desk) -> None:
    desk.fill(0, 5)
    desk.machine.demand(c.Retain(Retention(None, 2)))
    desk.machine.demand(c.AdvanceSince(now_ms=1))
    with desk.subscribe(1) as subscription:
        with pytest.raises(SinceError, match="oldest time that can be read is 3"):
            next(subscription)
        with pytest.raises(StalledError):
            next(subscription)
        assert subscription.frontier == Frontier(1)


def test_a_lost_lease_is_an_error_and_the_frontier_stays(desk: Desk) -> None:
    desk.fill(0, 2)
    with desk.subscribe(0) as subscription:
        _until(subscription, 2)
        (reader,) = desk.machine.refresh().readers
        desk.machine.demand(c.Release(readers=(reader,)))
        desk.fill(2, 4)
        with pytest.raises(LeaseLostError):
            list(subscription)
        assert subscription.frontier == Frontier(2)


def test_s09_stopping_lets_everything_go(desk: Desk) -> None:
    desk.fill(0, 3)
    subscription = desk.subscribe(0)
    _until(subscription, 3)
    subscription.close()
    subscription.close()
    assert desk.readers() == 0
    assert list(subscription) == []
    status = subscription.status()
    assert (status.health, status.frontier) == (Health.CLOSED, CLOSED)
    assert subscription.frontier == Frontier(3), "what was given out, to go on from"


def test_the_frontier_is_never_ahead_of_what_was_taken(desk: Desk) -> None:
    """Whoever notes the frontier at any moment and goes on from there has every row."""
    desk.fill(0, 6)
    for taken in range(1, 20):
        subscription = desk.subscribe(0)
        events: list[Event] = []
        while len(events) < taken and Progress(Frontier(6)) not in events:
            event = subscription.poll(10_000)
            assert event is not None
            events.append(event)
        told = [event.frontier for event in events if isinstance(event, Progress)]
        noted = subscription.frontier
        assert noted == (told[-1] if told else Frontier(0))
        subscription.close()
        assert subscription.frontier == noted
        before = [row for row in _rows(events) if noted.settled(row[1])]
        if noted.time:
            with desk.subscribe(noted.time - 1, snapshot=False) as rest:
                before += _rows(_until(rest, 6)) if noted.time < 6 else []
            assert before == [(n, n, 1) for n in range(6)]


def test_the_end_is_told_before_the_frontier_closes(desk: Desk) -> None:
    desk.fill(0, 3)
    subscription = desk.subscribe(0, until=3)
    for event in subscription:
        assert subscription.frontier.is_closed == (event == Progress(CLOSED))
    assert subscription.frontier == CLOSED
    subscription.close()
    assert subscription.frontier == CLOSED


def test_history_is_held_until_it_was_taken(desk: Desk) -> None:
    """Until then, somebody who comes back with the frontier must be able to go on from it."""
    desk.fill(0, 4)
    with desk.subscribe(0) as subscription:
        assert subscription.poll(10_000) is not None
        _wait(desk, lambda: subscription.status().frontier == Frontier(4))
        desk.leases.sync(desk.machine)
        (reader,) = desk.machine.refresh().readers.values()
        assert reader.since == 0


def test_s10_a_stop_wakes_whoever_waits(desk: Desk) -> None:
    desk.fill(0, 1)
    subscription = desk.subscribe(0)
    _until(subscription, 1)
    ended = desk.env.tasks.event()

    def consume() -> None:
        assert list(subscription) == []
        ended.set()

    desk.env.tasks.start("consumer", consume)
    subscription.stop()
    assert ended.wait(1_000)
    subscription.close()


def test_s14_the_lease_is_taken_before_the_start_signal(desk: Desk) -> None:
    desk.fill(0, 10)
    signal = desk.env.tasks.event()
    with desk.subscribe(5, start_signal=signal) as subscription:
        desk.machine.demand(c.Retain(Retention(None, 1)))
        desk.machine.demand(c.AdvanceSince(now_ms=1))
        assert desk.machine.refresh().since == Frontier(5)
        assert subscription.poll(1) is None
        signal.set()
        assert _rows(_until(subscription, 10)) == [(n, max(n, 5), 1) for n in range(10)]


def test_history_before_the_frontier_is_given_up(desk: Desk) -> None:
    desk.fill(0, 6)
    with desk.subscribe(0) as subscription:
        _until(subscription, 6)
        desk.leases.sync(desk.machine)
        (reader,) = desk.machine.refresh().readers.values()
        assert reader.since == 5


@pytest.mark.parametrize("budget", [0, 10**9])
def test_s16_catching_up_may_be_told_in_one_step(lab: Lab, budget: int) -> None:
    desk = Desk(lab, inline_max_bytes=0, catch_up_bytes=budget, fetch_concurrency=1)
    desk.fill(0, 16)
    with desk.subscribe(0) as subscription:
        events = _until(subscription, 16)
        steps = [event for event in events if isinstance(event, Progress)]
        assert len(steps) == (16 if budget == 0 else 1)
        assert len(_rows(events)) == 16
        desk.fill(16, 18)
        assert len(_until(subscription, 18)) >= 2


def test_a_part_larger_than_the_bound_goes_alone(lab: Lab) -> None:
    desk = Desk(lab, inline_max_bytes=0, fetch_bytes_max=1)
    desk.fill(0, 6)
    with desk.subscribe(0) as subscription:
        assert len(_rows(_until(subscription, 6))) == 6


def test_workers_elsewhere_fetch_and_the_frontier_follows_them(desk: Desk) -> None:
    desk.fill(0, 4)
    with desk.subscribe(0, until=4) as subscription:
        rows = 0
        for part in subscription.descriptors():
            rows += fetch_part(desk.lab.blob, part).num_rows
            subscription.arrived(part)
            subscription.arrived(part)
        assert rows == 4
        assert subscription.frontier == CLOSED


def test_s08_a_local_stop_gives_up_nothing_that_another_worker_owes(parts_desk: Desk) -> None:
    parts_desk.fill(0, 6)
    subscription = parts_desk.subscribe(0, workers=2)
    first, second = subscription.worker(0), subscription.worker(1)
    held: list[PartDescriptor] = []
    for part in iter(lambda: second.take(1_000) if len(held) < 1 else None, None):
        if part.owed == 4:
            held.append(part)
        else:
            second.arrived(part)
    first.press()
    assert first.take(10_000) is None
    assert subscription.frontier == Frontier(4)
    assert parts_desk.readers() == 1
    second.press()
    assert subscription.status().frontier == CLOSED
    assert subscription.frontier == Frontier(4)
    subscription.close()
    assert parts_desk.readers() == 0


def test_a_worker_that_fails_freezes_the_frontier(parts_desk: Desk) -> None:
    parts_desk.fill(0, 2)
    with parts_desk.subscribe(0) as subscription:
        worker = subscription.worker(0)
        part = worker.take(10_000)
        assert part is not None
        worker.failed(part, OSError("no network"))
        with pytest.raises(CorruptionError, match="no network"):
            subscription.poll(10_000)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_error": "shrug"}, UsageError),
        ({"workers": 0}, BoundsError),
        ({"until": -1}, BoundsError),
        ({"as_of": -1}, BoundsError),
    ],
)
def test_wrong_calls_are_refused(desk: Desk, options: dict[str, object], error: type) -> None:
    with pytest.raises(error):
        desk.subscribe(**options)
    assert desk.readers() == 0


def test_one_either_iterates_or_has_workers(desk: Desk) -> None:
    with desk.subscribe(0, workers=2) as subscription:
        with pytest.raises(UsageError, match="it has 2"):
            subscription.worker(2)
        subscription.poll(0)
        with pytest.raises(UsageError, match="fetches by itself"):
            subscription.worker(0)
