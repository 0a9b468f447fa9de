"""Updates and frontiers as lines."""

from __future__ import annotations

import pyarrow as pa

from strandline.cli.stream import (
    progress_document,
    progress_line,
    update_documents,
    update_line,
)
from strandline.model.frontier import Frontier

ROWS = pa.table(
    {"name": ["b", "a\x1b[31m", "b"], "_time": [5, 4, 5], "_diff": pa.array([1, 1, -1], pa.int64())}
)


def test_updates_come_in_order_of_time_and_retractions_first():
    found = list(update_documents(ROWS))
    assert [(each["time"], each["diff"]) for each in found] == [(4, 1), (5, -1), (5, 1)]
    assert found[0] == {"kind": "update", "time": 4, "diff": 1, "row": {"name": "a\x1b[31m"}}


def test_a_line_shows_time_diff_and_columns_harmlessly():
    first, second, _ = (update_line(each) for each in update_documents(ROWS))
    assert first.plain.split() == ["4", "+1", "name=a\\x1b[31m"]
    assert second.plain.split() == ["5", "-1", "name=b"]
    raw = update_line(next(update_documents(ROWS)), raw=True)
    assert "\x1b[31m" in raw.plain


def test_a_frontier_is_a_line_too():
    assert progress_document(Frontier(7)) == {"kind": "progress", "frontier": 7, "closed": False}
    assert progress_document(Frontier.closed())["closed"] is True
    assert progress_line(Frontier(7)).plain.strip() == "{7}  settled before 7"
    assert "nothing more will come" in progress_line(Frontier.closed()).plain
