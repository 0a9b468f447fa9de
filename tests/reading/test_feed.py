"""What runs behind a subscription, and when it lets go by itself."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from strandline.errors import (
    CorruptionError,
    InvariantError,
    StalledError,
    StrandlineError,
    UsageError,
)
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.reading import feed, lister
from strandline.reading.events import Failure, Progress, Updates
from strandline.reading.fetch import fetch_part
from strandline.reading.subscribe import Subscription, start_subscription
from strandline.reading.watch import Health
from strandline.testing.lab import Lab


class Desk:
    """One shard, one writer, one process."""

    def __init__(self, lab: Lab, **settings: int) -> None:
        self.lab = lab
        self.env = lab.env(inline_max_bytes=0, **settings)
        self.machine = lab.machine(env=self.env)
        self.leases = lab.leases(self.env)
        self.writer = Writer(self.machine, self.leases.writer(self.machine))

    def fill(self, start: int, stop: int) -> None:
        for time in range(start, stop):
            self.writer.append(pa.table({"id": [time], "name": [f"n{time}"]}))

    def subscribe(self, as_of: int = 0, **options: object) -> Subscription:
        return start_subscription(self.machine, self.leases, as_of, **options)

    def delete_part_of(self, time: int) -> None:
        (batch,) = [b for b in self.machine.refresh().batches if b.lower == time]
        self.lab.blob.delete(batch.parts[0].key)

    def readers(self) -> int:
        return len(self.machine.refresh().readers)


@pytest.fixture
def desk(lab: Lab) -> Desk:
    return Desk(lab)


def _eventually(desk: Desk, so: Callable[[], bool]) -> None:
    deadline = desk.env.clock.monotonic_ms() + 10_000
    while not so():
        assert desk.env.clock.monotonic_ms() < deadline
        desk.env.tasks.sleep(20)


def _forgotten(desk: Desk) -> None:
    """Whoever asked has seen enough, and leaves without closing anything."""
    for event in desk.subscribe():
        assert isinstance(event, Updates)
        break


def test_s47_a_forgotten_subscription_gives_back_what_it_held(desk: Desk) -> None:
    desk.fill(0, 3)
    _forgotten(desk)
    _eventually(desk, lambda: not desk.readers())


def test_s47_a_subscription_that_waits_for_its_signal_gives_back_what_it_held_too(
    desk: Desk,
) -> None:
    desk.fill(0, 1)
    desk.subscribe(start_signal=desk.env.tasks.event())
    _eventually(desk, lambda: not desk.readers())


def _stalled(desk: Desk) -> None:
    subscription = desk.subscribe(snapshot=False)
    with pytest.raises(CorruptionError):
        list(subscription)


def test_s47_a_forgotten_subscription_that_had_raised_gives_back_what_it_held(
    desk: Desk,
) -> None:
    desk.fill(0, 3)
    desk.delete_part_of(2)
    _stalled(desk)
    _eventually(desk, lambda: not desk.readers())


class OddError(StrandlineError):
    """One that a worker has defined."""

    def __init__(self, part: str, attempt: int) -> None:
        super().__init__(f"{part} failed at attempt {attempt}")
        self.attempt = attempt


def _until_failure(subscription: Subscription) -> Iterator[object]:
    for event in subscription:
        yield event
        if isinstance(event, Failure):
            return


def _signalled(desk: Desk) -> None:
    subscription = desk.subscribe(snapshot=False, on_error="signal")
    (failure,) = (event for event in _until_failure(subscription) if isinstance(event, Failure))
    with pytest.raises(CorruptionError):
        raise failure.error


def _raised_again(desk: Desk) -> None:
    subscription = desk.subscribe(snapshot=False)
    with pytest.raises(CorruptionError) as first:
        list(subscription)
    with pytest.raises(CorruptionError):
        raise first.value.__cause__ or first.value
    with pytest.raises(StalledError) as then:
        subscription.poll()
    with pytest.raises(CorruptionError):
        raise then.value.__cause__ or then.value


def _reported_by_a_worker(desk: Desk) -> None:
    subscription = desk.subscribe(snapshot=False)
    worker = subscription.worker(0)
    part = next(iter(worker))
    with pytest.raises(OddError) as caught:
        raise OddError(str(part), 3)
    worker.failed(part, caught.value)


@pytest.mark.parametrize("use", [_signalled, _raised_again, _reported_by_a_worker])
def test_s47_an_error_that_somebody_raised_keeps_no_forgotten_subscription(
    desk: Desk, use: Callable[[Desk], None]
) -> None:
    desk.fill(0, 3)
    desk.delete_part_of(2)
    use(desk)
    gc.collect()
    _eventually(desk, lambda: not desk.readers())


def test_an_error_comes_out_as_what_it_was(desk: Desk) -> None:
    desk.fill(0, 2)
    with desk.subscribe(snapshot=False) as subscription:
        worker = subscription.worker(0)
        part = next(iter(worker))
        given = OddError("it", 3)
        given.add_note("on a Tuesday")
        given.__cause__ = ValueError("why")
        worker.failed(part, given)
        with pytest.raises(OddError, match="it failed at attempt 3") as told:
            list(subscription)
    assert told.value is not given
    assert (told.value.attempt, told.value.__notes__) == (3, ["on a Tuesday"])
    assert told.value.__cause__ is given.__cause__


def test_a_subscription_is_not_forgotten_while_one_of_its_workers_is_there(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[feed.Feed] = []
    look = feed.Feed._look

    def looked(self: feed.Feed) -> None:
        look(self)
        looks.append(self)

    monkeypatch.setattr(feed, "_LOOK_MS", 5)
    monkeypatch.setattr(feed.Feed, "_look", looked)
    desk.fill(0, 3)
    worker = desk.subscribe(snapshot=False, until=3).worker(0)
    _eventually(desk, lambda: len(looks) >= 10)
    found = []
    for part in worker:
        found += fetch_part(desk.lab.blob, part).column("id").to_pylist()
        worker.arrived(part)
    assert sorted(found) == [1, 2]


def test_a_handler_that_raises_ends_no_task_and_keeps_no_lease(lab: Lab) -> None:
    desk = Desk(lab, fetch_concurrency=1)
    desk.fill(0, 4)
    desk.delete_part_of(2)
    told: list[StrandlineError] = []

    def handler(error: StrandlineError) -> None:
        told.append(error)
        raise ValueError("a bug of whoever reads")

    with desk.subscribe(snapshot=False, on_error=handler) as subscription:
        seen = [subscription.poll(10_000) for _ in range(3)]
        _eventually(desk, lambda: bool(told))
        desk.fill(4, 12)
        while sum(isinstance(event, Updates) for event in seen) < 10:
            seen.append(subscription.poll(10_000))
            assert seen[-1] is not None
        assert Progress(Frontier(3)) not in seen
    assert len(told) == 1
    assert not desk.readers()


def test_a_signal_that_raises_is_told_and_keeps_no_lease(desk: Desk) -> None:
    desk.fill(0, 1)

    def signal() -> bool:
        raise AttributeError("a bug of whoever waits")

    with (
        desk.subscribe(start_signal=signal) as subscription,
        pytest.raises(UsageError, match="start_signal of the"),
    ):
        subscription.poll(5_000)
    assert not desk.readers()


def test_a_listing_error_whose_handler_raises_keeps_no_lease(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.fill(0, 1)

    def damaged(*_: object) -> None:
        raise CorruptionError("a list of parts is damaged")

    def handler(error: StrandlineError) -> None:
        raise error

    monkeypatch.setattr(lister, "described", damaged)
    with desk.subscribe(on_error=handler) as subscription:
        assert subscription.poll(300) is None
        assert subscription.status().health is Health.STALLED
    assert not desk.readers()


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (pa.ArrowInvalid("offset overflow while concatenating arrays"), InvariantError),
        (UsageError("they overflow"), UsageError),
    ],
)
def test_rows_that_can_not_be_summed_are_an_error_and_no_silence(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    told: type[StrandlineError],
) -> None:
    desk.fill(0, 2)

    def too_large(*_: object) -> None:
        raise raised

    monkeypatch.setattr(feed, "stamped", too_large)
    with desk.subscribe() as subscription:
        with pytest.raises(told, match="overflow"):
            subscription.poll(10_000)
        assert subscription.frontier == Frontier(0)
