"""How finely a unit is cut, and which stretches tasks merge: by tables of cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from strandline.model.digest import Digest
from strandline.parts import ranges
from strandline.parts.part import PLACE_MAX, Part
from strandline.upkeep.spans import HALVINGS_MAX, halvings, halvings_for, spans
from strandline.upkeep.units import MIB, Policy, Unit

ZERO = Digest.ZERO.pack()
POLICY = Policy()


def unit(size, count, place=(0, PLACE_MAX)):
    part = Part("p", size, 0, 1, ZERO, 0, 0, False, 0, *place, 1)
    return Unit("full", (part,), halvings=count)


@pytest.mark.parametrize(
    ("mib", "expected"), [(0, 0), (256, 0), (257, 1), (512, 1), (513, 2), (1024, 2), (10**9, 8)]
)
def test_a_range_is_halved_until_its_pieces_are_small_enough(mib, expected):
    assert halvings(mib * MIB, POLICY) == expected


@pytest.mark.parametrize(
    ("mib", "slots", "expected"),
    [
        # Nobody waits, or there is too little to share.
        (1000, 0, 0),
        (0, 8, 0),
        (127, 8, 0),
        # A piece keeps a quarter of what a range may have.
        (128, 8, 1),
        (255, 8, 1),
        (256, 8, 2),
        (512, 8, 3),
        # As many pieces as two for each slot.
        (1000, 1, 1),
        (1000, 2, 2),
        (1000, 3, 3),
        (1000, 4, 3),
        (10**7, 8, 4),
        (10**7, 1000, HALVINGS_MAX),
    ],
)
def test_it_is_halved_further_for_tasks_to_share_it(mib, slots, expected):
    assert halvings_for(mib * MIB, replace(POLICY, slots=slots)) == expected


@pytest.mark.parametrize(
    ("mib", "count", "slots", "least_mib", "expected"),
    [
        (1000, 0, 8, 16, 1),
        (1000, 1, 8, 16, 2),
        (1000, 3, 8, 16, 8),
        (1000, 3, 2, 16, 4),
        (1000, 3, 0, 16, 1),
        (40, 3, 8, 16, 2),
        (10, 3, 8, 16, 1),
        # A part that is cut where many bases lie: a task has several of them.
        (1000, 8, 2, 16, 4),
        (1000, 8, 3, 16, 6),
    ],
)
def test_a_unit_has_a_task_for_each_piece_but_no_more_than_it_is_worth(
    mib, count, slots, least_mib, expected
):
    assert len(spans(unit(mib * MIB, count), slots, least_mib * MIB)) == expected


def test_rows_without_parts_are_one_stretch():
    assert spans(Unit("flush", inline=(1, 2)), 8, 1) == [(0, PLACE_MAX)]


@given(
    places=st.tuples(st.integers(0, PLACE_MAX), st.integers(0, PLACE_MAX)).map(sorted),
    count=st.integers(0, HALVINGS_MAX),
    slots=st.integers(0, 200),
)
def test_stretches_cover_all_places_once_and_end_where_parts_end(places, count, slots):
    wanted = unit(10**9, count, tuple(places))
    found = spans(wanted, slots, 1)
    assert found[0][0] == 0
    assert found[-1][1] == PLACE_MAX
    assert all(hi + 1 == lo for (_, hi), (lo, _) in pairwise(found))
    borders = ranges.borders(ranges.hull(*places), count)
    assert {lo for lo, _ in found[1:]} <= set(borders)
