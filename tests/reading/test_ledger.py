"""The accounts of outstanding fetches: rules L1 to L6, and scenarios S1 to S7 on them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from strandline.errors import InvariantError
from strandline.model.frontier import Frontier
from strandline.reading.ledger import Ledger

CLOSED = Frontier.closed()


def _ledger(start: int, owed: dict[str, int], listed: int | None) -> Ledger:
    ledger = Ledger(Frontier(start))
    for part, time in owed.items():
        ledger.owe(part, time)
    ledger.list_up_to(Frontier(listed))
    return ledger


ONE_ROW_EACH = {f"p{t}": t for t in range(12)}


@pytest.mark.parametrize(
    ("owed", "arrives", "fails", "frontier"),
    [
        pytest.param({"a": 0, "b": 1, "c": 2}, "ac", "b", 1, id="S1 a later part arrives"),
        pytest.param({"a": 0, "b": 1, "c": 2}, "bc", "a", 0, id="S2 the first is missing"),
        pytest.param({"p": 3, "q": 3, "r": 3}, "pr", "q", 3, id="S5 one of three at a time"),
        pytest.param({"p": 3, "q": 3, "r": 3}, "pqr", "", 4, id="S5 all three at a time"),
        pytest.param({"p": 3, "q": 3, "r": 3}, "pr", "", 3, id="S5 one of three is late"),
        pytest.param({"a": 0, "b": 1}, "", "ab", 0, id="two failures"),
        pytest.param({}, "", "", 4, id="nothing is owed"),
    ],
)
def test_the_frontier_stops_at_the_first_time_that_is_owed(owed, arrives, fails, frontier):
    ledger = _ledger(0, owed, 4)
    for part in fails:
        ledger.failed(part, OSError(part))
    for part in arrives:
        ledger.arrived(part)
    assert ledger.frontier == Frontier(frontier)


def test_s03_parts_after_the_missing_one_arrive_and_the_frontier_stays():
    ledger = _ledger(0, ONE_ROW_EACH, None)
    ledger.failed("p5", OSError("gone"))
    for time in reversed(range(12)):
        if time != 5:
            ledger.arrived(f"p{time}")
    assert ledger.frontier == Frontier(5)
    assert ledger.outstanding == 0
    assert ledger.oldest() == ("p5", 5)


def test_s04_reversed_arrivals_move_the_frontier_only_when_the_first_is_in():
    ledger = _ledger(0, ONE_ROW_EACH, None)
    seen = []
    for time in reversed(range(12)):
        ledger.arrived(f"p{time}")
        seen.append(ledger.frontier)
    assert seen == [Frontier(0)] * 11 + [CLOSED]


def test_s06_a_listing_that_fails_freezes_the_frontier_where_it_is():
    ledger = Ledger(Frontier(1))
    ledger.listing_failed(OSError("since"))
    assert ledger.frontier == Frontier(1)
    assert ledger.failure is not None
    assert ledger.failure.time == 1


def test_s07_after_a_failed_listing_nothing_is_listed():
    ledger = Ledger(Frontier(1))
    ledger.listing_failed(OSError("since"))
    with pytest.raises(InvariantError, match="L5"):
        ledger.owe("p", 1)
    with pytest.raises(InvariantError, match="L5"):
        ledger.list_up_to(Frontier(2))


def test_an_error_is_reported_once_and_only_the_first():
    ledger = _ledger(0, {"a": 0, "b": 1}, 2)
    first, second = OSError("first"), OSError("second")
    ledger.failed("b", first)
    ledger.failed("a", second)
    reported = ledger.take_error()
    assert reported is not None
    assert (reported.part, reported.error) == ("b", first)
    assert ledger.take_error() is None
    assert ledger.failure == reported


def test_what_failed_stays_owed_even_if_it_arrives_after_all():
    ledger = _ledger(0, {"a": 0}, 2)
    ledger.failed("a", OSError("late"))
    ledger.arrived("a")
    assert ledger.frontier == Frontier(0)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (lambda ledger: ledger.owe("x", 3), "L3"),
        (lambda ledger: ledger.owe("a", 9), "L6"),
        (lambda ledger: ledger.arrived("x"), "L6"),
        (lambda ledger: ledger.failed("x", OSError()), "L6"),
        (lambda ledger: ledger.list_up_to(Frontier(3)), "L2"),
    ],
)
def test_a_broken_account_stops_at_once(broken, rule):
    ledger = _ledger(0, {"a": 2}, 4)
    with pytest.raises(InvariantError, match=rule):
        broken(ledger)


@given(st.data())
def test_the_frontier_is_the_least_of_what_is_listed_and_owed_and_never_moves_back(data):
    ledger = Ledger(Frontier(0))
    listed, owed, failed = 0, {}, {}
    last = Frontier(0)
    for step in range(data.draw(st.integers(1, 60))):
        action = data.draw(st.sampled_from(["owe", "list", "arrive", "fail"]))
        if action == "owe":
            owed[f"p{step}"] = time = listed + data.draw(st.integers(0, 5))
            ledger.owe(f"p{step}", time)
        elif action == "list":
            listed += data.draw(st.integers(0, 4))
            ledger.list_up_to(Frontier(listed))
        elif owed:
            part = data.draw(st.sampled_from(sorted(owed)))
            if action == "arrive":
                ledger.arrived(part)
                owed.pop(part)
            else:
                ledger.failed(part, OSError(part))
                failed[part] = owed.pop(part)
        model = Frontier(min([listed, *owed.values(), *failed.values()]))
        assert ledger.frontier == model
        assert last <= model
        last = model
        assert ledger.outstanding == len(owed)
