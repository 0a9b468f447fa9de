"""Columns that are compared: equal exactly where their values are, whatever their type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.errors import UsageError
from strandline.model.equality import (
    _Threads,
    comparable,
    frame_of,
    leave_threads_behind,
    names_of,
)

NAN = float("nan")
MOMENTS = [dt.datetime(2024, 1, n, tzinfo=dt.UTC) for n in (1, 2)]
DIFFERENT: list[tuple[pa.DataType, list[object]]] = [
    (pa.int8(), [0, 1]),
    (pa.float16(), [0.5, NAN]),
    (pa.float64(), [0.0, NAN]),
    (pa.decimal256(40, 2), [Decimal("1.00"), Decimal("1.01")]),
    (pa.string(), ["", "a"]),
    (pa.binary(2), [b"ab", b"cd"]),
    (pa.date32(), [dt.date(2024, 1, 1), dt.date(2024, 1, 2)]),
    (pa.time32("ms"), [dt.time(1), dt.time(2)]),
    (pa.timestamp("us", "Europe/Paris"), MOMENTS),
    (pa.duration("us"), [dt.timedelta(0), dt.timedelta(1)]),
    (pa.dictionary(pa.int8(), pa.string()), ["x", "y"]),
    (pa.list_(pa.int64()), [[1], []]),
    (pa.struct([("a", pa.float64())]), [{"a": NAN}, {"a": None}]),
    (pa.map_(pa.string(), pa.int64()), [[("k", 1)], [("k", 2)]]),
]


@pytest.mark.parametrize(("kind", "values"), DIFFERENT, ids=lambda each: str(each)[:20])
def test_equal_values_and_no_others_are_in_one_group(
    kind: pa.DataType, values: list[object]
) -> None:
    three = [*values, None]
    rows = pa.table({"x": pa.chunked_array([pa.array(three, kind), pa.array(three, kind)])})
    groups = frame_of(rows).group_by(names_of(rows)).len()
    assert groups["len"].to_list() == [2, 2, 2]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_zeros_are_equal_whatever_their_sign(kind: pa.DataType) -> None:
    rows = pa.table({"x": pa.array([0.0, -0.0], kind)})
    assert frame_of(rows).group_by(names_of(rows)).len()["len"].to_list() == [2]


def test_columns_are_told_apart_whatever_they_are_called() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["position", "position"])
    frame = frame_of(rows, position=pa.chunked_array([[7]]))
    assert frame.to_dicts() == [{"c0": 1, "c1": 2, "position": 7}]


def test_a_type_that_is_compared_as_it_is_stays() -> None:
    column = pa.chunked_array([[1, 2]])
    assert comparable(column) is column


def test_a_forked_child_of_one_that_has_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"x": [1, 1]})
    monkeypatch.setattr(_Threads, "begun", False)
    monkeypatch.setattr(_Threads, "left_behind", False)
    leave_threads_behind()
    assert frame_of(rows).height == 2
    leave_threads_behind()
    for _ in range(2):  # Its own children are no better off.
        with pytest.raises(UsageError, match="'spawn'"):
            frame_of(rows)
        leave_threads_behind()
