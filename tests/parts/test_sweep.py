"""One pass over many inputs gives the same sums as all of them at once."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import CorruptionError
from strandline.model.schema import Schema
from strandline.parts import sweep as sweeping
from strandline.parts.layout import lay_out, places_of
from strandline.parts.sweep import Source, retracted, settle, sift, split_live, sweep

SCHEMA = Schema.create(pa.schema([("k", pa.int64())]), ("k",))
PLAIN = Schema.create(pa.schema([("k", pa.int64())]))
UPDATES = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 5), st.integers(-2, 2).filter(bool)), max_size=30
)


def table(updates):
    columns = list(zip(*updates, strict=True)) or [(), (), ()]
    return pa.table([pa.array(c, pa.int64()) for c in columns], schema=SCHEMA.updates())


def sums(tables):
    found = Counter()
    for each in tables:
        for row in each.to_pylist():
            found[row["k"], row["_time"]] += row["_diff"]
    return Counter({row: n for row, n in found.items() if n})


@settings(deadline=None)
@given(st.lists(UPDATES, max_size=5), st.integers(1, 4))
def test_slices_have_ever_higher_places_and_miss_nothing(inputs, step):
    sources = []
    for updates in inputs:
        laid = lay_out(table(updates), SCHEMA)
        pieces = [laid.updates.slice(n, step) for n in range(0, len(updates), step)]
        sources.append(Source(laid.span()[0] if updates else 0, iter(pieces)))
    before = sweeping._SLICE_ROWS
    sweeping._SLICE_ROWS = 1
    try:
        slices = list(sweep(sources, SCHEMA))
    finally:
        sweeping._SLICE_ROWS = before
    assert sums(slices) == sums(table(updates) for updates in inputs)
    highest = -1
    for each in slices:
        places = places_of(each, SCHEMA)
        assert int(places.min()) > highest
        highest = int(places.max())


def test_an_input_is_not_read_before_its_first_place_is_reached():
    laid = lay_out(table([(k, 0, 1) for k in range(9)]), SCHEMA)
    read = []

    def tables(first, last):
        read.append(first)
        yield laid.updates.slice(first, last - first)

    places = laid.places
    sources = [Source(int(places[n]), tables(n, n + 3)) for n in (0, 3, 6)]
    before = sweeping._SLICE_ROWS
    sweeping._SLICE_ROWS = 1
    try:
        steps = sweep(sources, SCHEMA)
        next(steps)
    finally:
        sweeping._SLICE_ROWS = before
    assert 6 not in read


def test_many_small_inputs_are_looked_at_once_each_and_not_once_for_each_other(monkeypatch):
    looks = []
    take = sweeping._Cursor.take
    monkeypatch.setattr(
        sweeping._Cursor, "take", lambda self, bound: looks.append(bound) or take(self, bound)
    )
    sources = []
    for k in range(300):
        laid = lay_out(table([(k, 0, 1), (k + 300, 0, 1)]), SCHEMA)
        sources.append(Source(laid.span()[0], iter([laid.updates])))
    assert sum(each.num_rows for each in sweep(sources, SCHEMA)) == 600
    assert len(looks) <= 2 * 300


def test_an_input_out_of_order_is_damage():
    laid = lay_out(table([(k, 0, 1) for k in range(9)]), SCHEMA)
    pieces = [laid.updates.slice(5, 4), laid.updates.slice(0, 5)]
    with pytest.raises(CorruptionError, match="order"):
        list(sweep([Source(0, iter(pieces))], SCHEMA))


@settings(deadline=None)
@given(st.lists(UPDATES, max_size=5))
def test_only_what_a_retraction_names_is_kept_together(inputs):
    tables = [table(updates) for updates in inputs]
    touched = retracted(tables, PLAIN)
    given_out = list(sift(tables, PLAIN, touched))
    assert sums(t for t, _ in given_out) == sums(tables)
    negative = {k for updates in inputs for k, _, diff in updates if diff < 0}
    for each, may_cancel in given_out:
        assert not may_cancel or each is given_out[-1][0]
        assert (set(each["k"].to_pylist()) <= negative) if may_cancel else True
        assert may_cancel or not set(each["k"].to_pylist()) & negative


@settings(deadline=None)
@given(UPDATES, st.integers(0, 6))
def test_live_rows_and_the_rest_are_what_there_was_as_seen_from_since(updates, since):
    settled = settle(table(updates), since)
    live, rest = split_live(settled, since)
    found = sums([rest])
    for row in live.to_pylist():
        found[row["k"], since] += 1
    moved = [(k, max(time, since), diff) for k, time, diff in updates]
    assert Counter({r: n for r, n in found.items() if n}) == sums([table(moved)])
    assert all(
        t > since or d < 0
        for t, d in zip(rest["_time"].to_pylist(), rest["_diff"].to_pylist(), strict=True)
    )
