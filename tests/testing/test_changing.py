"""The judge of a sink that changes objects to what is wrong, and to nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from strandline.testing.brokered import SINK
from strandline.testing.cases import CASES
from strandline.testing.changing import ChangingStage, changing, judge
from strandline.testing.checkers import HistoryError
from strandline.testing.seeds import unreached
from strandline.testing.simulation import Simulation
from strandline.testing.world import World

SEEDS = range(1, 101)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def world() -> Iterator[World]:
    """The first history in which the sink changes, its progress is kept, and two lineages wrote."""
    for seed in SEEDS:
        with Simulation(seed) as sim:
            made = World(sim)
            changing(made)
            made.run(faults_ms=1_000)
            stage = stage_of(made)
            if stage.version and not stage.forgets and not stage.stopped and lineages(stage) > 1:
                yield made
                return
    raise AssertionError("no seed has such a history")


def lineages(stage: ChangingStage) -> int:
    log = stage.broker.log
    counted = [each for one in log.topics.get(SINK, ()) for each in one.counted()]
    return len({log.writers[each.transaction] for each in counted})


def stage_of(world: World) -> ChangingStage:
    return world.batches[SINK]  # type: ignore[return-value]


def test_a_history_is_right(world: World) -> None:
    judge(world)


def a_zombie(stage: ChangingStage) -> None:
    """Something of the first lineage comes again, after all others."""
    (partition,) = stage.broker.log.topics[SINK]
    first = partition.counted()[0]
    partition.append(first.transaction, (first.key, first.value, ()), 0)


def a_key_that_stays(stage: ChangingStage) -> None:
    (partition,) = stage.broker.log.topics[SINK]
    last = partition.counted()[-1]
    partition.append(last.transaction, (b"{}", b'{"id":99,"after":{"id":99}}', ()), 0)


def a_stop(stage: ChangingStage) -> None:
    stage.stopped.append("without a reason")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [(a_zombie, "came back"), (a_key_that_stays, "keys hold"), (a_stop, "without a reason")],
)
def test_what_is_wrong_is_seen(
    world: World, wrong: Callable[[ChangingStage], None], told: str
) -> None:
    wrong(stage_of(world))
    with pytest.raises(HistoryError, match=f"sink: .*{told}"):
        judge(world)


@pytest.mark.simulation
def test_the_histories_reach_what_they_are_there_for() -> None:
    wanted = ["a sink changed", "a sink changed and lost its progress"]
    assert unreached(CASES["kafka_changes"], *wanted) == []
