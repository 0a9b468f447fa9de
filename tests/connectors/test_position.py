"""Positions and ranges are half-open and follow each other."""

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from strandline.connectors.position import Range
from strandline.errors import BoundsError


@pytest.mark.parametrize(
    ("parts", "position", "after"),
    [
        ({"0": (0, 5)}, {}, {"0": 5}),
        ({"0": (6, 6)}, {"0": 6}, {"0": 6}),
        ({"0": (0, 0)}, {}, {"0": 0}),
        ({"0": (3, 5)}, {"0": 3, "1": 7}, {"0": 5, "1": 7}),
        ({"new": (4, 5)}, {"0": 3}, {"0": 3, "new": 5}),
        ({}, {"0": 3}, {"0": 3}),
    ],
)
def test_s77_a_range_moves_a_position_to_its_stop_even_if_it_is_empty(parts, position, after):
    assert Range(parts).after(position) == after


@pytest.mark.parametrize(("start", "stop"), [(3, 2), (-1, 2), (-2, -1)])
def test_a_range_that_goes_back_is_refused(start, stop):
    with pytest.raises(BoundsError, match="partition 'p'"):
        Range({"p": (start, stop)})


@pytest.mark.parametrize("start", [4, 6])
def test_a_range_with_a_gap_or_an_overlap_does_not_follow(start):
    taken = Range({"0": (start, 9), "1": (0, 1)})
    assert not taken.follows({"0": 5})
    with pytest.raises(BoundsError, match="'0' was taken up to 5"):
        taken.after({"0": 5})


def test_empty_parts_count_nothing_and_can_be_left_out():
    taken = Range({"a": (2, 5), "b": (7, 7)})
    assert (taken.rows, taken.empty) == (3, False)
    assert taken.filled() == Range({"a": (2, 5)})
    assert Range({"b": (7, 7)}).empty


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 5), max_size=6))
def test_ranges_that_follow_each_other_end_at_the_sum_of_their_rows(counts):
    position = {}
    for count in counts:
        at = position.get("0", 0)
        position = Range({"0": (at, at + count)}).after(position)
    assert position.get("0", 0) == sum(counts)


def test_a_range_survives_the_wire():
    taken = Range({"a/b@c": (0, 2**62)})
    assert msgspec.json.decode(msgspec.json.encode(taken), type=Range) == taken
