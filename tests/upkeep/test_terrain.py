"""Parts as columns: the same as looking at each part by itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.parts import ranges
from strandline.parts.chunk import PartTable
from strandline.parts.part import PLACE_MAX, Part
from strandline.upkeep.terrain import Nodes, Terrain, hull_depths
from strandline.upkeep.units import RESIDUE, foldable

ZERO = Digest.ZERO.pack()
SCHEMA = Schema.create(pa.schema([("k", pa.int64())]), ("k",))
PLACES = st.integers(0, PLACE_MAX) | st.integers(0, 64).map(lambda bits: 2**bits - (bits == 64))
NEAR = st.integers(0, 15).map(lambda place: place << 60)


@st.composite
def parts(draw):
    found = []
    for number in range(draw(st.integers(0, 12))):
        lo, hi = sorted(draw(st.tuples(PLACES | NEAR, PLACES | NEAR)))
        t_min, t_max = sorted(draw(st.tuples(st.integers(0, 9), st.integers(0, 9))))
        size, rows = draw(st.integers(1, 99)), draw(st.integers(1, 9))
        level = draw(st.sampled_from([0, 1, RESIDUE]))
        base = draw(st.booleans())
        key = f"s/w/{number}"
        found.append(Part(key, size, 0, rows, ZERO, t_min, t_max, base, level, lo, hi, 1))
    return found


def terrain(listed, *, range_max=100, row_bytes=7):
    return Terrain([(0, listed)], row_bytes=row_bytes, range_max=range_max)


def expected_range(listed, own, range_max):
    """The widest range around a part in which all parts together are small, one by one."""
    hull = ranges.hull(own.place_lo, own.place_hi)
    for depth in range(hull[0]):
        node = ranges.above(hull, depth)
        inside = [p for p in listed if ranges.within(ranges.hull(p.place_lo, p.place_hi), node)]
        if sum(max(p.size, p.rows * 7) for p in inside) <= range_max:
            return node
    return hull


@given(parts(), st.integers(1, 400))
def test_each_part_lies_in_the_widest_range_that_is_small(listed, range_max):
    found = terrain(listed, range_max=range_max).lying(range(len(listed)))
    assert [each.part for each in found] == listed
    assert [each.at for each in found] == [expected_range(listed, p, range_max) for p in listed]
    assert [each.bulk for each in found] == [max(p.size, p.rows * 7) for p in listed]
    assert all(each.weight == each.bulk * 2 ** each.at[0] for each in found)


@given(parts(), st.integers(0, 10))
def test_the_share_that_since_has_passed_is_that_of_each_part(listed, since):
    assert terrain(listed).passed(since).tolist() == [foldable(part, since) for part in listed]


@given(st.tuples(PLACES, PLACES).map(sorted))
def test_the_depth_of_a_hull_is_exact(span):
    depths = hull_depths(np.array([span[0]], np.uint64), np.array([span[1]], np.uint64))
    assert depths.tolist() == [ranges.hull(*span)[0]]


@given(parts(), parts(), parts())
def test_lists_and_tables_are_the_same(first, second, third):
    tables = [PartTable.of(listed, SCHEMA) for listed in (first, second)]
    mixed = Terrain([(0, tables[0]), (3, third), (5, tables[1])], row_bytes=7, range_max=100)
    every = [*first, *third, *second]
    plain = terrain(every)
    assert [each.part for each in mixed.lying(range(len(mixed)))] == every
    assert [e.at for e in mixed.lying(range(len(mixed)))] == [
        e.at for e in plain.lying(range(len(plain)))
    ]
    assert mixed.home.tolist() == [0] * len(first) + [3] * len(third) + [5] * len(second)


@given(parts())
def test_nodes_are_found_around_and_within_each_part(listed):
    ground = terrain(listed)
    lying = ground.lying(range(len(listed)))
    nodes = Nodes(ground, ground.base)
    bases = [each.at for each in lying if each.part.base]
    numbers = np.arange(len(listed))
    around = nodes.around(numbers)
    within = nodes.any_within(numbers)
    for each in lying:
        outer = [at[0] for at in bases if ranges.within(each.at, at)]
        assert around[each.number] == max(outer, default=-1)
        assert within[each.number] == any(ranges.within(at, each.at) for at in bases)
        node = (each.at[0], ranges.places_in(each.at)[0])
        assert nodes.members(node).tolist() == [
            other.number for other in lying if other.part.base and other.at == each.at
        ]
        assert ground.within(each.at).tolist() == [
            ranges.within(other.at, each.at) for other in lying
        ]
        assert ground.touching(each.part.place_lo, each.part.place_hi).tolist() == [
            ranges.overlap(other.part, each.part) for other in lying
        ]


@given(parts(), st.integers(1, 4))
def test_crowded_are_ranges_with_many_bases_or_with_two_over_one_place(listed, small):
    ground = terrain(listed)
    bases = [each for each in ground.lying(range(len(listed))) if each.part.base]
    expected = set()
    for each in bases:
        own = sorted((e.part for e in bases if e.at == each.at), key=lambda part: part.place_lo)
        pairs = pairwise(own)
        if len(own) > small or any(ranges.overlap(one, other) for one, other in pairs):
            expected.add((each.at[0], ranges.places_in(each.at)[0]))
    assert Nodes(ground, ground.base).crowded(small) == expected


@pytest.mark.parametrize(
    ("beside", "at", "reach"),
    [
        ([], ranges.WHOLE, (0, PLACE_MAX)),
        ([Part("big", 1000, 0, 1, ZERO, 0, 0, False, 0, 0, PLACE_MAX, 1)], (1, 0), (0, 2**63 - 1)),
    ],
)
def test_small_parts_count_as_wide_as_what_could_be_one_part_with_them(beside, at, reach):
    tiny = Part("tiny", 10, 0, 1, ZERO, 0, 0, False, 0, 5, 5, 1)
    ground = terrain([tiny, *beside])
    assert ground.lying([0])[0].at == at
    lo, hi = ground.reach(100)
    assert (int(lo[0]), int(hi[0])) == reach
    lo, hi = ground.reach(1)
    assert (int(lo[0]), int(hi[0])) == (5, 5)
