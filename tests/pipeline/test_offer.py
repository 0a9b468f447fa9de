"""Handles and sources take turns; rows, bytes or delay close a transaction, whichever is first."""

from __future__ import annotations

import pytest

from strandline.connectors.position import Range
from strandline.journal.record import Abort, Record
from strandline.journal.standing import Standing, advance_all
from strandline.pipeline.offer import Close, Offered, Wait, closing, handles_first
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.journals import finishing, founding, sealing

SETTINGS = PipelineSettings(rows_max=10, bytes_max=1_000, delay_ms=500, poll_ms=100)


def _offered(rows: int, size: int = 0) -> Offered:
    return Offered(Range({"0": (0, rows)}), rows, size)


@pytest.mark.parametrize(
    ("offers", "since_ms", "now_ms", "expected"),
    [
        ([], None, 0, Wait(100, None)),
        ([_offered(0)], 100, 900, Wait(100, None)),
        ([Offered(Range({"0": (5, 5)}), 0, begins=True)], None, 0, Close()),
        ([Offered(Range({"0": (0, 1)}), 1, closes=True), _offered(1)], None, 0, Close()),
        ([_offered(1)], None, 50, Wait(100, 50)),
        ([_offered(1)], 50, 500, Wait(50, 50)),
        ([_offered(1)], 50, 549, Wait(1, 50)),
        ([_offered(1)], 50, 550, Close()),
        ([_offered(9)], None, 0, Wait(100, 0)),
        ([_offered(10)], None, 0, Close()),
        ([_offered(5), _offered(5)], None, 0, Close()),
        ([_offered(1, 999)], None, 0, Wait(100, 0)),
        ([_offered(1, 1_000)], None, 0, Close()),
        ([_offered(1, 600), _offered(1, 400)], None, 0, Close()),
    ],
)
def test_when_a_transaction_closes(
    offers: list[Offered], since_ms: float | None, now_ms: float, expected: Close | Wait
) -> None:
    named = {f"source{number}": offer for number, offer in enumerate(offers)}
    assert closing(named, since_ms, now_ms, SETTINGS) == expected


def test_whose_turn_it_is_is_on_record() -> None:
    def transacted(before: Standing, handle: str | None = None) -> Standing:
        sealed = advance_all(before, sealing(before, handle=handle))
        return advance_all(sealed, finishing(sealed))

    def recorded(before: Standing, record: Record) -> Standing:
        return advance_all(before, [record])

    standing = advance_all(Standing.empty("shop"), founding())
    assert handles_first(standing)
    automatic = transacted(standing)
    assert handles_first(automatic)
    explicit = transacted(automatic, "h0-a")
    assert not handles_first(explicit)
    assert handles_first(transacted(explicit))
    aborted = recorded(automatic, Abort("h1-b", "its user aborted it"))
    assert not handles_first(aborted)
    assert handles_first(transacted(aborted))
