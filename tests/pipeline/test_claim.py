"""Who publishes: a claim is taken when it is free, or when nobody has moved it for a lease."""

from __future__ import annotations

import pytest

from strandline.errors import CorruptionError
from strandline.model.ids import SeqNo
from strandline.pipeline import claim as c
from strandline.pipeline.claim import Claim, Me, Watch
from strandline.pipeline.delivery import Mark

A, B = Me("a", "first", 1_000), Me("b", "second", 1_000)


def held(by: Me = A) -> Claim:
    taken = c.take(Claim(), by, 0)
    assert taken is not None
    return taken


def test_what_is_free_is_taken_and_what_is_mine_stays_mine() -> None:
    claim = held()
    assert (claim.owner, claim.name, claim.term) == ("a", "first", 1)
    assert c.take(claim, A, 0) == claim


def test_what_is_anothers_is_not_taken_before_it_was_suspected_for_a_lease() -> None:
    claim = held()
    assert c.take(claim, B, 10_000) is None
    suspected = c.suspect(claim, 10_000)
    assert suspected is not None
    assert c.take(suspected, B, 10_999) is None
    taken = c.take(suspected, B, 11_000)
    assert taken is not None
    assert (taken.owner, taken.term) == ("b", 2)
    assert c.renew(taken, "a") is None


def test_an_owner_that_moves_is_no_longer_suspected() -> None:
    suspected = c.suspect(held(), 10_000)
    assert suspected is not None
    renewed = c.renew(suspected, "a")
    assert renewed is not None
    assert c.take(renewed, B, 99_000) is None


def test_a_suspicion_from_the_future_is_made_anew() -> None:
    suspected = c.suspect(held(), 10_000)
    assert suspected is not None
    assert c.suspect(suspected, 10_500) is None
    again = c.suspect(suspected, 5_000)
    assert again is not None
    assert again.suspected_ms == 5_000
    assert c.suspect(Claim(), 0) is None


def test_only_the_owner_lets_go_and_writes() -> None:
    claim = held()
    assert c.release(claim, "b") is None
    assert c.marked(claim, "b", "l", Mark()) is None
    released = c.release(claim, "a")
    assert released is not None
    taken = c.take(released, B, 0)
    assert taken is not None
    assert taken.term == 2


def test_marks_are_kept_by_lineage_the_newest_last() -> None:
    claim = held()
    for number in range(c.LINEAGES_KEPT + 3):
        marked = c.marked(claim, "a", f"l{number}", Mark(intent=number))
        assert marked is not None
        claim = marked
    assert len(claim.marks) == c.LINEAGES_KEPT
    assert claim.marks["l18"] == Mark(intent=18)
    assert "l0" not in claim.marks
    renewed = c.marked(claim, "a", "l5", None)
    assert renewed is not None
    assert renewed.marks == claim.marks
    assert renewed.counter == claim.counter + 1


def test_a_watch_begins_anew_when_the_claim_moves() -> None:
    watch, claim = Watch(), held()
    assert watch.unmoved_ms(claim, 100) == 0
    assert watch.unmoved_ms(claim, 700) == 600
    moved = c.renew(claim, "a")
    assert moved is not None
    assert watch.unmoved_ms(moved, 800) == 0


def test_what_is_written_is_read_and_what_is_swapped_is_refused() -> None:
    claim = c.marked(held(), "a", "l", Mark(1, 2, 3, 4))
    assert claim is not None
    data = c.encode_claim(claim, "claims/shop/out", SeqNo(3))
    assert c.decode_claim("claims/shop/out", SeqNo(3), data) == claim
    with pytest.raises(CorruptionError):
        c.decode_claim("claims/shop/other", SeqNo(3), data)


def test_older_lineages_are_those_with_deliveries_the_last_last() -> None:
    claim = held()
    for name, mark in (("a", Mark(intent=3)), ("b", Mark()), ("c", Mark(intent=5, done=5))):
        marked = c.marked(claim, "a", name, mark)
        assert marked is not None
        claim = marked
    assert c.older_lineages(claim, "d") == ("a", "c")
    again = c.marked(claim, "a", "a", Mark(intent=7))
    assert again is not None
    assert c.older_lineages(again, "d") == ("c", "a")
    assert c.older_lineages(again, "a") == ("c",)


def test_newer_lineages_are_those_that_an_epoch_above_has_published() -> None:
    marks = {"a": Mark(1, 3, 3), "b": Mark(2, 4, 4), "c": Mark(3), "d": Mark(2, 7, 7)}
    claim = Claim(marks=marks)
    assert c.newer_lineages(claim, "a") == ("b", "d")
    assert c.newer_lineages(claim, "b") == (), "the same epoch is no reason"
    assert c.newer_lineages(claim, "new") == ()
