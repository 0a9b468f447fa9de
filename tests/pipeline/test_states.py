"""Every pair of state and event is legal, harmless, or refused by name (S93)."""

from __future__ import annotations

from itertools import product

import pytest

from strandline.errors import InvariantError
from strandline.pipeline.states import LIVING, MOVES, SAME, Event, State, moved

PAIRS = list(product(State, Event))


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_s93_every_pair_is_decided(state: State, event: Event) -> None:
    if (state, event) in MOVES:
        assert (state, event) not in SAME
        assert moved(state, event) is MOVES[state, event]
    elif (state, event) in SAME:
        assert moved(state, event) is state
    else:
        with pytest.raises(InvariantError, match=f"{state} can't take {event}"):
            moved(state, event)


def test_a_replica_that_ended_stays_ended() -> None:
    ended = set(State) - set(LIVING)
    assert ended == {State.STOPPED, State.FAILED, State.FENCED}
    assert not [pair for pair in MOVES if pair[0] in ended]


def test_running_comes_only_after_catching_up_or_from_a_stall() -> None:
    ways = {pair for pair, after in MOVES.items() if after is State.RUNNING}
    assert ways == {(State.STARTING, Event.CAUGHT_UP), (State.STALLED, Event.PROGRESS)}


def test_stopped_comes_only_after_stopping() -> None:
    assert [pair for pair, after in MOVES.items() if after is State.STOPPED] == [
        (State.STOPPING, Event.STOPPED)
    ]
