"""Tests of what one reader holds back."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from strandline.errors import InvariantError
from strandline.shard.holds import ReadHolds


def test_r9_a_pin_is_taken_at_the_newest_version_seen() -> None:
    holds = ReadHolds(since=0, seqno=3)
    holds.observe(7)
    assert holds.pin() == 7


def test_r10_the_hold_stays_at_the_oldest_pin_that_is_out() -> None:
    holds = ReadHolds(since=None, seqno=3)
    old = holds.pin()
    holds.observe(500)
    holds.pin()
    assert holds.seqno_target() == old == 3
    holds.unpin(old)
    assert holds.seqno_target() == 500


def test_s41_two_pins_at_one_version_are_counted() -> None:
    holds = ReadHolds(since=None, seqno=3)
    first = holds.pin()
    holds.pin_again(first)
    holds.observe(9)
    holds.unpin(first)
    assert holds.seqno_target() == 3
    holds.unpin(first)
    assert holds.seqno_target() == 9


def test_a_pin_can_not_be_given_back_twice() -> None:
    holds = ReadHolds(since=None, seqno=3)
    seqno = holds.pin()
    holds.unpin(seqno)
    with pytest.raises(InvariantError, match="twice"):
        holds.unpin(seqno)
    with pytest.raises(InvariantError, match="given back"):
        holds.pin_again(seqno)


@pytest.mark.parametrize(
    ("seen", "garbage", "since", "due"),
    [
        (3, [], None, None),  # nothing new
        (9, [], None, None),  # newer versions alone are not worth a commit
        (9, [3], None, None),  # garbage that we don't stand in the way of
        (9, [4], None, (0, 9)),  # garbage that we hold
        (9, [12], None, None),  # garbage newer than what we could move to
        (3, [], 5, (5, 3)),  # times to give up
        (9, [4], 5, (5, 9)),
    ],
)
def test_r11_a_hold_moves_only_if_that_releases_something(
    seen: int, garbage: list[int], since: int | None, due: tuple[int, int] | None
) -> None:
    holds = ReadHolds(since=0, seqno=3)
    holds.observe(seen)
    if since is not None:
        holds.downgrade(since)
    assert holds.due(garbage) == due


def test_r12_holds_only_move_forward() -> None:
    holds = ReadHolds(since=5, seqno=3)
    holds.downgrade(2)
    assert holds.wanted_since == 5
    with pytest.raises(InvariantError, match="moved back"):
        holds.applied(5, 2)


@given(st.lists(st.tuples(st.sampled_from("pous"), st.integers(0, 50)), max_size=60))
def test_the_durable_hold_never_passes_a_pin(steps: list[tuple[str, int]]) -> None:
    holds = ReadHolds(since=0, seqno=0)
    out: list[int] = []
    for step, number in steps:
        if step == "p":
            out.append(holds.pin())
        elif step == "o":
            holds.observe(number)
        elif step == "u" and out:
            holds.unpin(out.pop(number % len(out)))
        elif step == "s":
            wanted = holds.due(range(number))
            if wanted is not None:
                holds.applied(*wanted)
        assert holds.pins == len(out)
        assert all(holds.applied_seqno <= pin for pin in out)


def test_a_dropped_pin_is_given_back_when_it_is_settled() -> None:
    holds = ReadHolds(since=None, seqno=3)
    seqno = holds.pin()
    holds.observe(9)
    holds.forget(seqno)
    assert holds.seqno_target() == 3
    holds.settle_forgotten()
    assert holds.seqno_target() == 9
