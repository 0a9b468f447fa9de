"""Statistics of many parts as columns."""

import pyarrow as pa
import pytest

from strandline.parts.prune import Known, stats_rows, stats_table
from strandline.parts.stats import Range, Stats

FIELDS = [(1, pa.int64()), (2, pa.string()), (3, pa.list_(pa.int8()))]
KNOWN = [
    Stats(10, {1: Range("i", 1, 5, 0), 2: Range("s", b"a", b"b", 10)}),
    Stats(10, {1: Range("i", 3, 3, 0)}),
    None,
    Stats(10, {1: Range("i", None, 9, 2)}),
]
ROWS = [10, 10, 10, 10]


def test_statistics_become_columns_and_come_back():
    table = stats_table(KNOWN, ROWS, FIELDS)
    assert table["1.low"].to_pylist() == [1, 3, None, None]
    assert table["2.high"].to_pylist() == ["b", None, None, None]
    assert "3.low" not in table.column_names
    assert stats_rows(table) == [known or Stats(10, {}) for known in KNOWN]


@pytest.mark.parametrize(
    ("question", "value", "expected"),
    [
        ("equal", 3, [True, True, True, True]),
        ("equal", 6, [False, False, True, True]),
        ("unequal", 3, [True, False, True, True]),
        ("below", 1, [False, False, True, True]),
        ("at_most", 1, [True, False, True, True]),
        ("above", 5, [False, False, True, True]),
        ("at_least", 9, [False, False, True, True]),
        ("at_least", 10, [False, False, True, False]),
    ],
)
def test_only_what_is_proven_is_ruled_out(question: str, value: int, expected: list[bool]):
    known = Known(stats_table(KNOWN, ROWS, FIELDS), 1, pa.int64())
    assert getattr(known, question)(pa.scalar(value, pa.int64())).tolist() == expected


def test_counts_of_nulls_rule_out():
    table = stats_table(KNOWN, ROWS, FIELDS)
    assert Known(table, 1, pa.int64()).is_null().tolist() == [False, False, True, True]
    all_null = Known(table, 2, pa.string())
    assert all_null.is_not_null().tolist() == [False, True, True, True]
    assert all_null.equal(pa.scalar("a")).tolist() == [False, True, True, True]


def test_statistics_of_another_type_are_cast_or_ignored():
    table = stats_table(KNOWN, ROWS, FIELDS)
    wider = Known(table, 2, pa.large_string())
    assert wider.above(pa.scalar("b", pa.large_string())).tolist() == [False, True, True, True]
    other = Known(table, 2, pa.int64())
    assert other.equal(pa.scalar(3, pa.int64())).tolist() == [False, True, True, True]


def test_an_unlisted_column_may_hold_anything():
    known = Known(stats_table(KNOWN, ROWS, FIELDS), 99, pa.int64())
    assert known.equal(pa.scalar(1)).all()
    assert known.is_null().all()


def test_bounds_written_in_different_units_stand_side_by_side():
    stats = [Stats(1, {1: Range("t:ms", 5, 5, 0)}), Stats(1, {1: Range("t:us", 7000, 7000, 0)})]
    table = stats_table(stats, [1, 1], [(1, pa.timestamp("us"))])
    assert table["1.low"].cast(pa.int64()).to_pylist() == [5000, 7000]
