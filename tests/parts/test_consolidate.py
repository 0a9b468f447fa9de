"""What updates add up to."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import UsageError
from strandline.parts.consolidate import Overlay, as_of, as_updates, consolidate, expand, overlay

NAN = float("nan")
pl.DataFrame({"x": [1]}).group_by("x").sum()  # Its first use is slow, which no example is to pay.
KEYED = pa.schema([("k", pa.int64()), ("v", pa.string())])


def _canonical(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(_canonical(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, _canonical(each)) for name, each in value.items())
    return value


def _counted(updates: pa.Table) -> Counter:
    found: Counter = Counter()
    for row in updates.to_pylist():
        diff = row.pop("_diff", 1)
        found[tuple(_canonical(value) for value in row.values())] += diff
    return Counter({row: diff for row, diff in found.items() if diff})


VALUES = [
    pytest.param(pa.int64(), [1, 2, None], id="int64"),
    pytest.param(pa.bool_(), [True, False, None], id="bool"),
    pytest.param(pa.float64(), [0.0, -0.0, NAN, 1.5, None], id="float64"),
    pytest.param(pa.float32(), [0.0, -0.0, NAN, 1.5, None], id="float32"),
    pytest.param(pa.string(), ["", "a", "b", None], id="string"),
    pytest.param(pa.large_string(), ["", "a", None], id="large_string"),
    pytest.param(pa.binary(), [b"", b"a", None], id="binary"),
    pytest.param(pa.binary(2), [b"ab", b"cd", None], id="fixed binary"),
    pytest.param(pa.decimal128(9, 2), [Decimal("1.10"), Decimal(-2), None], id="decimal128"),
    pytest.param(pa.decimal256(50, 2), [Decimal("1.10"), Decimal(-2), None], id="decimal256"),
    pytest.param(pa.date32(), [0, 1, None], id="date32"),
    pytest.param(pa.time32("ms"), [0, 1, None], id="time32"),
    pytest.param(pa.time64("ns"), [0, 1000, None], id="time64"),
    pytest.param(pa.timestamp("us", "+02:00"), [0, 1, None], id="timestamp with offset"),
    pytest.param(pa.timestamp("ns"), [0, 1000, None], id="timestamp"),
    pytest.param(pa.duration("ms"), [0, 1, None], id="duration"),
    pytest.param(pa.list_(pa.float64()), [[0.0], [-0.0], [NAN], [], [None], None], id="list"),
    pytest.param(pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": None}, None], id="struct"),
    pytest.param(pa.map_(pa.string(), pa.int8()), [[("a", 1)], [], None], id="map"),
]


@pytest.mark.parametrize(("kind", "values"), VALUES)
@settings(deadline=None)
@given(st.data())
def test_equal_rows_become_one_with_the_sum_of_their_diffs(kind, values, data):
    rows = data.draw(
        st.lists(st.tuples(st.sampled_from(range(len(values))), st.integers(-2, 2)), max_size=12)
    )
    updates = pa.table(
        {
            "x": pa.array([values[at] for at, _ in rows], kind),
            "_diff": pa.array([diff for _, diff in rows], pa.int64()),
        }
    )
    found = consolidate(updates)
    assert found.schema == updates.schema
    assert _counted(found) == _counted(updates)
    assert found.num_rows == len(_counted(updates))
    assert 0 not in found["_diff"].to_pylist()


def test_rows_at_different_times_stay_apart():
    updates = pa.table({"x": [1, 1, 1], "_time": [3, 4, 3], "_diff": [1, -1, 1]})
    assert consolidate(updates).to_pylist() == [
        {"x": 1, "_time": 3, "_diff": 2},
        {"x": 1, "_time": 4, "_diff": -1},
    ]


def test_the_collection_at_a_time_is_the_sum_of_what_came_before():
    updates = pa.table({"x": [1, 2, 1, 3], "_time": [3, 4, 5, 6], "_diff": [1, 1, -1, 1]})
    assert as_of(updates, 4).to_pylist() == [
        {"x": 1, "_time": 4, "_diff": 1},
        {"x": 2, "_time": 4, "_diff": 1},
    ]
    assert as_of(updates, 5).to_pylist() == [{"x": 2, "_time": 5, "_diff": 1}]


def test_rows_without_columns_are_counted():
    assert consolidate(pa.table({"_diff": [1, 1, -1]})).to_pylist() == [{"_diff": 1}]
    assert consolidate(pa.table({"_diff": pa.array([], pa.int64())})).num_rows == 0


def _keyed(rows: list[tuple[int | None, str | None]]) -> pa.Table:
    keys, values = [k for k, _ in rows], [v for _, v in rows]
    return pa.table({"k": keys, "v": values}, schema=KEYED)


def _tail(updates: list[tuple[int | None, str | None, int]]) -> pa.Table:
    table = _keyed([(k, v) for k, v, _ in updates])
    return table.append_column("_diff", pa.array([d for *_, d in updates], pa.int64()))


BASE = [(1, "a"), (2, "b"), (2, "b"), (3, None)]


@pytest.mark.parametrize("key", [(), ("k",), ("k", "v")])
@pytest.mark.parametrize(
    ("tail", "rows"),
    [
        pytest.param([], BASE, id="no tail"),
        pytest.param([(4, "d", 1)], [*BASE, (4, "d")], id="insertion"),
        pytest.param([(4, "d", 2)], [*BASE, (4, "d"), (4, "d")], id="two at once"),
        pytest.param([(1, "a", -1)], BASE[1:], id="retraction"),
        pytest.param([(1, "a", -1), (1, "z", 1)], [*BASE[1:], (1, "z")], id="change"),
        pytest.param([(2, "b", -1)], [BASE[0], *BASE[2:]], id="one of two equal rows"),
        pytest.param([(3, None, -1)], BASE[:3], id="row with null"),
        pytest.param([(9, "x", 1), (9, "x", -1)], BASE, id="cancels by itself"),
    ],
)
def test_a_tail_over_a_base_gives_the_rows_of_both(key, tail, rows):
    base = [_keyed(BASE[:2]), _keyed(BASE[2:])]
    found = overlay(base, _tail(tail), key)
    assert _counted(expand(found, "shard t")) == _counted(_keyed(rows))


def test_a_base_that_nothing_touches_is_passed_on_as_it_is():
    first, second = _keyed(BASE[:2]), _keyed(BASE[2:])
    found = overlay([first, second], _tail([(3, None, -1), (7, "n", 1)]), ("k",))
    assert found.clean[0] is first
    untouched = overlay([first, second], _tail([(7, "n", 1)]), ("k",))
    assert untouched.clean == (first, second)


def test_more_retractions_than_rows_are_kept_as_updates_and_refused_as_a_table():
    found = overlay([_keyed([(1, "a")])], _tail([(1, "a", -3)]), ("k",))
    assert found.rest.to_pylist() == [{"k": 1, "v": "a", "_diff": -2}]
    with pytest.raises(UsageError, match=r"shard t .*retracted more often.*updates\(\)"):
        expand(found, "shard t")


HUGE = st.sampled_from([-(2**63), -(2**62), -(2**32), -1, 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), HUGE), max_size=6))
def test_sums_are_those_of_whole_numbers_or_an_error_and_never_others(some):
    layout = pa.schema([("k", pa.int64()), ("_diff", pa.int64())])
    updates = pa.Table.from_pylist([{"k": key, "_diff": diff} for key, diff in some], layout)
    sums: Counter = Counter()
    for key, diff in some:
        sums[key] += diff
    if all(-(2**63) <= each < 2**63 for each in sums.values()):
        found = {row["k"]: row["_diff"] for row in consolidate(updates).to_pylist()}
        assert found == {key: each for key, each in sums.items() if each}
    else:
        with pytest.raises(UsageError, match="more than 64 bits"):
            consolidate(updates)


def test_what_has_no_columns_is_summed_as_carefully():
    with pytest.raises(UsageError, match="1 rows add up"):
        consolidate(pa.table({"_diff": [2**62, 2**62]}))


ROWS = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", None]))


@settings(deadline=None)
@given(
    st.lists(ROWS, max_size=8),
    st.lists(st.tuples(ROWS, st.sampled_from([-1, 1])), max_size=8),
    st.sampled_from([(), ("k",)]),
    st.integers(0, 8),
)
def test_an_overlay_adds_up_whatever_the_cut_of_the_base(base, tail, key, cut):
    updates = _tail([(*row, diff) for row, diff in tail])
    found = overlay([_keyed(base[:cut]), _keyed(base[cut:])], updates, key)
    whole = pa.concat_tables([_tail([(*row, 1) for row in base]), updates])
    ones = [as_updates(table, ["k", "v"]).cast(updates.schema) for table in found.clean]
    assert _counted(pa.concat_tables([*ones, found.rest])) == _counted(whole)


def test_a_projection_without_the_key_matches_by_the_columns_that_are_there():
    base = _keyed(BASE).select(["v"])
    found = overlay([base], _tail([(2, "b", -1)]).select(["v", "_diff"]), ("k",))
    assert sorted(map(str, expand(found, "t")["v"].to_pylist())) == ["None", "a", "b"]


def test_nested_rows_are_retracted_too():
    base = pa.table({"x": pa.array([[1.0, NAN], [2.0]])})
    tail = pa.table({"x": pa.array([[1.0, NAN]]), "_diff": [-1]})
    assert expand(overlay([base], tail, ()), "t")["x"].to_pylist() == [[2.0]]


def test_an_empty_collection_has_its_columns():
    empty = overlay([], _tail([]), ("k",))
    assert expand(empty, "t").schema == KEYED
    assert isinstance(empty, Overlay)
