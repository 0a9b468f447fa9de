"""What callers give, and what is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from strandline.errors import BoundsError, SchemaError
from strandline.model.digest import Digest
from strandline.model.frontier import TIME_MAX, Frontier
from strandline.model.rowhash import row_base
from strandline.model.schema import Schema
from strandline.parts.rows import DIFF_MAX, Checked, check_interval, check_rows, restamped

SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))
ROWS = pa.table({"k": [1, 2, 3], "v": ["a", None, "c"]})


def check(rows: object, lower: int = 5, upper: int | None = 6) -> Checked:
    return check_rows(rows, SCHEMA, lower=lower, upper=Frontier(upper))


def updates(times: list[int | None], diffs: list[int | None]) -> pa.Table:
    count = len(times)
    return pa.table(
        {
            "k": pa.array(range(count), pa.int64()),
            "v": pa.array(["x"] * count),
            "_time": pa.array(times, pa.int64()),
            "_diff": pa.array(diffs, pa.int64()),
        }
    )


def test_rows_without_time_and_diff_are_insertions_at_the_only_time():
    checked = check(ROWS)
    assert checked.updates.schema.equals(SCHEMA.updates(), check_metadata=True)
    assert checked.updates["_time"].to_pylist() == [5, 5, 5]
    assert checked.updates["_diff"].to_pylist() == [1, 1, 1]
    assert checked.updates.select(["k", "v"]).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize(
    "rows",
    [
        ROWS.to_batches()[0],
        ROWS.to_pylist(),
        ROWS.to_pandas(),
        pl.from_arrow(ROWS),
        ROWS.select(["v", "k"]),
        pa.table({"k": pa.array([1, 2, 3], pa.int8()), "v": ROWS["v"].dictionary_encode()}),
    ],
    ids=["batch", "dicts", "pandas", "polars", "other order", "other types"],
)
def test_the_same_rows_in_another_form_are_the_same_updates(rows: object):
    checked = check(rows)
    assert checked.updates.to_pylist() == check(ROWS).updates.to_pylist()
    assert checked.digests == check(ROWS).digests


def test_digests_are_those_of_the_rows_at_each_time():
    checked = check(updates([5, 7, 5], [1, -2, 3]), upper=9)
    hashes = row_base(checked.updates.select(["k", "v"]), SCHEMA.ids)
    assert checked.digests == {
        5: Digest.of(hashes[[0, 2]], np.array([1, 3])),
        7: Digest.of(hashes[[1]], np.array([-2])),
    }
    assert checked.total == checked.digests[5] + checked.digests[7]


def test_rows_with_diff_zero_go_and_leave_no_time_behind():
    checked = check(updates([5, 6, 5], [1, 0, 2]), upper=9)
    assert checked.updates["k"].to_pylist() == [0, 2]
    assert list(checked.digests) == [5]
    assert len(checked.hashes) == 2


def test_no_rows_are_fine():
    assert check(ROWS.slice(0, 0), upper=900).digests == {}
    assert check([], upper=6).updates.num_rows == 0


def test_restamped_updates_equal_those_checked_at_the_other_time():
    moved, fresh = restamped(check(ROWS), 8), check(ROWS, lower=8, upper=9)
    assert moved.updates.equals(fresh.updates, check_metadata=True)
    assert moved.digests == fresh.digests


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (updates([5, 9], [1, 1]), BoundsError, "row 1 .* _time 9.*\\[5, 9\\)"),
        (updates([5, 4], [1, 1]), BoundsError, "row 1 .* _time 4"),
        (updates([-1], [1]), BoundsError, "row 0 .* _time -1"),
        (updates([2**63 - 1], [1]), BoundsError, "row 0"),
        (updates([5, None], [1, 1]), BoundsError, "row 1 .* null in _time"),
        (updates([5, 5, 5], [1, 1, None]), SchemaError, "row 2 .* null in _diff"),
        (updates([5, 5], [DIFF_MAX, DIFF_MAX + 1]), SchemaError, "row 1 .* _diff 2147483648.*seve"),
        (updates([5, 5], [1, -(2**63)]), SchemaError, "row 1 .* _diff -9223372036854775808"),
        (ROWS, BoundsError, "without a _time column"),
        (pa.table({"k": [1], "v": ["a"], "_time": [5.0]}), BoundsError, "whole numbers"),
        (
            pa.table({"k": [1], "v": ["a"], "_time": pa.array([2**63], pa.uint64())}),
            BoundsError,
            "beyond 64 bits",
        ),
        (pa.table({"k": [1, None], "v": ["a", "b"], "_time": [5, 5]}), SchemaError, "row 1"),
        (pa.table({"k": [1], "_time": [5]}), SchemaError, "lack"),
        (pa.table({"k": [1], "v": ["a"], "w": [1], "_time": [5]}), SchemaError, "no column"),
        (pa.table({"k": ["one"], "v": ["a"], "_time": [5]}), SchemaError, "'k'"),
        ([{"k": 1, "v": "a", "nope": 2, "_time": 5}], SchemaError, "nope"),
        ([{"k": "one", "v": "a", "_time": 5}], SchemaError, "can't be read"),
        ([1, 2], SchemaError, "row 0 is a int"),
        (pd.DataFrame({"k": [object()]}), SchemaError, "can't be read"),
        ("rows", SchemaError, "not str"),
        (None, SchemaError, "not NoneType"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(rows: object, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        check(rows, upper=9)


def test_diffs_are_taken_up_to_their_bound():
    checked = check(updates([5, 5], [DIFF_MAX, -DIFF_MAX]))
    assert checked.updates["_diff"].to_pylist() == [DIFF_MAX, -DIFF_MAX]


def test_a_closing_append_takes_any_time_from_lower_on():
    assert list(check(updates([5, TIME_MAX], [1, 1]), upper=None).digests) == [5, TIME_MAX]
    with pytest.raises(BoundsError, match="row 0"):
        check(updates([4], [1]), upper=None)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        *[(5, 5), (5, 4), (-1, 4), (0, 2**63), ("0", 1), (0, True), (1.0, 2)],
        *[(0, Frontier(TIME_MAX + 1)), (0, Frontier(2**70)), (0, Frontier(-1))],
    ],
)
def test_intervals_that_hold_no_time_are_refused(lower: object, upper: object):
    with pytest.raises(BoundsError):
        check_interval(lower, upper)


def test_intervals_may_be_open_at_the_end():
    assert check_interval(3, None) == (3, Frontier.closed())
    assert check_interval(3, Frontier(4)) == (3, Frontier(4))
