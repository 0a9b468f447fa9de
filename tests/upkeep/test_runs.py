"""Which parts count as one run, and which runs are merged."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from strandline.model.digest import Digest
from strandline.parts import ranges
from strandline.parts.part import PLACE_MAX, Part
from strandline.upkeep.runs import are_merged, lightest, most_over_a_place, paired
from strandline.upkeep.terrain import Lying
from strandline.upkeep.units import RESIDUE, Policy

ZERO = Digest.ZERO.pack()


def part(size=10, *, inserts=False, base=False, level=1, place=(0, PLACE_MAX)):
    return Part("p", size, 0, 1, ZERO, 0, 0, base, level, *place, 1, inserts=inserts)


def lying(*parts):
    return [Lying(n, each, each.size, ranges.WHOLE) for n, each in enumerate(parts)]


def test_the_heaviest_of_each_kind_are_one_run_and_the_lightest_come_first():
    inserts = [part(size, inserts=True) for size in (5, 70)]
    others = [part(size) for size in (60, 3, 4)]
    runs = [[each.bulk for each in run] for run in paired(lying(*inserts, *others))]
    assert [sorted(run) for run in runs] == [[3], [4, 5], [60, 70]]


def test_base_parts_are_a_kind_of_their_own_whoever_wrote_them():
    old, new = part(9, base=True), part(8, base=True, inserts=True)
    runs = [[each.bulk for each in run] for run in paired(lying(old, new, part(7, inserts=True)))]
    assert [sorted(run) for run in runs] == [[8], [7, 9]]


@given(
    inserts=st.lists(st.integers(1, 1000), max_size=20),
    others=st.lists(st.integers(1, 1000), max_size=20),
    unit_bytes=st.integers(1, 5000),
)
def test_a_merge_always_makes_room(inserts, others, unit_bytes):
    parts = [part(s, inserts=True) for s in inserts] + [part(s) for s in others]
    runs = paired(lying(*parts))
    assert len(runs) == max(len(inserts), len(others))
    weights = [sum(each.weight for each in run) for run in runs]
    assert weights == sorted(weights)
    chosen = lightest(runs, len(runs), Policy(unit_bytes=unit_bytes))
    if not chosen:
        return
    assert sum(each.part.size for each in chosen) <= unit_bytes
    taken = sum(each.part.inserts for each in chosen), sum(not e.part.inserts for e in chosen)
    # All that is merged becomes one part of each kind, at most.
    left = [len(all_) - gone + 1 for all_, gone in zip((inserts, others), taken, strict=True)]
    assert max(left) < len(runs)


@pytest.mark.parametrize(
    ("deltas", "merged"),
    [
        ([], True),
        ([part(level=0)], True),
        ([part(inserts=True), part()], True),
        ([part(inserts=True), part(level=RESIDUE)], True),
        ([part(inserts=True, level=0), part()], False),
        ([part(inserts=True), part(inserts=True)], False),
        ([part(), part()], False),
        ([part(place=(0, 5)), part(place=(6, 9)), part(inserts=True, place=(5, 6))], True),
    ],
)
def test_a_run_is_not_merged_again(deltas, merged):
    assert are_merged(deltas) is merged


def test_parts_are_counted_where_most_of_them_lie():
    assert most_over_a_place([part(place=(0, 5)), part(place=(5, 9)), part(place=(6, 7))]) == 2
    assert most_over_a_place([]) == 0
