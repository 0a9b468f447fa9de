"""Where updates lie."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from strandline.model.rowhash import PLACE_SALT, row_base, salted
from strandline.model.schema import Schema
from strandline.parts import layout
from strandline.parts.layout import Laid, cut, lay_out, overlapping, places_of
from strandline.parts.part import PLACE_MAX

COLUMNS = pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
KEYED = Schema.create(COLUMNS, ("g", "k"))
UNKEYED = Schema.create(COLUMNS)


def updates(keys: list[int], times: list[int] | None = None) -> pa.Table:
    count = len(keys)
    columns = {
        "k": pa.array(keys, pa.int64()),
        "g": pa.array([f"g{k % 2}" for k in keys]),
        "v": pa.array(range(count), pa.int64()),
        "_time": pa.array(times if times is not None else [1] * count, pa.int64()),
        "_diff": pa.array([1] * count, pa.int64()),
    }
    return pa.table(columns, schema=KEYED.updates())


def test_a_place_is_the_hash_of_the_key_under_its_own_salt():
    table = updates([1, 2, 3])
    expected = salted(row_base(table.select(["g", "k"]), [2, 1]), PLACE_SALT)
    found = places_of(table, KEYED)
    assert found is not None
    assert found.tolist() == expected.tolist()
    assert places_of(table, UNKEYED) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_updates_are_in_order_of_place_key_and_time(pairs: list[tuple[int, int]]):
    table = updates([k for k, _ in pairs], [t for _, t in pairs])
    laid = lay_out(table, KEYED)
    assert laid.places is not None
    found = laid.updates.to_pylist()
    order = [
        (place, row["g"], row["k"], row["_time"])
        for place, row in zip(laid.places.tolist(), found, strict=True)
    ]
    assert order == sorted(order)
    if laid.order is None:
        assert laid.updates is table
    else:
        assert laid.updates.equals(table.take(pa.array(laid.order)))
    assert sorted(row["v"] for row in found) == list(range(len(pairs)))


def test_keys_that_share_a_place_do_not_interleave(monkeypatch: pytest.MonkeyPatch):
    def crowded(table: pa.Table, _schema: Schema) -> np.ndarray:
        return np.full(table.num_rows, 7, np.uint64)

    monkeypatch.setattr(layout, "places_of", crowded)
    laid = lay_out(updates([3, 1, 3, 1], [1, 1, 2, 2]), KEYED)
    rows = laid.updates.to_pylist()
    assert [(r["k"], r["_time"]) for r in rows] == [(1, 1), (1, 2), (3, 1), (3, 2)]


def test_base_rows_have_no_time_and_are_laid_out_all_the_same():
    laid = lay_out(updates([5, 1, 4]).select(COLUMNS.names), KEYED)
    assert laid.places is not None
    assert (laid.places[1:] >= laid.places[:-1]).all()


def test_what_is_in_order_stays_as_it_is():
    once = lay_out(updates(list(range(20))), KEYED)
    again = lay_out(once.updates, KEYED)
    assert again.updates is once.updates
    assert again.order is None


def test_without_a_key_rows_stay_and_cover_every_place():
    laid = lay_out(updates([3, 1, 2]), UNKEYED)
    assert laid.updates["k"].to_pylist() == [3, 1, 2]
    assert laid.span() == (0, PLACE_MAX)


@pytest.mark.parametrize("schema", [KEYED, UNKEYED])
@pytest.mark.parametrize(("rows", "rows_max"), [(0, 5), (1, 5), (100, 7), (100, 1), (9, 8), (7, 7)])
def test_pieces_hold_everything_once_and_never_divide_a_place(
    schema: Schema, rows: int, rows_max: int
):
    laid = lay_out(updates([n // 3 for n in range(rows)]), schema)
    pieces = list(cut(laid, rows_max=rows_max, bytes_max=1 << 30))
    assert sum(piece.updates.num_rows for piece in pieces) == rows
    if pieces:
        assert pa.concat_tables([p.updates for p in pieces]).equals(laid.updates)
    assert all(piece.updates.num_rows > 0 for piece in pieces)
    if schema is KEYED:
        spans = [piece.span() for piece in pieces]
        assert all(one[1] < other[0] for one, other in pairwise(spans))
        assert all(piece.updates.num_rows <= rows_max * 5 // 4 + 3 for piece in pieces)


def test_pieces_are_cut_by_bytes_too():
    laid = lay_out(updates(list(range(1000))), KEYED)
    pieces = list(cut(laid, rows_max=1 << 30, bytes_max=laid.updates.nbytes // 4))
    assert 4 <= len(pieces) <= 5


def test_parts_overlap_a_range_of_places_with_both_ends_included():
    lo = np.array([0, 10, 20, 0], np.uint64)
    hi = np.array([9, 19, 29, PLACE_MAX], np.uint64)
    cases = {
        (9, 9): [True, False, False, True],
        (9, 10): [True, True, False, True],
        (25, PLACE_MAX): [False, False, True, True],
        (30, 40): [False, False, False, True],
    }
    for (first, last), expected in cases.items():
        assert overlapping(lo, hi, lo=first, hi=last).tolist() == expected


def test_what_lies_between_two_places_has_both_of_them():
    laid = Laid(pa.table({"k": [1, 2, 3, 4]}), np.array([10, 20, 20, 2**64 - 1], np.uint64))
    assert laid.between(10, 20).updates["k"].to_pylist() == [1, 2, 3]
    assert laid.between(11, 19).updates.num_rows == 0
    assert laid.between(20, 2**64 - 1).places.tolist() == [20, 20, 2**64 - 1]
    assert Laid(laid.updates, None).between(1, 2).updates.num_rows == 4


def test_a_slice_keeps_places_and_order_together():
    laid = lay_out(updates([4, 3, 2, 1]), KEYED)
    piece = laid.slice(1, 3)
    assert isinstance(piece, Laid)
    assert laid.places is not None
    assert piece.span() == (int(laid.places[1]), int(laid.places[2]))


@given(st.lists(st.integers(0, 6), max_size=40))
def test_updates_of_one_place_stay_in_the_order_in_which_they_came(keys: list[int]):
    rows = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(len(keys)), pa.int64())})
    laid = lay_out(rows, Schema.create(rows.schema, ("k",)))
    places = places_of(rows, Schema.create(rows.schema, ("k",)))
    assert places is not None
    assert laid.updates["n"].to_pylist() == np.argsort(places, kind="stable").tolist()
