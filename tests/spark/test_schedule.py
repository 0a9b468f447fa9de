"""How work is divided: all of it, in ranges that never cut a key, and evenly."""

import numpy as np
from hypothesis import given, strategies as st

from strandline.parts.part import PLACE_MAX
from strandline.spark.schedule import (
    RETURNED_BYTES,
    RETURNED_TASKS,
    Span,
    pack,
    returnable,
    split_bytes,
    split_keys,
    task_count,
)

PLACES = st.lists(st.integers(0, PLACE_MAX), min_size=1, max_size=50).map(sorted)


def covers_all(stretches: list[tuple[int, int]]) -> bool:
    firsts, lasts = zip(*stretches, strict=True)
    joined = all(
        last + 1 == first for last, first in zip(lasts, firsts[1:], strict=False)
    )
    return firsts[0] == 0 and lasts[-1] == PLACE_MAX and joined


@given(PLACES, st.integers(1, 8))
def test_keys_are_divided_into_stretches_that_cover_all_places(places, tasks):
    stretches = split_keys(np.array(places, np.uint64), tasks)
    assert covers_all(stretches)
    assert len(stretches) <= tasks


def test_keys_are_divided_evenly():
    places = np.arange(1000, dtype=np.uint64)
    counts = [hi - lo for lo, hi in split_keys(places, 4)[:-1]]
    assert max(counts) - min(counts) <= 1


@given(
    st.lists(st.tuples(st.integers(0, PLACE_MAX), st.integers(0, PLACE_MAX), st.integers(0, 100)))
)
def test_bytes_are_divided_into_stretches_that_cover_all_places(spans):
    made = [Span(min(a, b), max(a, b), size) for a, b, size in spans]
    assert covers_all(split_bytes(made, 10))


def test_a_hot_range_is_cut_more_often_than_a_cold_one():
    quarter = PLACE_MAX // 4
    spans = [Span(0, quarter, 900), Span(quarter + 1, PLACE_MAX, 100)]
    borders = [hi for _, hi in split_bytes(spans, 100)[:-1]]
    assert len(borders) == 9
    assert sum(border <= quarter for border in borders) >= 8


def test_what_lies_at_one_place_is_never_cut():
    assert split_bytes([Span(7, 7, 1000)], 10)[0][1] >= 7


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 8))
def test_every_piece_is_packed_once(weights, tasks):
    packed = pack(weights, tasks)
    assert sorted(at for pieces in packed for at in pieces) == list(range(len(weights)))
    assert len(packed) == min(tasks, len(weights))


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40), st.integers(1, 8))
def test_no_task_has_much_more_than_its_share(weights, tasks):
    loads = [sum(weights[at] for at in pieces) for pieces in pack(weights, tasks)]
    assert max(loads) <= sum(weights) / len(loads) + max(weights)


def test_there_are_two_tasks_for_each_slot_at_most():
    assert [task_count(n, 3) for n in (0, 1, 6, 7, 1000)] == [0, 1, 6, 6, 6]


def test_what_all_tasks_may_return_is_bounded():
    total = sum(returnable(partition, 10**12) for partition in range(100_000))
    assert total == RETURNED_TASKS * RETURNED_BYTES <= 64 * 1024 * 1024
