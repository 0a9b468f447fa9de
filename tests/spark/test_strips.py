"""Ranges of parts become parts that lie side by side, with every row once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.spark.workbench import SCHEMA, SHARD, bench

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.parts import parquet
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.part import PLACE_MAX
from strandline.parts.ranges import deepest
from strandline.parts.rows import check_rows
from strandline.spark.placing import Placing, placings
from strandline.spark.strips import put_strips


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1024)


def put(made, keys, *, time=0, untimed=True):
    """One part for each list of keys, as each flush of a task would put it."""
    parts = []
    for each in keys:
        table = pa.table({"k": pa.array(each, pa.int64()), "v": [f"row {k}" for k in each]})
        checked = check_rows(table, SCHEMA, lower=time, upper=Frontier(time + 1))
        parts += made.put_updates(checked.updates, untimed=untimed, hashes=checked.hashes)
    return parts


def content(made, parts):
    found = []
    for part in parts:
        table = decode_part(made.blob.get(part.key), part, SCHEMA, owner=Owner(SHARD, part.key))
        found += table.select(["k", "v", "_time", "_diff"]).to_pylist()
    return sorted(found, key=lambda row: (row["k"], row["_time"]))


def total(parts):
    return sum((part.total for part in parts), Digest.ZERO)


def placed(made, told):
    return [part for each in told for part in put_strips(made, each).parts]


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("untimed", [True, False])
def test_parts_that_lay_over_each_other_lie_side_by_side(untimed):
    made = bench()
    keys = np.random.default_rng(1).permutation(30_000).reshape(5, -1).tolist()
    first = put(made, keys, untimed=untimed)
    assert deepest([(part.place_lo, part.place_hi) for part in first])[1] == 5
    told = placings(first, 4_000_000, 2, range_bytes=400_000)
    after = placed(made, told)
    assert len(after) == sum(len(each.ranges) for each in told) > 5
    assert deepest([(part.place_lo, part.place_hi) for part in after])[1] == 1
    assert content(made, after) == content(made, first)
    assert total(after) == total(first)
    assert {part.untimed for part in after} == {untimed}
    assert all(part.inserts and part.footer and part.stats for part in after)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(-40, 40), min_size=1, max_size=60), min_size=1, max_size=5),
    st.lists(st.integers(0, PLACE_MAX - 1), max_size=6, unique=True),
)
def test_every_row_goes_over_as_often_as_it_came_however_places_are_divided(keys, borders):
    made = bench()
    first = put(made, keys)
    lasts = [*sorted(borders), PLACE_MAX]
    ranges = tuple(zip([0, *(each + 1 for each in lasts[:-1])], lasts, strict=True))
    after = placed(made, [Placing(tuple(first), ranges)])
    assert content(made, after) == content(made, first)
    assert total(after) == total(first)


def test_a_key_with_too_many_rows_becomes_several_parts_instead_of_one_in_memory():
    made = bench()
    first = put(made, [[7] * 2_000] * 6)
    size = 2_000 * 40
    after = placed(made, [Placing(tuple(first), ((0, PLACE_MAX),), size)])
    assert len(after) > 1
    assert sum(part.rows for part in after) == 12_000
    assert total(after) == total(first)


def test_a_part_that_is_gone_or_damaged_is_named():
    made = bench()
    (part,) = put(made, [[1, 2, 3]])
    told = Placing((part,), ((0, PLACE_MAX),))
    made.blob.delete(part.key)
    with pytest.raises(CorruptionError, match=part.key):
        put_strips(made, told)
    made.blob.put(part.key, b"\0" * part.size)
    with pytest.raises(CorruptionError, match=part.key):
        put_strips(made, told)


def test_an_attempt_that_is_repeated_puts_the_same_rows_under_other_names():
    made = bench()
    first = put(made, [list(range(500)), list(range(250, 750))])
    told = Placing(tuple(first), ((0, PLACE_MAX // 2), (PLACE_MAX // 2 + 1, PLACE_MAX)))
    lost, kept = put_strips(made, told).parts, put_strips(made, told).parts
    assert {part.key for part in lost}.isdisjoint(part.key for part in kept)
    assert [part.digest for part in lost] == [part.digest for part in kept]
    assert content(made, kept) == content(made, first)
