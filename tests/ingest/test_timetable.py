"""Which time each offset has."""

import numpy as np
import pytest

from strandline.errors import InvariantError
from strandline.ingest.timetable import Timetable
from strandline.model.frontier import Frontier


@pytest.fixture
def table():
    known = Timetable()
    known.learn([(7, "a", 5), (3, "a", 2), (3, "b", 4), (9, "b", 6)])
    known.settled(Frontier(10))
    return known


def test_an_offset_has_the_time_of_the_first_binding_past_it(table):
    assert table.times("a", np.array([0, 1, 2, 4])).tolist() == [3, 3, 7, 7]
    assert table.times("b", np.array([5, 0])).tolist() == [9, 3]
    assert table.position() == {"a": 5, "b": 6}


@pytest.mark.parametrize(("partition", "offset"), [("a", 5), ("c", 0)])
def test_an_offset_that_is_not_bound_has_no_time(table, partition, offset):
    with pytest.raises(InvariantError, match="has no time yet"):
        table.times(partition, np.array([offset]))


def test_b3_what_is_known_is_never_learned_differently(table):
    table.learn([(9, "a", 5), (9, "a", 4), (12, "a", 6)])
    assert table.times("a", np.array([1, 3, 4, 5])).tolist() == [3, 7, 7, 12]


def test_only_what_has_no_time_is_offered(table):
    assert table.beyond({"a": 5, "b": 9, "c": 1}) == {"b": 9, "c": 1}


@pytest.mark.parametrize(
    ("rows_max", "expected"),
    [
        (1, {"a": (0, 1)}),
        (3, {"a": (0, 2), "b": (0, 1)}),
        (6, {"a": (0, 2), "b": (0, 4)}),
        (8, {"a": (0, 4), "b": (0, 4)}),
        (99, {"a": (0, 5), "b": (0, 6)}),
    ],
)
def test_the_earliest_times_are_read_first(table, rows_max, expected):
    assert table.next_range({}, rows_max) == expected


@pytest.mark.parametrize(
    ("position", "frontier"),
    [
        ({}, 3),
        ({"a": 2}, 3),
        ({"a": 2, "b": 4}, 7),
        ({"a": 5, "b": 4}, 9),
        ({"a": 5, "b": 6}, 10),
        ({"a": 4, "b": 6}, 7),
    ],
)
def test_the_input_is_complete_up_to_the_least_time_that_is_unread(table, position, frontier):
    assert table.frontier(position) == Frontier(frontier)


def test_a_binding_past_what_is_settled_holds_the_frontier_at_what_is_settled():
    known = Timetable()
    known.learn([(5, "a", 1)])
    known.settled(Frontier(2))
    assert known.frontier({}) == Frontier(2)


def test_what_nobody_needs_is_skipped(table):
    assert table.skipped({"b": 5}, Frontier(7)) == {"a": 2, "b": 5}
    assert table.skipped({}, Frontier(3)) == {"a": 0, "b": 0}
    assert table.skipped({}, Frontier.closed()) == {"a": 5, "b": 6}


def test_what_is_forgotten_changes_nothing_that_is_still_asked(table):
    before = [table.frontier({"a": 2, "b": 4}), table.next_range({"a": 2, "b": 4}, 9)]
    table.forget(Frontier(7))
    assert [table.frontier({"a": 2, "b": 4}), table.next_range({"a": 2, "b": 4}, 9)] == before
    assert table.skipped({}, Frontier(7)) == {"a": 2, "b": 4}
    assert table.position() == {"a": 5, "b": 6}


def test_a_late_beginning_says_from_when_on_times_are_told_apart():
    known = Timetable()
    known.begins(0)
    assert known.since == Frontier(0), "before the first time there is none"
    known.settled(Frontier(4))
    known.begins(3)
    assert known.since == Frontier(0), "what is known up to there is known exactly"
    known.begins(8)
    assert known.since == Frontier(9)
