"""What a replica may be doing, and which moves are legal: one table. Pure.

state                            event       then
-----------------------------    ---------   --------
starting                         caught_up   running: what is committed is visible
starting, running                stall       stalled: its frontier stands, there is work
stalled                          progress    running
starting, running, stalled       pause       paused
paused                           resume      starting: it catches up, as after a start
starting, running, stalled,      stop        stopping
  paused
stopping                         stopped     stopped: its checkpoint is durable
all of these                     fail        failed, with the reason
all of these                     fence       fenced: a newer generation took over

A publisher's states (`SinkState`) need no table: each of its turns says anew what it is.
"""

from __future__ import annotations

from enum import StrEnum

from strandline.errors import InvariantError


class State(StrEnum):
    """What a replica says that it is doing."""

    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    FENCED = "fenced"


class Event(StrEnum):
    """What moves a replica from one state to another."""

    CAUGHT_UP = "caught_up"
    STALL = "stall"
    PROGRESS = "progress"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    STOPPED = "stopped"
    FAIL = "fail"
    FENCE = "fence"


class SinkState(StrEnum):
    """What a publisher says of itself."""

    STARTING = "starting"
    WAITING = "waiting"
    """Another replica publishes."""
    PUBLISHING = "publishing"
    RETRYING = "retrying"
    STALLED = "stalled"
    """It is at one thing for too long; see `stall`."""
    BLOCKED = "blocked"
    """The view can't be read at its newest times."""
    PAUSED = "paused"
    """Somebody asked for that; see `requests`."""
    STOPPED = "stopped"
    """It can't go on until somebody has looked; the cause says at what."""
    ENDED = "ended"


LIVING = (State.STARTING, State.RUNNING, State.STALLED, State.PAUSED, State.STOPPING)

MOVES: dict[tuple[State, Event], State] = {
    (State.STARTING, Event.CAUGHT_UP): State.RUNNING,
    (State.STARTING, Event.PAUSE): State.PAUSED,
    (State.STARTING, Event.STALL): State.STALLED,
    (State.RUNNING, Event.PAUSE): State.PAUSED,
    (State.RUNNING, Event.STALL): State.STALLED,
    (State.STALLED, Event.PROGRESS): State.RUNNING,
    (State.STALLED, Event.PAUSE): State.PAUSED,
    (State.PAUSED, Event.RESUME): State.STARTING,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.RUNNING, Event.STOP): State.STOPPING,
    (State.STALLED, Event.STOP): State.STOPPING,
    (State.PAUSED, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.STOPPED): State.STOPPED,
    **{(state, Event.FAIL): State.FAILED for state in LIVING},
    **{(state, Event.FENCE): State.FENCED for state in LIVING},
}
SAME: frozenset[tuple[State, Event]] = frozenset(
    {
        (State.STARTING, Event.PROGRESS),
        (State.RUNNING, Event.PROGRESS),
        (State.RUNNING, Event.CAUGHT_UP),
        (State.STALLED, Event.STALL),
        (State.PAUSED, Event.PAUSE),
        (State.STOPPING, Event.STOP),
        (State.STOPPING, Event.PROGRESS),
        (State.STOPPING, Event.CAUGHT_UP),
        (State.STOPPING, Event.STALL),
        (State.STOPPED, Event.STOP),
    }
)
"""Events that are legal and change nothing."""


def moved(state: State, event: Event) -> State:
    """The state after an event; a move that is not in the table is a bug, by name."""
    if (state, event) in SAME:
        return state
    after = MOVES.get((state, event))
    if after is None:
        raise InvariantError(f"a replica that is {state} can't take {event}")
    return after
