"""What is said is believed for a few seconds, and read by older and newer versions."""

from __future__ import annotations

import msgspec

from strandline.pipeline.said import SILENT, SILENT_MS, Said, SinkSaid, seen
from strandline.pipeline.states import LIVING, State


def said(state: str, at_ms: int = 0) -> Said:
    return Said("t", "host", 7, False, 0, at_ms, state=state)


def test_whoever_lived_and_says_nothing_is_silent() -> None:
    for state in State:
        young, old = seen("a", said(state), SILENT_MS), seen("a", said(state), SILENT_MS + 1)
        assert (young.state, young.alive) == (state, state in LIVING)
        assert old.state == (SILENT if state in LIVING else state)
        assert not old.alive


def test_a_clock_that_was_set_back_makes_nobody_younger_than_now() -> None:
    assert seen("a", said("running", at_ms=9_000), 1_000).silent_ms == 0


def test_what_older_versions_said_is_read() -> None:
    old = ["t", "host", 7, False, 1, 2, "running", "", 3, None, 1, "p", 4, 0, None]
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=Said)
    assert (found.state, found.transactions, found.sinks) == ("running", 4, ())


def test_what_newer_versions_say_more_is_left_out() -> None:
    whole = msgspec.structs.replace(said("running"), sinks=(SinkSaid("out", "publishing"),))
    more = [*msgspec.msgpack.decode(msgspec.msgpack.encode(whole)), "something new"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(more), type=Said) == whole
