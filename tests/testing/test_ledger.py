"""The ledger is right where it can be told by looking."""

from __future__ import annotations

from strandline.testing.ledger import Ledger


def row(key, amount, seq, **marks):
    return {"id": key, "amount": amount, "seq": seq, **marks}


def test_the_newest_row_of_a_key_counts_and_deletions_are_remembered():
    ledger = Ledger()
    ledger.apply([row(1, 5, 7), row(1, 4, 3), row(2, 9, 4)])
    ledger.apply([row(2, None, 6, _delete=True), row(1, 1, 6)])
    ledger.apply([row(2, 8, 5)])
    assert ledger.held() == [row(1, 5, 7)]


def test_a_truncation_takes_what_is_before_it_and_keeps_its_place():
    ledger = Ledger()
    ledger.apply([row(1, 5, 3), row(2, 5, 9)])
    ledger.apply([row(3, 1, 4), row(None, None, 5, _truncate=True), row(4, 1, 6)])
    ledger.apply([row(5, 1, 4), row(6, 1, None)])
    assert sorted(each["id"] for each in ledger.held()) == [2, 4]


def test_a_reload_is_all_there_is_and_older_events_still_lose():
    ledger = Ledger()
    ledger.apply([row(1, 5, 9), row(2, 5, 9)])
    ledger.reload([row(1, 6, None), row(1, 7, 2)])
    ledger.apply([row(2, 1, 8), row(1, 1, 1)])
    assert ledger.held() == [row(1, 7, 2)]
