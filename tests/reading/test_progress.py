"""Which steps of a frontier are told."""

from __future__ import annotations

import pytest

from strandline.model.frontier import Frontier
from strandline.reading.progress import Coalescer


def _steps(budget: int, *, until: int = 64) -> list[int | None]:
    steps = Coalescer(Frontier(0), target=Frontier(64), budget=budget)
    told = []
    for time in range(until):
        steps.emitted(10)
        step = steps.step(Frontier(time + 1))
        if step is not None:
            told.append(step.time)
    return told


@pytest.mark.parametrize(
    ("budget", "count"), [(0, 64), (100, 7), (10**9, 1)], ids=["off", "some", "huge"]
)
def test_s16_the_budget_decides_how_many_steps_are_told_while_catching_up(budget, count):
    told = _steps(budget)
    assert len(told) == count
    assert told[-1] == 64


def test_s16_after_catching_up_every_step_is_told():
    assert _steps(10**9, until=68) == [64, 65, 66, 67, 68]


def test_a_final_step_is_told_whatever_the_budget():
    steps = Coalescer(Frontier(0), target=Frontier(64), budget=10**9)
    assert steps.step(Frontier(5)) is None
    assert steps.step(Frontier(5), final=True) == Frontier(5)
    assert steps.step(Frontier(5), final=True) is None
    assert steps.told == Frontier(5)


def test_a_jump_past_the_target_is_told():
    steps = Coalescer(Frontier(0), target=Frontier(64), budget=10**9)
    assert steps.step(Frontier.closed()) == Frontier.closed()
