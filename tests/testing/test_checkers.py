"""Every checker passes good histories, and names each violation that is planted in one."""

from dataclasses import dataclass, replace

import pytest

from strandline.testing import checkers
from strandline.testing.history import (
    CLOSED,
    NO_TIME,
    Append,
    Committed,
    Deleted,
    History,
    Read,
    Result,
    Seen,
    Stream,
    Term,
    Version,
)
from strandline.testing.tables import rows


@dataclass
class Line:
    by: str
    start: int
    end: int
    result: str
    lower: int | None = None
    upper: int | None = None
    row: str | None = None
    time: int | None = None
    seen: int | None = None
    shard: str = "s"
    group: str = ""

    def append(self) -> Append:
        time = NO_TIME if self.time is None else self.time
        updates = () if self.row is None else ((self.row, time, 1),)
        return Append(
            self.shard, self.by, self.start, self.end, Result[self.result.upper()],
            self.lower, self.upper, updates, self.seen, self.group,
        )  # fmt: skip


def given(text="", *, reads=(), **others) -> History:
    history = History(tiled={"s"}, **others)
    history.appends = [line.append() for line in rows(Line, text)] if text else []
    for number, (as_of, content) in enumerate(reads):
        counts = dict.fromkeys(content.split(), 1)
        history.reads.append(Read("s", f"r{number}", number, number, as_of, counts))
    return history


GOOD = """
    by  start  end  result    lower  upper  row  time  seen
    w1   1      4   applied   0      1      a    0     -
    w2   2      6   mismatch  0      1      -    -     1
    w2   7      9   applied   1      3      b    2     -
    w3   3     12   unknown   3      4      c    3     -
    w1  10     20   applied   4      5      d    4     -
"""


def test_a_good_history_passes_every_checker():
    history = given(GOOD, reads=[(0, "a"), (2, "a b"), (4, "a b c d"), (2, "a b")])
    history.streams = [
        Stream("s", "listen", 0, snapshot=False,
               told=[(("b", 2, 1),), 3, (("c", 3, 1), ("d", 4, 1)), 5]),
        Stream("s", "subscribe", 2, told=[(("a", 2, 1), ("b", 2, 1)), 3, 4, (("d", 4, 1),)]),
        Stream("s", "nothing", 2, until=0, told=[CLOSED]),
        Stream("s", "until", 0, until=3, told=[(("a", 0, 1),), 1, (("b", 2, 1),), CLOSED]),
    ]  # fmt: skip
    history.seen = [Seen("s", "r", "upper", 1, 2, 3), Seen("s", "q", "upper", 2, 3, 1)]
    history.versions = [
        Version("s", 1, 0, 0, 0, 0),
        Version("s", 1, 1, 5, 2, 0, {"r": 2}),
        Version("s", 1, 2, 4, 2, 1, attached=True),
    ]
    history.committed = [
        Committed("s", 3, 0, (("a", 0, 1),)),
        Committed("s", 8, 1, (("b", 2, 1),)),
        Committed("s", 9, 4, (("d", 4, 1),), gone=True),
        Committed("s", 11, 4, (("d", 4, 1),)),
    ]
    history.deleted = [Deleted("s", "key", 5)]
    checkers.check_history(history)


APPENDS = [
    # An overlap, and a gap that nobody can have filled.
    ("w1 1 2 applied 0 2", "w2 3 4 applied 1 3", "overlaps what ended at 2"),
    ("w1 1 2 applied 0 1", "w2 3 4 applied 2 3", "nobody appended [1, 2)"),
    ("w1 1 2 applied 1 2", "w2 3 9 unknown 0 2", "nobody appended [0, 1)"),
    # The second was told of an earlier time after the first had its answer.
    ("w1 1 2 applied 1 2", "w2 3 4 applied 0 1", "after w1 had been told about a later time"),
]


@pytest.mark.parametrize(("first", "second", "complaint"), APPENDS)
def test_appends_that_no_order_explains_are_named(first, second, complaint):
    text = f"by start end result lower upper\n{first}\n{second}"
    assert complaint in "\n".join(checkers.linearizable_appends(given(text)))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("w2 20 21 mismatch 0 1 7", "told the upper 7, which never was"),
        ("w2 20 21 mismatch 0 1 1", "told the upper 1 after it had been left"),
        ("w2 1 2 mismatch 0 1 3", "told the upper 3 before it was reached"),
        ("w2 1 12 mismatch 1 2 1", "refused at 1 although that was the upper"),
        ("w2 1 12 mismatch 0 1 1", ""),
        ("w2 12 13 mismatch 0 1 3", ""),
    ],
)
def test_a_mismatch_must_report_an_upper_that_was_there(line, complaint):
    text = f"""
        by  start  end  result    lower  upper  seen
        w1  3       4   applied   0      1      -
        w1  10     11   applied   1      3      -
        {line}
    """
    found = "\n".join(checkers.linearizable_appends(given(text)))
    assert complaint in found
    assert bool(found) is bool(complaint)


def test_gaps_in_shards_that_are_not_wholly_recorded_are_no_violation():
    history = given("by start end result lower upper\nw1 1 2 applied 5 6")
    assert checkers.linearizable_appends(history)
    history.tiled.clear()
    assert checkers.linearizable_appends(history) == []


def test_an_unknown_append_fills_a_gap_once():
    text = """
        by  start  end  result   lower  upper
        w1  1      2    unknown  -      -
        w2  3      4    applied  1      2
    """
    assert checkers.linearizable_appends(given(text)) == []
    assert checkers.linearizable_appends(given(text + "w2 5 6 applied 3 4"))


def test_two_answers_for_one_time_are_named():
    wrong = checkers.definite_reads(given(reads=[(3, "a b"), (3, "a")]))
    assert "s as of 3 was {'b': 1} more for r0 than for r1" in wrong[0]
    assert checkers.definite_reads(given(reads=[(3, "a b"), (4, "a")])) == []


@pytest.mark.parametrize(
    ("as_of", "content", "complaint"),
    [
        (2, "a", "b is missing (-1)"),
        (1, "a b", "b is too many (+1)"),
        (4, "a b c d e", "e is too many"),
        (4, "a b c", "d is missing"),
    ],
)
def test_rows_that_are_lost_or_made_up_are_named(as_of, content, complaint):
    assert complaint in checkers.nothing_lost(given(GOOD, reads=[(as_of, content)]))[0]


def test_an_append_that_comes_and_goes_is_named():
    wrong = checkers.nothing_lost(given(GOOD, reads=[(3, "a b c"), (4, "a b d")]))
    assert "is in as of 3 and out as of 4" in wrong[0]


LISTEN = {"snapshot": False}
STREAMS = [
    (LISTEN, [3], "b is missing"),  # A frontier without its rows,
    (LISTEN, [(("b", 2, 1),), 3, 2], "moved back from 3 to 2"),
    (LISTEN, [(("b", 2, 1),), 3, (("b", 2, 1),)], "came after the frontier 3"),
    (LISTEN, [(("a", 0, 1),), (("b", 2, 1),), 3], "came after the frontier 1"),
    (LISTEN, [(("b", 2, 1), ("b", 2, 1)), 3], "b is too many"),
    (LISTEN, [(("b", 1, 1),), 3], "the rows at 1 are wrong"),  # a row at another time,
    ({"until": 2}, [(("a", 0, 1),), 1, (("b", 2, 1),)], "not before until=2"),
    ({}, [1], "a is missing"),  # a snapshot without its rows.
    ({}, [(("a", 0, 1), ("b", 0, 1)), 1], "b is too many"),
    ({}, [(("a", 0, 1), ("b", 1, 1)), 3], "the rows at 1 are wrong"),
]


@pytest.mark.parametrize(("options", "told", "complaint"), STREAMS)
def test_streams_that_lie_are_named(options, told, complaint):
    history = given(GOOD, streams=[Stream("s", "me", 0, told=told, **options)])
    assert complaint in "\n".join(checkers.honest_streams(history))


def test_a_frontier_that_moves_back_for_anybody_is_named():
    seen = [Seen("s", "r1", "upper", 1, 2, 5), Seen("s", "r2", "upper", 3, 4, 4)]
    wrong = checkers.monotone_frontiers(given(seen=seen))
    assert wrong == ["upper of s was 5 for r1 and then 4 for r2"]
    at_once = [seen[0], Seen("s", "r2", "upper", 2, 4, 4), Seen("s", "r2", "since", 3, 4, 1)]
    assert checkers.monotone_frontiers(given(seen=at_once)) == []


VERSIONS = [
    ((1, 5, 3, 0, {"r": 2}), "since is 3, past the holds {'r': 2}"),
    ((2, 5, 2, 0, {}), "follows v0"),
    ((1, 4, 2, 0, {}), "the upper moved back from 5 to 4"),
    ((1, 5, 1, 0, {}), "since or epoch moved back"),
    ((1, 5, 4, 0, {}), "since is 4, retention keeps 3"),
    ((1, 5, 2, -1, {}), "since or epoch moved back"),
]


@pytest.mark.parametrize(("version", "complaint"), VERSIONS)
def test_versions_that_break_a_hold_or_go_back_are_named(version, complaint):
    seqno, upper, since, epoch, holds = version
    versions = [
        Version("s", 1, 0, 5, 2, 0),
        Version("s", 2, seqno, upper, since, epoch, holds, allowed=3),
    ]
    assert complaint in "\n".join(checkers.holds_respected(given(versions=versions)))


STORED = [
    ("applied", [], "is not stored as it was given"),
    ("applied", [(0, "b")], "is not stored as it was given"),
    ("applied", [(0, "a"), (1, "a")], "is stored 2 times"),
    ("applied", [(3, "a")], "is stored at [3] instead"),
    ("unknown", [(0, "a"), (1, "a")], "is stored 2 times"),
    ("refused", [(0, "a")], "is stored 1 times, at [0]"),
    ("mismatch", [(0, "a")], "is stored 1 times, at [0]"),
    ("applied", [(0, "a"), (1, "z")], "nobody appended what is stored at [1]"),
    ("applied", [(0, "a")], ""),
    ("unknown", [], ""),
    ("unknown", [(0, "a")], ""),
    ("refused", [], ""),
]


@pytest.mark.parametrize(("result", "stored", "complaint"), STORED)
def test_what_is_stored_is_what_was_acknowledged(result, stored, complaint):
    text = f"by start end result lower upper row time\nw1 1 2 {result} 0 1 a 0"
    committed = [Committed("s", 1, lower, ((row, lower, 1),)) for lower, row in stored]
    found = "\n".join(checkers.stored_as_acknowledged(given(text, committed=committed)))
    assert complaint in found
    assert bool(found) is bool(complaint)


def test_replicas_append_the_same_rows_and_they_are_stored_once():
    text = """
        by  start  end  result    lower  upper  row  time
        p1  1      2    mismatch  0      1      a    0
        p2  1      3    applied   0      1      a    0
        p3  2      9    unknown   0      1      a    0
    """
    once = [Committed("s", 1, 0, (("a", 0, 1),))]
    assert checkers.stored_as_acknowledged(given(text, committed=once)) == []
    assert checkers.stored_as_acknowledged(given(text, committed=once * 3))


def test_half_a_transaction_is_named():
    text = """
        shard  by  start  end  result   lower  upper  row  time  group
        s      w   1      2    unknown  0      1      a    0     t1
        t      w   1      2    unknown  0      1      b    0     t1
    """
    history = given(text, reads=[(0, "a")])
    assert checkers.atomic_groups(history) == []
    history.reads.append(Read("t", "r", 1, 2, 0, {}))
    assert "t1 is in some of its shards only" in checkers.atomic_groups(history)[0]
    history.appends[0] = Line("w", 1, 2, "applied", 0, 1, "a", 0, group="t1").append()
    assert "ended as ['APPLIED', 'UNKNOWN']" in checkers.atomic_groups(history)[0]


def test_a_deleted_object_that_was_held_is_named():
    deleted = [Deleted("s", "k1", 5), Deleted("s", "k2", 6, ("v7 refers to it",))]
    wrong = checkers.held_objects_stay(given(deleted=deleted))
    assert wrong == ["k2 was deleted at 6 although v7 refers to it"]


def _batch(result, row="a"):
    call = Line("w", 1, 2, result, row=row, time=0).append()
    return replace(call, batch="batch 3 of query")


@pytest.mark.parametrize(
    ("results", "times", "wrong"),
    [
        (["applied"], 1, ""),
        (["unknown"], 0, ""),
        (["unknown", "unknown", "repeated"], 1, ""),
        (["unknown", "applied", "repeated"], 1, ""),
        (["unknown", "applied"], 2, "is stored 2 times"),
        (["applied", "applied"], 1, "2 were told"),
        (["unknown", "repeated"], 0, "is not stored"),
    ],
)
def test_a_batch_that_counts_twice_or_never_is_named(results, times, wrong):
    history = given(committed=[Committed("s", 1, 0, (("a", 0, 1),))] * times)
    history.appends += [_batch(result) for result in results]
    found = checkers.batches_count_once(history)
    assert [wrong in each for each in found] == ([True] if wrong else [])


def test_a_term_that_ends_early_is_named():
    kept = Term("s", "r1", 0, 500)
    terms = {
        "r1": kept,
        "r2": replace(kept, ended_ms=500),
        "r3": replace(kept, ended_ms=7, given_back=True),
    }
    assert checkers.terms_last(given(terms=terms)) == []
    terms["r4"] = replace(kept, reader="r4", ended_ms=499)
    assert checkers.terms_last(given(terms=terms)) == ["the term r4 of s ended at 499, not at 500"]


def test_all_checkers_run_together():
    history = given(GOOD, reads=[(2, "a")], deleted=[Deleted("s", "k", 1, ("v7 needs it",))])
    with pytest.raises(checkers.HistoryError, match=r"(?s)nothing_lost: .*held_objects_stay: "):
        checkers.check_history(history)


def test_every_checker_is_run():
    public = [value for name, value in vars(checkers).items()
              if callable(value) and getattr(value, "__module__", "") == checkers.__name__
              and not name.startswith("_") and not isinstance(value, type)]  # fmt: skip
    assert set(public) - {checkers.check_history} == set(checkers.CHECKERS)
