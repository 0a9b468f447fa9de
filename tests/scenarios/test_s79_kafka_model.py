"""S79 on a broker in memory: whatever step a delivery dies before, it counts once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.scenarios.kafka_place import opened, read, stand_of

from strandline.connectors.kafka_progress import Mark
from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import SinkError, SinkFencedError
from strandline.testing.broker import Broker, Fate
from strandline.testing.conformance_sink import CHANGES, WHAT, DiedError, check_sink

SIZES = [1, 2, pytest.param(1_000, marks=pytest.mark.slow)]
"""Rows of a transaction; none at all is never delivered (`check_sink` says so)."""


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_the_production_sink_keeps_the_contract(partitions: int, *, lazy: bool) -> None:
    check_sink(stand_of(partitions, lazy=lazy))


def rows(t: int, size: int) -> list[pa.RecordBatch]:
    """A transaction in two batches, if it has two rows."""
    ids = [t * 10_000 + each for each in range(size)]
    arrays = [pa.array(ids), pa.array([f"{each}" for each in ids]), pa.array([1] * size)]
    table = pa.Table.from_arrays(arrays, schema=CHANGES)
    return table.to_batches(max_chunksize=max(1, size // 2))


class Life:
    """One life of a publisher's process: it ends, or a request is lost, at one step."""

    def __init__(self, at: int, fate: Fate | None = None) -> None:
        self.left, self.fate = at, fate
        self.struck = ""
        self.steps: list[str] = []

    def __call__(self, step: str) -> Fate | None:
        self.steps.append(step)
        self.left -= 1
        if self.left >= 0 or self.left < -1:
            return None
        self.struck = step
        if self.fate is None:
            raise DiedError
        return self.fate


def publish(broker: Broker, t: int, size: int, life: Callable[[str], Fate | None], count: int):
    """A process that opens the sink, finds out what is there, and delivers what is not."""
    sink = opened(broker, WHAT, life, count)
    sink.prepare()
    at = sink.progress()
    if at is None:
        at = Progress(NOTHING_YET, 1)
        sink.found(at)
    if at.t < t:
        sink.deliver(t, 1, rows(t, size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("partitions", [1, 3, 7])
@pytest.mark.parametrize("fate", [None, Fate.LOST, Fate.UNANSWERED, Fate.LATE])
def test_s79_every_step_of_every_life_may_be_the_last(
    size: int, partitions: int, fate: Fate | None
) -> None:
    """From opening to the answer of the commit: each step once, one transaction for each."""
    broker, steps = Broker(timeout_ms=10**9), set[str]()
    for t in range(1_000):
        life = Life(t, fate)
        try:
            publish(broker, t, size, life, partitions)
        except (DiedError, SinkError):
            steps.add(life.struck)
            publish(broker, t, size, lambda _: None, partitions)
        broker.arrive()
        found = [(each, table.num_rows) for each, _, table in read(broker, WHAT)]
        assert found == [(each, size) for each in range(t + 1)], f"at step {t}, {life.steps[-1]}"
        if life.left >= 0:
            break
    wanted = {"init", "produce", "commit"}
    answers = {f"{each} answered" for each in wanted}
    assert steps >= (wanted if fate else {*wanted, *answers, "begin", "fetch"})


def test_s79_a_sink_whose_progress_is_apart_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = KafkaSink._leave

    def torn(self: KafkaSink, mark: Mark) -> None:
        self._opened().commit()
        self._opened().begin()
        original(self, mark)

    monkeypatch.setattr(KafkaSink, "_leave", torn)
    with pytest.raises(AssertionError, match="at step"):
        test_s79_every_step_of_every_life_may_be_the_last(2, 1, None)


def test_s81_a_zombie_of_an_older_lineage_is_shut_out_before_the_newer_begins() -> None:
    """Its transactional id is another one, so that nobody else's `init` would do it."""
    broker, held = Broker(timeout_ms=10**9), []
    other = replace(WHAT, address=replace(WHAT.address, lineage="second"))

    def stopped(step: str) -> Fate | None:
        if held and step == "produce answered":
            held.clear()
            newer = opened(broker, other, lambda _: None, 1)
            newer.prepare()
            assert newer.progress() is None
            newer.found(Progress(NOTHING_YET, 1))
            newer.deliver(5, 1, rows(5, 2))
        return None

    zombie = opened(broker, WHAT, stopped, 1)
    zombie.prepare()
    assert zombie.progress() is None
    zombie.found(Progress(NOTHING_YET, 1))
    held.append(True)
    with pytest.raises(SinkFencedError):
        zombie.deliver(0, 1, rows(0, 2))
    assert read(broker, WHAT) == []
    assert [t for t, _, _ in read(broker, other)] == [5]
