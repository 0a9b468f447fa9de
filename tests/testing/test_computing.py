"""The computer of plain Arrow: errors are data, and views are what their queries say."""

from __future__ import annotations

import pyarrow as pa

from strandline.testing.computing import linear_changes
from strandline.views.parse import parse

TABLE = "CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING generator;"
VIEW = parse(TABLE + "CREATE MATERIALIZED VIEW v AS SELECT id, 10 DIV n AS q FROM t;").views[0]


def _changes(*rows: tuple[int, int, int]) -> dict[str, pa.Table]:
    ids, numbers, diffs = zip(*rows, strict=True)
    return {"t": pa.table({"id": ids, "n": numbers, "_diff": diffs})}


def test_a_row_that_raises_is_an_error_and_the_others_count() -> None:
    good, bad = linear_changes(VIEW, _changes((1, 5, 1), (2, 0, 1)))
    assert good.to_pylist() == [{"id": 1, "q": 2, "_diff": 1}]
    assert [(row["row"], row["_diff"]) for row in bad.to_pylist()] == [("t: id = 2, n = 0", 1)]


def test_an_error_goes_when_its_row_goes() -> None:
    _, came = linear_changes(VIEW, _changes((2, 0, 1)))
    _, gone = linear_changes(VIEW, _changes((2, 0, -1), (2, 5, 1)))
    assert came.drop_columns(["_diff"]) == gone.drop_columns(["_diff"])
    assert gone["_diff"].to_pylist() == [-1]
