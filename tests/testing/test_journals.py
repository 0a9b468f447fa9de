"""The journals that tests are given are ones that a replica would write."""

from __future__ import annotations

import pytest

from strandline.journal.log import Journal, Lost
from strandline.journal.standing import Standing
from strandline.testing.journals import SOURCE, founded, sealing, transacted, won, written
from strandline.testing.lab import Lab


def test_transactions_take_one_row_after_the_other(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = transacted(journal, founded(journal), rows=4, count=3)
    assert (standing.next_t, standing.positions) == (3, {SOURCE: {"0": 12}})


def test_a_handle_is_committed_without_taking_rows(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = written(journal, *sealing(founded(journal), handle="h1", attempt="a1"))
    assert standing.sealed.endpoints == ("handle.h1",)
    assert standing.producers == {"handle.h1": {"a1": 0}}
    assert standing.closed == {"h1": 0}


def test_a_proposal_that_was_lost_is_no_success() -> None:
    with pytest.raises(AssertionError):
        won(Lost(Standing.empty("shop")))
