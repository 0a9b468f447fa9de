"""Who holds a shard back is said by name, and so is what bounds its since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.cli.facts import Sight, instant
from strandline.cli.holding import bounds, holds_document
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.pulse import Pulse, Status
from strandline.shard.retention import Aged
from strandline.shard.state import Retention
from strandline.testing import toy

HOUR_MS = 3_600_000
LIVE = Pulse(0, 0, Status.LIVE, 8, 60_000, "host-a 4711")


@pytest.fixture
def state():
    """Four settled times, at the instant 1000; nothing holds them but the rule of a week."""
    state = toy.created()
    for time in range(4):
        append = toy.toy_append([(time, time, 1)], lower=time, upper=time + 1, token=f"t{time}")
        state = toy.step(state, append)
    return state


def sight(state, now_ms=1_000 + HOUR_MS):
    return Sight(state, state.upper, now_ms, 1_000)


def retained(state, duration_ms):
    return toy.step(state, c.Retain(Retention(duration_ms, None)))


def read_by(state, since, reader=toy.R1):
    return toy.step(state, c.RegisterReader(reader, "0.0", since, "a report"))


def test_the_tightest_bound_comes_first(state):
    short = retained(state, 60_000)
    assert [(b.kind, b.time) for b in bounds(sight(short))] == [("newest", 3)]
    assert [(b.kind, b.time) for b in bounds(sight(state))] == [("retention", 0), ("newest", 3)]
    held = toy.step(read_by(short, 2), c.Hold("quarter", 1, 0, "for the books"))
    assert [(b.kind, b.time) for b in bounds(sight(held))] == [
        ("hold", 1),
        ("reader", 2),
        ("newest", 3),
    ]


def test_a_reader_that_holds_only_objects_bounds_no_time(state):
    free = read_by(retained(state, 60_000), None)
    assert bounds(sight(free))[0].kind == "newest"


def test_what_bounds_since_is_in_the_document(state):
    held = read_by(retained(state, 60_000), 2)
    document = holds_document(sight(held), {"0.0": LIVE}, 4)
    assert document["bounded_by"] == {"kind": "reader", "name": toy.R1, "time": 2}
    assert document["readers"] == [
        {
            "id": toy.R1,
            "purpose": "a report",
            "since": 2,
            "version": held.readers[toy.R1].seqno,
            "until": None,
            "pulse": "0.0",
            "host": "host-a",
            "pid": 4711,
            "status": "alive",
            "age_seconds": 120,
        }
    ]


@pytest.mark.parametrize(
    ("pulse", "status", "pid"),
    [
        (None, "gone", None),
        (Pulse(0, 0, Status.ENDED, 8, 60_000, "host-a 1"), "gone", None),
        (Pulse(0, 1, Status.LIVE, 0, 60_000, "host-b 2"), "gone", None),
        (Pulse(0, 0, Status.LIVE, 8, 60_000, "host-a 1", 7, 1_000), "alive", 1),
        (Pulse(0, 0, Status.LIVE, 8, 60_000, "host-a 1", 8, HOUR_MS), "silent for 1 s", 1),
        (Pulse(0, 0, Status.LIVE, 8, 60_000, "nameless"), "alive", None),
    ],
)
def test_a_holder_is_alive_silent_or_gone(state, pulse, status, pid):
    document = holds_document(sight(read_by(state, 2)), {"0.0": pulse}, 4)
    for role in ("readers", "writers"):
        assert [(each["status"], each["pid"]) for each in document[role]] == [(status, pid)]


def test_a_writer_is_shown_with_its_last_append(state):
    idle = toy.step(state, c.RegisterWriter(toy.W2, "0.0", "idle"))
    writers = holds_document(sight(idle), {}, 4)["writers"]
    assert [(each["id"], each["last_append"]) for each in writers] == [
        (toy.W1, 3),
        (toy.W2, None),
    ]


def test_garbage_says_who_keeps_it(state):
    first = toy.step(state, toy.toy_append([(9, 4, 1)], lower=4, upper=5, token="p", key="old"))
    read = read_by(first, None)
    swap = c.Replace(
        toy.W1,
        remove_parts=frozenset({"old"}),
        parts=(toy.toy_part("new", [(9, 4, 1)]),),
        garbage=("old",),
    )
    swapped = toy.step(read, swap)
    garbage = holds_document(sight(swapped), {}, 4)["garbage"]
    assert garbage == {"objects": 1, "held": 1, "held_by": [toy.R1]}
    moved = toy.step(swapped, c.Downgrade({toy.R1: (None, swapped.garbage[0].seqno)}))
    garbage = holds_document(sight(moved), {}, 4)["garbage"]
    assert garbage == {"objects": 1, "held": 0, "held_by": []}
    released = toy.step(swapped, c.Release(readers=(toy.R1,)))
    garbage = holds_document(sight(released), {}, 4)["garbage"]
    assert garbage == {"objects": 1, "held": 0, "held_by": []}


def test_the_upper_that_readers_see_bounds_since(state):
    early = Sight(retained(state, 60_000), Frontier(2), 1_000 + HOUR_MS, 1_000)
    assert bounds(early)[0].kind == "newest"


def test_what_an_attached_shard_keeps_by_age_is_bounded_by_its_rule(state):
    """Its rows are old, and were committed just now."""
    attached = toy.step(retained(state, 60_000), c.Attach("line", Frontier(4)))
    seen = replace(sight(attached), aged=Aged(60_000, 1))
    assert [(b.kind, b.time) for b in bounds(seen)] == [("retention", 1), ("newest", 3)]
    old = replace(seen, aged=Aged(60_000, 3))
    assert [(b.kind, b.time) for b in bounds(old)] == [("newest", 3)]


def test_a_term_is_shown_with_its_end_and_no_process(state):
    end_ms = 1_000 + HOUR_MS
    held = toy.step(state, c.RegisterTerm(toy.R1, 2, 1_000, HOUR_MS, "a plan"))
    for now_ms, status in ((end_ms - 1, f"until {instant(end_ms)}"), (end_ms, "ended")):
        (reader,) = holds_document(sight(held, now_ms), {}, 4)["readers"]
        assert (reader["until"], reader["status"]) == (instant(end_ms), status)
        assert (reader["pulse"], reader["host"], reader["pid"]) == (None, "", None)
