"""Needs that no record of a whole history can lack: the rest is in the table of `test_standing`."""

from __future__ import annotations

import pytest

from strandline.errors import JournalError
from strandline.journal import needs, record as r
from strandline.journal.standing import Standing
from strandline.testing.journals import SOURCE

EMPTY = Standing.empty("shop")


def test_a_refusal_names_the_pipeline_the_place_the_record_and_the_reason() -> None:
    with pytest.raises(JournalError, match=r"shop: .*BIND.* can't follow the beginning: too early"):
        needs.refuse(EMPTY, r.Bind("x", "y", ""), "too early")


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [({"0": (3, 2)}, "is no range"), ({"0": (-1, 2)}, "is no range")],
)
def test_what_is_no_range_is_not_taken(ranges: r.Taken, reason: str) -> None:
    taking = r.Input(0, SOURCE, "orders", ranges, (), {})
    with pytest.raises(JournalError, match=reason):
        needs.not_taken(EMPTY, taking, ranges)
    needs.not_taken(EMPTY, taking, {"0": (2, 2)})
