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


def test_an_epoch_on_record_never_falls() -> None:
    assert d.intended(Mark(5), 3, 2, NOTHING_YET).epoch == 5
    assert d.founded(Mark(5, 3, 3), Progress(3, 2)).epoch == 5


def test_what_was_reached_moves_forward_and_needs_no_intent() -> None:
    mark = Mark(1, 3, 3, 3)
    assert d.reached(mark, 9) == Mark(1, 3, 3, 9)
    assert d.reached(mark, 2) is mark
    assert d.reached(None, 9) is None


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
