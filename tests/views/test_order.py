"""Views in an order in which each comes after what it reads."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from strandline.views.order import cycle_of, in_order

NAMES = "abcdef"
GRAPHS = st.fixed_dictionaries(
    {name: st.lists(st.sampled_from(NAMES + "xyz"), max_size=3).map(tuple) for name in NAMES}
)


@given(GRAPHS)
def test_each_comes_after_what_it_reads_or_waits_in_a_circle(reads):
    placed, stuck = in_order(reads)
    assert sorted([*placed, *stuck]) == list(NAMES)
    for at, name in enumerate(placed):
        assert all(each in placed[:at] or each not in NAMES for each in reads[name])
    if stuck:
        circle = cycle_of(stuck, reads)
        assert circle[0] == circle[-1]
        assert all(b in reads[a] for a, b in pairwise(circle))


@given(GRAPHS)
def test_the_order_of_declaration_has_no_meaning(reads):
    backwards = dict(reversed(reads.items()))
    assert in_order(reads) == in_order(backwards)
