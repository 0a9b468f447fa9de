"""Updates and frontiers as lines."""

from __future__ import annotations

import pyarrow as pa

from strandline.cli.stream import (
    InOrder,
    progress_document,
    progress_line,
    update_documents,
    update_line,
)
from strandline.model.frontier import Frontier

ROWS = pa.table(
    {"name": ["b", "a\x1b[31m", "b"], "_time": [5, 4, 5], "_diff": pa.array([1, 1, -1], pa.int64())}
)


def test_an_update_is_a_document_of_its_own():
    assert list(update_documents(ROWS))[1] == {
        "kind": "update",
        "time": 4,
        "diff": 1,
        "row": {"name": "a\x1b[31m"},
    }


def test_updates_are_put_in_order_of_time_and_retractions_first():
    order = InOrder()
    assert order.add(update_documents(ROWS)) == []
    assert [(each["time"], each["diff"]) for each in order.flush()] == [(4, 1), (5, -1), (5, 1)]
    assert order.flush() == []


def test_many_updates_are_not_kept_for_the_sake_of_order():
    order = InOrder(limit=2)
    assert len(order.add(update_documents(ROWS))) == 3
    assert order.flush() == []


def test_a_line_shows_time_diff_and_columns_harmlessly():
    last, first, retracted = (update_line(each) for each in update_documents(ROWS))
    assert last.plain.split() == ["5", "+1", "name=b"]
    assert first.plain.split() == ["4", "+1", "name=a\\x1b[31m"]
    assert retracted.plain.split() == ["5", "-1", "name=b"]
    raw = update_line(list(update_documents(ROWS))[1], raw=True)
    assert "\x1b[31m" in raw.plain


def test_a_frontier_is_a_line_too():
    assert progress_document(Frontier(7)) == {"kind": "progress", "frontier": 7, "end": False}
    assert progress_document(Frontier.closed())["end"] is True
    assert progress_line(Frontier(7)).plain.strip() == "{7}  settled before 7"
    assert progress_line(Frontier.closed()).plain.strip() == "{}  the end"
