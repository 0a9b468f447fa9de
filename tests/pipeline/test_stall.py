"""A replica that stands still although there is work is stalled, whatever its loop says."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from strandline.model.frontier import Frontier
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.stall import MAY_STALL, Sight, has_work, judged, sink_judged
from strandline.pipeline.states import MOVES, SAME, Event, SinkState, State

SETTINGS = PipelineSettings(stall_ms=45_000, delay_ms=1_000)
IDLE = Sight(State.RUNNING, "", Frontier(3), still_ms=60_000)
WORK = {
    "sealed": replace(IDLE, sealed=3),
    "offered": replace(IDLE, offered=True),
    "step": replace(IDLE, doing="computing transaction 3", doing_ms=60_000),
    "trouble": replace(IDLE, cause="SourceError: no broker"),
}
WORDS = {
    "sealed": "nobody has committed what is sealed for 60 s; committed up to {3}, 3 is sealed",
    "offered": "rows are offered, and nobody has sealed them for 60 s; committed up to {3}",
    "step": "computing transaction 3 for 60 s; committed up to {3}",
    "trouble": "SourceError: no broker; committed up to {3}",
}


@pytest.mark.parametrize("name", WORK)
def test_each_kind_of_work_that_does_not_go_on_is_a_stall(name: str) -> None:
    assert has_work(WORK[name])
    assert judged(WORK[name], SETTINGS) == (State.STALLED, WORDS[name])


@pytest.mark.parametrize("name", WORK)
def test_it_takes_a_while(name: str) -> None:
    patience = SETTINGS.stall_ms + (SETTINGS.delay_ms if name == "offered" else 0)
    young, old = (replace(WORK[name], still_ms=patience - off, doing_ms=0) for off in (1, 0))
    assert judged(young, SETTINGS) == (young.state, young.cause)
    assert judged(old, SETTINGS)[0] is State.STALLED


def test_steps_while_rows_wait_for_more_are_no_stall_and_one_that_hangs_is() -> None:
    waits = replace(IDLE, offered=True, doing="asking the sources", still_ms=299_000)
    settings = PipelineSettings(stall_ms=45_000, delay_ms=300_000)
    assert judged(replace(waits, doing_ms=1_500), settings)[0] is State.RUNNING
    state, cause = judged(replace(waits, doing_ms=45_000), settings)
    assert (state, cause) == (State.STALLED, "asking the sources for 45 s; committed up to {3}")


def test_nothing_to_do_is_no_stall() -> None:
    assert not has_work(IDLE)
    assert judged(IDLE, SETTINGS) == (State.RUNNING, "")


@pytest.mark.parametrize(("state", "name"), list(product(State, WORK)))
def test_every_state_is_told_by_a_legal_move_or_as_it_is(state: State, name: str) -> None:
    found, cause = judged(replace(WORK[name], state=state), SETTINGS)
    if state in MAY_STALL:
        assert found is MOVES.get((state, Event.STALL), state)
        assert (state, Event.STALL) in MOVES or (state, Event.STALL) in SAME
        assert cause == WORDS[name]
    else:
        assert (found, cause) == (state, WORK[name].cause)


def test_all_that_live_and_are_not_paused_may_stall() -> None:
    assert {pair[0] for pair in {*MOVES, *SAME} if pair[1] is Event.STALL} == set(MAY_STALL)


@pytest.mark.parametrize(
    ("doing", "doing_ms", "cause", "expected"),
    [
        ("", 0, "", ("publishing", "")),
        ("delivering t=7", 44_999, "", ("publishing", "")),
        ("delivering t=7", 75_000, "", ("stalled", "delivering t=7 for 75 s")),
        ("delivering t=7", 75_000, "x", ("stalled", "delivering t=7 for 75 s; before that: x")),
    ],
)
def test_a_publisher_that_is_at_one_thing_for_too_long_is_stalled(
    doing: str, doing_ms: int, cause: str, expected: tuple[str, str]
) -> None:
    assert sink_judged(SinkState.PUBLISHING, cause, doing, doing_ms, SETTINGS) == expected
