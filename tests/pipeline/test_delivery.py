"""Where a sink goes on, and what a transaction is to it: every case of the tables."""

from __future__ import annotations

from itertools import product

import pytest

from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import InvariantError
from strandline.pipeline import delivery as d
from strandline.pipeline.delivery import Fence, Found, Go, Mark, Stop, Verdict

EPOCH = 2
MARKS = {
    "nothing": None,
    "founded": Mark(2),
    "first intended": Mark(2, intent=3),
    "done": Mark(2, intent=7, done=7),
    "in doubt": Mark(2, intent=7, done=5),
    "newer epoch": Mark(3, intent=7, done=7),
}
PROGRESS = {
    "none": None,
    "nothing yet": Progress(NOTHING_YET, 1),
    "3": Progress(3, 2),
    "5": Progress(5, 1),
    "7": Progress(7, 2),
    "8": Progress(8, 2),
    "newer": Progress(7, 3),
}
STARTS = {
    # on record         none  nothing yet  3  5  7  8  newer
    "nothing": ["found -1", "go -1", "stop", "stop", "stop", "stop", "fence"],
    "founded": ["found -1", "go -1", "stop", "stop", "stop", "stop", "fence"],
    "first intended": ["stop", "go -1", "go 3", "stop", "stop", "stop", "fence"],
    "done": ["found 7", "go -1", "go 3", "go 5", "go 7", "stop", "fence"],
    "in doubt": ["stop", "go -1", "go 3", "go 5", "go 7", "stop", "fence"],
    "newer epoch": ["fence", "fence", "fence", "fence", "fence", "fence", "fence"],
}


def named(start: d.Start) -> str:
    match start:
        case Found(at):
            return f"found {at.t}"
        case Go(after):
            return f"go {after}"
        case Stop():
            return "stop"
        case Fence():
            return "fence"


@pytest.mark.parametrize(("mark", "progress"), list(product(MARKS, PROGRESS)))
def test_s82_the_targets_progress_decides_and_doubt_stops(mark: str, progress: str) -> None:
    expected = STARTS[mark][list(PROGRESS).index(progress)]
    assert named(d.started(MARKS[mark], PROGRESS[progress], EPOCH)) == expected


def test_a_stop_names_the_transaction_in_doubt() -> None:
    stop = d.started(MARKS["in doubt"], None, EPOCH)
    assert isinstance(stop, Stop)
    assert "transaction 7" in stop.reason
    assert "5" in stop.reason
    ahead = d.started(MARKS["done"], Progress(8, 1), EPOCH)
    assert isinstance(ahead, Stop)
    assert "transaction 8" in ahead.reason


@pytest.mark.parametrize(
    ("t", "before", "progress", "expected"),
    [
        (0, -1, -1, Verdict.DUE),
        (7, 5, 7, Verdict.LATE),
        (7, 5, 9, Verdict.LATE),
        (7, 5, 5, Verdict.DUE),
        (7, 5, 6, Verdict.DUE),
        (7, 5, 4, Verdict.EARLY),
        (7, 5, -1, Verdict.EARLY),
    ],
)
def test_a_transaction_is_late_due_or_early(
    t: int, before: int, progress: int, expected: Verdict
) -> None:
    assert d.verdict(t, before, progress) is expected


def test_every_time_is_exactly_one_of_them() -> None:
    for t, before, progress in product(range(5), range(-1, 4), range(-1, 6)):
        if before < t:
            verdict = d.verdict(t, before, progress)
            assert (verdict is Verdict.LATE) == (t <= progress)
            assert (verdict is Verdict.EARLY) == (progress < before)


def test_intent_comes_before_and_done_after() -> None:
    mark = d.founded(None, Progress(NOTHING_YET, 2))
    mark = d.intended(mark, 3, 2, NOTHING_YET)
    assert (mark.intent, mark.done) == (3, NOTHING_YET)
    mark = d.done(mark, 3)
    assert (mark.intent, mark.done, mark.reached) == (3, 3, 3)


def test_what_the_target_has_is_done_whoever_did_not_say_so() -> None:
    mark = d.intended(Mark(1, intent=7, done=5), 9, 2, 7)
    assert mark == Mark(2, intent=9, done=7)


def test_an_intent_may_be_put_on_record_twice() -> None:
    once = d.intended(Mark(1), 3, 1, NOTHING_YET)
    assert d.intended(once, 3, 1, NOTHING_YET) == once


def test_an_intent_on_record_never_falls_and_what_lands_late_is_known() -> None:
    """A target that shuts nobody out when it is opened: the cut at 7 was not answered, the next
    one is shorter, and then 7 lands."""
    mark = d.intended(Mark(1, 7, 4, 4), 5, 1, 4)
    assert mark == Mark(1, 7, 4, 4)
    assert d.started(mark, Progress(7, 1), 1) == Go(7)
    assert d.confirmed(mark, Progress(7, 1)).done == 7
    after = d.done(mark, 5)
    assert after == Mark(1, 7, 5, 5), "5 is done, and 7 is still in doubt"
    assert isinstance(d.started(after, None, 1), Stop), "the progress is gone: 7 may be there"
    assert d.objection(after, Progress(7, 1), after) == ""
    later = d.done(d.intended(after, 9, 1, 5), 9)
    assert d.started(later, None, 1) == Found(Progress(9, 1)), "9 went out after 5: 7 is not there"


def test_an_epoch_on_record_never_falls() -> None:
    assert d.intended(Mark(5), 3, 2, NOTHING_YET).epoch == 5
    assert d.founded(Mark(5, 3, 3), Progress(3, 2)).epoch == 5


def test_what_was_reached_moves_forward_and_needs_no_intent() -> None:
    mark = Mark(1, 3, 3, 3)
    assert d.reached(mark, 9) == Mark(1, 3, 3, 9)
    assert d.reached(mark, 2) is mark
    assert d.reached(None, 9) is None


@pytest.mark.parametrize(
    ("mark", "progress", "expected"),
    [
        (None, 3, 3),
        (Mark(1), NOTHING_YET, NOTHING_YET),
        (Mark(1, reached=9), NOTHING_YET, NOTHING_YET),
        (Mark(1, 7, 7, 7), 7, 7),
        (Mark(1, 7, 7, 9), 7, 9),
        (Mark(1, 10, 7, 9), 7, 9),
        (Mark(1, 10, 7, 9), 10, 10),
        (Mark(1, 7, 7, 9), 5, 5),
        (Mark(1, 7, 7, 9), NOTHING_YET, NOTHING_YET),
    ],
)
def test_what_has_no_changes_is_not_read_again_by_a_target_that_has_the_rest(
    mark: Mark | None, progress: int, expected: int
) -> None:
    assert d.onward(mark, progress) == expected


def test_what_a_target_has_is_done_and_one_that_was_set_back_has_reached_no_more() -> None:
    assert d.confirmed(None, Progress(NOTHING_YET, 2)) == Mark(2)
    assert d.confirmed(Mark(1, 7, 5, 6), Progress(7, 2)) == Mark(1, 7, 7, 6)
    assert d.confirmed(Mark(1, 10, 7, 9), Progress(7, 2)) == Mark(1, 10, 7, 9)
    assert d.confirmed(Mark(1, 7, 7, 9), Progress(3, 2)) == Mark(1, 7, 3, 3)


@pytest.mark.parametrize("lost", [True, False])
def test_no_death_and_no_target_that_is_set_back_lets_a_change_be_passed_over(
    *, lost: bool
) -> None:
    """Every walk of a few steps: a publisher that goes on skips nothing the target lacks."""
    changed = {2, 5, 6}
    walks = list(product(("deliver", "intend", "pass", "die", "back"), repeat=6))
    for walk in walks:
        mark, target, at = d.founded(None, Progress(NOTHING_YET, 1)), NOTHING_YET, NOTHING_YET
        for step in walk:
            due = min((t for t in changed if t > at), default=None)
            if step in {"deliver", "intend"} and due is not None:
                mark = d.intended(mark, due, 1, target)
                if step == "deliver":
                    mark, target, at = (mark if lost else d.done(mark, due)), due, due
                    if lost:
                        mark = d.confirmed(mark, Progress(target, 1))
                    continue
            elif step == "pass":
                at = max(at, (8 if due is None else due) - 1)
                mark = d.reached(mark, at) or mark
                continue
            elif step == "back":
                target = max((t for t in changed if t < target), default=NOTHING_YET)
            at = d.onward(mark, target)
            mark = d.confirmed(mark, Progress(target, 1))
            assert {t for t in changed if t <= at} <= {t for t in changed if t <= target}, walk


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, False),
        ({"mine": Mark(1, 3, 3)}, False),
        ({"other": Mark(1)}, False),
        ({"other": Mark(1, reached=9), "mine": Mark(2)}, False),
        ({"other": Mark(1, intent=0), "mine": Mark(2)}, True),
        ({"other": Mark(1), "another": Mark(1, 3, 3)}, True),
    ],
)
def test_a_lineage_replaces_what_another_one_may_have_delivered(
    marks: dict[str, Mark], *, expected: bool
) -> None:
    assert d.replaces(marks, "mine") is expected


def test_the_last_that_is_done_is_of_the_lineage_and_not_what_was_only_intended() -> None:
    marks = {"mine": Mark(1, 7, 5, 6), "other": Mark(1, 9, 9, 9)}
    assert d.last_done(marks, "mine") == 5
    assert d.last_done(marks, "new") == NOTHING_YET


@pytest.mark.parametrize(
    ("held", "reached", "unmoved_ms", "expected"),
    [
        (7, 7, 10**9, False),
        (7, 16, 0, False),
        (7, 17, 0, True),
        (7, 8, 599_999, False),
        (7, 8, 600_000, True),
        (7, NOTHING_YET, 10**9, False),
    ],
)
def test_history_is_let_go_of_after_many_transactions_or_a_long_time(
    held: int, reached: int, unmoved_ms: int, *, expected: bool
) -> None:
    assert d.frees(held, reached, unmoved_ms, 10) is expected


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: d.verdict(5, 5, 5),
        lambda: d.intended(Mark(1, 7, 7), 7, 1, 7),
        lambda: d.intended(Mark(1, 5, 5), 9, 1, 7),
        lambda: d.intended(None, 9, 1, NOTHING_YET),
        lambda: d.done(Mark(1, 7, 5), 8),
        lambda: d.done(None, 8),
        lambda: d.founded(Mark(1, 7, 5), Progress(7, 1)),
    ],
)
def test_what_may_not_follow_is_a_bug(wrong: object) -> None:
    with pytest.raises(InvariantError):
        wrong()  # type: ignore[operator]


def test_who_lets_go_of_the_claim_is_back_before_it_looks_like_nobody_s() -> None:
    assert [d.lets_go(retries) for retries in range(1, 9)] == [False, False, False, True] * 2
    assert [d.rest_ms(retries, 5_000, 4_000) for retries in (3, 4, 5)] == [5_000, 2_000, 5_000]
    assert d.rest_ms(4, 400, 4_000) == 400
