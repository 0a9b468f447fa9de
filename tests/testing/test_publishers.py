"""The judge of sinks objects to what is wrong, and to nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from strandline.testing.checkers import HistoryError
from strandline.testing.publishers import SINK, Stage, judge, publishers
from strandline.testing.scripted_sink import Log
from strandline.testing.simulation import Simulation
from strandline.testing.world import World


@pytest.fixture
def world() -> Iterator[World]:
    """A store in which two replicas have published a short history."""
    logging.disable(logging.CRITICAL)
    with Simulation(3) as sim:
        made = World(sim)
        publishers(made)
        made.run(faults_ms=1_500)
        yield made
    logging.disable(logging.NOTSET)


def log_of(world: World) -> Log:
    stage: Stage = world.batches[SINK]  # type: ignore[assignment]
    (log,) = stage.target.logs.values()
    return log


def test_a_history_without_faults_is_right(world: World) -> None:
    assert len(log_of(world).landed) > 2
    judge(world)


def twice(log: Log) -> None:
    log.landed.append(log.landed[-1])


def missing(log: Log) -> None:
    del log.landed[1]


def reordered(log: Log) -> None:
    log.landed.reverse()


def changed(log: Log) -> None:
    log.landed[-1] = replace(log.landed[-1], rows=log.landed[-1].rows[1:])


def empty(log: Log) -> None:
    log.landed.insert(1, replace(log.landed[0], t=log.landed[0].t, rows=[]))


@pytest.mark.parametrize("wrong", [twice, missing, reordered, changed, empty])
def test_what_is_wrong_is_seen(world: World, wrong: Callable[[Log], None]) -> None:
    wrong(log_of(world))
    with pytest.raises(HistoryError, match="sink: "):
        judge(world)
