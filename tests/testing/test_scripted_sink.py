"""The target in memory does as it is told; that it keeps the contract `check_sink` says."""

from __future__ import annotations

import pytest

from strandline.connectors.sink import Progress
from strandline.errors import SinkError, SinkFencedError
from strandline.testing.conformance_sink import WHAT, changes
from strandline.testing.scripted_sink import LATE, ScriptedSink, ScriptedTarget


def late(step: str) -> str | None:
    return LATE if step == "commit" else None


@pytest.mark.parametrize("replaced", [False, True])
def test_s80_a_late_commit_lands_unless_its_sender_was_shut_out(*, replaced: bool) -> None:
    target = ScriptedTarget()
    sink = ScriptedSink(target, WHAT, late)
    sink.prepare()
    sink.found(Progress(-1, 1))
    with pytest.raises(SinkError, match="not answered"):
        sink.deliver(0, 1, changes(0))
    if replaced:
        ScriptedSink(target, WHAT).prepare()
    target.land()
    assert [each.t for each in target.log(WHAT).landed] == ([] if replaced else [0])


def test_who_was_shut_out_is_told_and_counted() -> None:
    target = ScriptedTarget()
    old, new = ScriptedSink(target, WHAT), ScriptedSink(target, WHAT)
    old.prepare()
    new.prepare()
    with pytest.raises(SinkFencedError):
        old.deliver(0, 1, changes(0))
    assert target.log(WHAT).fenced == 1


def test_progress_can_be_lost_alone() -> None:
    target = ScriptedTarget()
    sink = ScriptedSink(target, WHAT)
    sink.prepare()
    sink.deliver(0, 1, changes(0))
    target.forget(WHAT)
    assert sink.progress() is None
    assert len(target.log(WHAT).landed) == 1
