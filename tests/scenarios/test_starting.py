"""S14 to S17: how a source starts, catches up, ends, and what it may leave out."""

from __future__ import annotations

import pytest

from strandline.errors import InvariantError
from strandline.model.frontier import Frontier
from strandline.parts import build, stats
from strandline.shard.leases import Leases
from strandline.shard.state import Retention
from strandline.testing.simulation import Simulation

from .conftest import TICK, Place, Process, Seen, catches, rows

CLOSED = Frontier.closed()
FILTER = [("id", ">=", 5)]


def waits_for_its_signal(sim: Simulation) -> None:
    """Another process gives up times 3 to 8 between the opening and the signal."""
    place = Place(sim)
    process, other = place.open("source"), place.open("other")
    place.fill(other, 10)
    place.retain(other, Retention(None, 1))
    shard = other.shard
    reader = other.call(lambda: shard.reader(since=3))
    other.upkeep()
    assert place.state().since == Frontier(3)
    signal = process.node.tasks.event()
    seen = Seen(process, as_of=5, start_signal=signal)
    other.call(lambda: reader.downgrade(9, durable=True))
    other.upkeep()
    sim.run(until_ms=sim.elapsed_ms() + 4 * TICK)
    assert seen.log == []
    process.call(signal.set)
    sim.run_until(lambda: seen.told(10), within_ms=5_000)
    assert seen.errors == []
    assert sorted(seen.rows()) == [(n, max(n, 5)) for n in range(10)]
    assert place.state().since >= Frontier(5)


def test_s14_a_source_holds_its_time_before_it_waits_for_the_signal(sim: Simulation) -> None:
    waits_for_its_signal(sim)


def opens_after_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of S14: nothing holds the time until the source has started."""
    reader = Leases.reader

    def late(self: Leases, machine: object, *, since: int | None, **more: object) -> object:
        subscribes = str(more.get("purpose", "")).startswith("subscription")
        return reader(self, machine, since=None if subscribes else since, **more)

    monkeypatch.setattr(Leases, "reader", late)


def test_s14_the_mutant_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    opens_after_the_signal(monkeypatch)
    catches(waits_for_its_signal)


def test_s15_until_ends_a_source_and_nothing_at_or_after_it_appears(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 10)
    seen = Seen(process, until=7)
    sim.run_until(seen.task.done, within_ms=1_000)
    seen.check_definite()
    assert seen.ids() == list(range(7))
    assert seen.steps()[-1] == CLOSED
    sim.run_until(lambda: not place.state().readers, within_ms=2_000)


@pytest.mark.parametrize("last", [7, 8])
def test_s15_until_ends_a_source_even_if_no_data_comes_after_it(sim: Simulation, last: int) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 5)
    seen = Seen(process, until=7)
    sim.run_until(lambda: seen.told(5))
    sim.run(until_ms=sim.elapsed_ms() + 10_000)
    assert not seen.task.done()
    empty = rows()
    writer = place.writer(process)
    process.call(lambda: writer.compare_and_append(empty, lower=5, upper=last))
    sim.run_until(seen.task.done, within_ms=1_000)
    assert seen.ids() == list(range(5))
    assert seen.steps()[-1] == CLOSED


def _catch_up(sim: Simulation, budget: int) -> tuple[Seen, Place, Process]:
    place = Place(sim)
    process = place.open("source", catch_up_bytes=budget, fetch_concurrency=1)
    place.fill(process, 64)
    seen = Seen(process)
    sim.run_until(lambda: seen.told(64))
    sim.run(until_ms=sim.elapsed_ms() + 1_000)
    return seen, place, process


@pytest.mark.parametrize("budget", ["none", "eight parts", "everything"])
def test_s16_catching_up_is_told_in_as_many_steps_as_asked_for(
    sim: Simulation, budget: str
) -> None:
    size = 1_500  # About what a part of one row has; the exact number does not matter.
    seen, place, process = _catch_up(
        sim, {"none": 0, "eight parts": 8 * size, "everything": 10**9}[budget]
    )
    caught_up = len(seen.steps())
    match budget:
        case "none":
            assert caught_up == 64
        case "eight parts":
            assert 1 < caught_up < 64
        case _:
            assert caught_up == 1
    seen.check_definite()
    assert seen.ids() == list(range(64))
    for upper in (65, 66, 67):
        place.fill(process, upper)
        sim.run_until(lambda upper=upper: seen.told(upper))
        sim.run(until_ms=sim.elapsed_ms() + 500)
    assert seen.steps()[caught_up:] == [Frontier(65), Frontier(66), Frontier(67)]
    seen.check_definite()


def _fill_with(process: Process, place: Place, start: int, stop: int) -> None:
    writer = place.writer(process)
    process.call(lambda: [writer.append(rows(n)) for n in range(start, stop)])


@pytest.mark.parametrize("listed", ["in the state", "in a chunk"])
def test_s17_a_part_whose_statistics_are_of_a_newer_version_is_read(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    place = Place(sim)
    listed_parts = 1 if listed == "in a chunk" else 256
    process = place.open("source", part_target_rows=1, listed_parts=listed_parts)
    writer = place.writer(process)
    with monkeypatch.context() as newer:
        newer.setattr(stats, "VERSION", stats.VERSION + 1)
        process.call(lambda: writer.append(rows(5, 6)))
    process.call(lambda: writer.append(rows(1, 2, 3)))
    process.call(lambda: writer.append(rows(7, 8)))
    shard = process.shard
    found = process.call(lambda: shard.snapshot(filter=FILTER).to_arrow())
    assert sorted(found["id"].to_pylist()) == [5, 6, 7, 8]
    assert process.metrics.value("parts_pruned", "orders") == 3
    seen = Seen(process, filter=FILTER)
    sim.run_until(lambda: seen.told(3))
    sim.run(until_ms=sim.elapsed_ms() + 500)
    assert seen.ids() == [5, 6, 7, 8]


@pytest.mark.parametrize("way", ["snapshot", "subscription"])
def test_s17_audits_of_discarded_parts_find_nothing(sim: Simulation, way: str) -> None:
    place = Place(sim)
    process = place.open("source", audit_share=1.0)
    place.fill(process, 10)
    shard = process.shard
    if way == "snapshot":
        found = process.call(lambda: shard.snapshot(filter=FILTER).to_arrow())
        assert sorted(found["id"].to_pylist()) == list(range(5, 10))
    else:
        seen = Seen(process, filter=FILTER)
        sim.run_until(lambda: seen.told(10))
        sim.run(until_ms=sim.elapsed_ms() + 500)
        assert (seen.ids(), seen.errors) == (list(range(5, 10)), [])
    assert process.metrics.value("parts_pruned", "orders") == 5
    assert 3 <= process.metrics.value("prune_audits", "orders") <= 5


@pytest.mark.parametrize("way", ["snapshot", "subscription"])
def test_s17_audits_catch_statistics_that_lie(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The mutant: a part says that it holds other values than it does."""
    place = Place(sim)
    process = place.open("source", audit_share=1.0)
    _fill_with(process, place, 5, 8)
    honest = build.measure
    with monkeypatch.context() as lying:
        lying.setattr(build, "measure", lambda columns, n: honest([(1, rows(0)["id"])], n))
        _fill_with(process, place, 9, 10)
    shard = process.shard
    if way == "snapshot":
        with pytest.raises(InvariantError, match="left out by its statistics"):
            process.call(lambda: shard.snapshot(filter=FILTER).to_arrow())
        return
    seen = Seen(process, as_of=3, filter=FILTER)
    sim.run_until(lambda: bool(seen.errors))
    assert isinstance(seen.errors[0], InvariantError)
