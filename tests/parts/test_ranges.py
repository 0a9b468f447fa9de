"""Ranges of places: nested or apart, and counted right."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from strandline.parts import ranges
from strandline.parts.part import PLACE_MAX

PLACES = st.integers(0, PLACE_MAX)
SPANS = st.tuples(PLACES, PLACES).map(lambda pair: (min(pair), max(pair)))


@given(SPANS)
def test_a_hull_is_the_smallest_range_around(span):
    hull = ranges.hull(*span)
    first, last = ranges.places_in(hull)
    assert first <= span[0] <= span[1] <= last
    if hull[0] < 64:
        middle = ranges.borders(hull, 1)[0]
        assert span[0] < middle <= span[1]


@given(SPANS, SPANS)
def test_two_hulls_are_nested_or_apart(one, other):
    a, b = ranges.hull(*one), ranges.hull(*other)
    (a_lo, a_hi), (b_lo, b_hi) = ranges.places_in(a), ranges.places_in(b)
    apart = a_hi < b_lo or b_hi < a_lo
    assert apart == (not ranges.within(a, b) and not ranges.within(b, a))


@given(SPANS, st.integers(0, 5))
def test_borders_cut_a_range_into_equal_pieces(span, halvings):
    hull = ranges.hull(*span)
    borders = ranges.borders(hull, halvings)
    first, last = ranges.places_in(hull)
    edges = [first, *borders, last + 1]
    widths = {b - a for a, b in pairwise(edges)}
    assert len(widths) == 1
    assert len(borders) == 2 ** min(halvings, 64 - hull[0]) - 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), max_size=12))
def test_the_deepest_place_is_found(spans):
    spans = [tuple(span) for span in spans]
    counts = {place: sum(lo <= place <= hi for lo, hi in spans) for place in range(31)}
    place, depth = ranges.deepest(spans)
    assert depth == max(counts.values())
    assert counts[place] == depth
