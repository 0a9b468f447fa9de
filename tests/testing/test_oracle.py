"""What a reader may see follows from what the writers were told."""

import pytest

from strandline.testing.history import NO_TIME, Append, Result
from strandline.testing.oracle import Oracle


def call(result, *updates, by="w", group=""):
    return Append("s", by, 1, 2, result, None, None, updates, group=group)


SURE = call(Result.APPLIED, ("a", 1, 1), ("b", 3, 2))
LATER = call(Result.APPLIED, ("a", 4, -1))
MAYBE = call(Result.UNKNOWN, ("m", 2, 1), ("b", 2, -1))
MAYBE_WHEN = call(Result.UNKNOWN, ("n", NO_TIME, 1))
NEVER = call(Result.REFUSED, ("x", 1, 1))


@pytest.mark.parametrize(
    ("content", "upto", "after", "explained"),
    [
        ({}, 0, -1, True),
        ({"a": 1}, 1, -1, True),
        ({"a": 1, "x": 1}, 1, -1, False),  # What was refused is not there,
        ({"a": 1, "b": 2}, 3, -1, True),
        ({"a": 1, "b": 1}, 3, -1, False),  # nothing is half there,
        ({"a": 1, "b": 1, "m": 1}, 3, -1, True),  # what may be there is there as a whole,
        ({"a": 1, "b": 2, "m": 1}, 3, -1, False),
        ({"a": 1, "b": 2, "n": 1}, 3, -1, True),
        ({"a": 1, "b": 2, "n": 2}, 3, -1, False),  # once,
        ({"b": 2}, 4, -1, True),  # and retractions count.
        ({"a": 0, "b": 2}, 4, -1, True),
        ({"a": -1}, 4, 3, True),  # Between two times only what happened there.
        ({"a": 1, "b": 2}, 4, 3, False),
    ],
)
def test_what_was_seen_must_be_explained(content, upto, after, explained):
    oracle = Oracle("s", [SURE, LATER, MAYBE, MAYBE_WHEN, NEVER])
    assert (oracle.explain(content, upto, after=after) == "") is explained


def test_other_shards_explain_nothing():
    assert Oracle("t", [SURE]).explain({"a": 1}, 9) == "a is too many (+1)"


def test_an_unknown_append_stays_where_it_was_seen():
    oracle = Oracle("s", [MAYBE_WHEN])
    oracle.explain({}, 4)
    oracle.explain({"n": 1}, 5)
    assert oracle.contradictions() == []
    oracle.explain({}, 7)
    assert "is in as of 5 and out as of 7" in oracle.contradictions()[0]


def test_the_presence_of_a_group_is_remembered():
    oracle = Oracle("s", [call(Result.UNKNOWN, ("g", 2, 1), group="t1")])
    assert oracle.presence("t1") == set()
    oracle.explain({"g": 1}, 2)
    assert oracle.presence("t1") == {True}
    oracle.explain({}, 3)
    assert oracle.presence("t1") == {True, False}
    assert oracle.presence("t2") == set()
