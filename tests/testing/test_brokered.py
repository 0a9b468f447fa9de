"""The judge of topics objects to what is wrong, and to nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from strandline.testing.broker import Fate
from strandline.testing.brokered import ENVELOPES, SINK, BrokerStage, judge, start
from strandline.testing.cases import CASES
from strandline.testing.checkers import HistoryError
from strandline.testing.seeds import unreached
from strandline.testing.simulation import Simulation
from strandline.testing.world import World


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def played(sim: Simulation, envelope: str) -> World:
    """A store in which two replicas have published a short history."""
    world = World(sim)
    start(world, BrokerStage(sinks={SINK: envelope}))
    world.run(faults_ms=1_000)
    return world


def stage_of(world: World) -> BrokerStage:
    return world.batches[SINK]  # type: ignore[return-value]


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_a_history_without_faults_is_right(envelope: str) -> None:
    with Simulation(3) as sim:
        world = played(sim, envelope)
        assert len(stage_of(world).readers[0].topic.arrived()) > 2
        judge(world)


def twice(stage: BrokerStage) -> None:
    partition = last(stage)
    entry = list(partition.records())[-1]
    partition.append(entry.transaction, (entry.key, entry.value, entry.headers), 0)


def missing(stage: BrokerStage) -> None:
    partition = last(stage)
    partition.entries.remove(list(partition.records())[-1])


def reordered(stage: BrokerStage) -> None:
    partition = last(stage)
    records = list(partition.records())
    first, second = records[0], records[-1]
    partition.entries = [
        replace(first, offset=second.offset)
        if each is second
        else replace(second, offset=first.offset)
        if each is first
        else each
        for each in partition.entries
    ]


def last(stage: BrokerStage):
    return max(stage.broker.log.topics[SINK], key=lambda each: each.end)


@pytest.mark.parametrize("wrong", [twice, missing, reordered])
def test_what_is_wrong_is_seen(wrong: Callable[[BrokerStage], None]) -> None:
    with Simulation(3) as sim:
        world = played(sim, "changes")
        wrong(stage_of(world))
        with pytest.raises(HistoryError, match="sink: "):
            judge(world)


def test_a_sink_that_stopped_is_told_unless_its_broker_forgets() -> None:
    with Simulation(3) as sim:
        world = played(sim, "changes")
        stage_of(world).stopped.append("sink out: so it is")
        with pytest.raises(HistoryError, match="so it is"):
            judge(world)


@pytest.mark.simulation
def test_the_histories_reach_what_they_are_there_for() -> None:
    wanted = [
        *(f"commit {fate}" for fate in Fate), "died before commit", "died before commit answered",
        "produce late", "init twice", "crash", "suspend",
        *(f"a broker: {each}" for each in ("compact", "retain", "grow", "outage", "expire")),
    ]  # fmt: skip
    assert unreached(CASES["kafka"], *wanted) == []
