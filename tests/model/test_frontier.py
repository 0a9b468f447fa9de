"""Tests of times and frontiers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from strandline.errors import BoundsError
from strandline.model.frontier import TIME_MAX, Frontier, valid_time

FRONTIERS = st.one_of(st.none(), st.integers(0, TIME_MAX)).map(Frontier)


@given(FRONTIERS, FRONTIERS)
def test_frontiers_are_totally_ordered_with_closed_last(a: Frontier, b: Frontier) -> None:
    assert (a < b) + (b < a) + (a == b) == 1
    assert a <= Frontier.closed()


@given(FRONTIERS, st.integers(0, TIME_MAX))
def test_a_time_is_settled_if_it_lies_before_the_frontier(frontier: Frontier, time: int) -> None:
    assert frontier.settled(time) == (Frontier(time) < frontier)


@pytest.mark.parametrize(
    ("frontier", "last", "text"),
    [(Frontier(0), None, "{0}"), (Frontier(7), 6, "{7}"), (Frontier.closed(), None, "{}")],
)
def test_the_last_settled_time(frontier: Frontier, last: int | None, text: str) -> None:
    assert frontier.last() == last
    assert str(frontier) == text


@pytest.mark.parametrize("time", [0, 1, TIME_MAX, np.int64(7), np.uint8(7)])
def test_whole_numbers_are_times(time: int) -> None:
    assert valid_time(time) == time
    assert type(valid_time(time)) is int
    assert Frontier.of(time) == Frontier(int(time))


@pytest.mark.parametrize("time", [-1, TIME_MAX + 1, 2**70, True, np.True_, 1.0, "7", None])
def test_what_is_not_a_time_is_named(time: object) -> None:
    with pytest.raises(BoundsError, match="as_of"):
        valid_time(time, "as_of")


@pytest.mark.parametrize("time", [-1, TIME_MAX + 1, 2**70, True])
def test_a_frontier_that_somebody_made_of_no_time_is_refused(time: int) -> None:
    with pytest.raises(BoundsError, match="upper"):
        Frontier.of(Frontier(time), "upper")


def test_people_write_none_for_closed() -> None:
    assert Frontier.of(None).is_closed
    assert Frontier.of(Frontier(3)) == Frontier(3)
