"""Whether a replica stands still although there is work: the decision behind `stalled`. Pure.

what is to be seen, `stall_ms` after the last commit     then
-----------------------------------------------------    ----------------------------------------
a step goes on, or one began that long ago               stalled: what it is at, and for how long
steps fail                                               stalled: the error of the last one
a transaction is sealed                                  stalled: nobody commits it
rows are offered, and `delay_ms` more is over            stalled: nobody seals them
nothing of these; or it is paused, or has ended          as it says itself

Whoever asks decides, and not the loop: a loop that hangs can't say so. It ends with the reason
for it, so nobody has to be told that it is over. A publisher is judged by the same rule: one call
that goes on for `stall_ms`, of its target or of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.pipeline.states import Event, SinkState, State, moved

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier, Time
    from strandline.pipeline.settings import PipelineSettings

MAY_STALL = (State.STARTING, State.RUNNING, State.STALLED, State.STOPPING)


@dataclass(frozen=True, slots=True)
class Sight:
    """What is to be seen of a replica at one moment."""

    state: State
    """What it says itself."""
    cause: str
    committed: Frontier
    sealed: Time | None = None
    """The oldest time of which it holds something that is not committed."""
    offered: bool = False
    """Whether rows wait to be sealed."""
    doing: str = ""
    """What it is at; empty between two steps."""
    doing_ms: float = 0
    still_ms: float = 0
    """Since the last commit, or since there is something to do, whatever is later."""


def has_work(sight: Sight) -> bool:
    return bool(sight.sealed is not None or sight.offered or sight.doing or sight.cause)


def judged(sight: Sight, settings: PipelineSettings) -> tuple[State, str]:
    """What a replica is, and why."""
    if not _stands(sight, settings):
        return sight.state, sight.cause
    return moved(sight.state, Event.STALL), f"{_why(sight)}; {_where(sight)}"


def sink_judged(
    state: SinkState, cause: str, doing: str, doing_ms: float, settings: PipelineSettings
) -> tuple[SinkState, str]:
    """What a publisher is, and why; `doing` is what it is at, empty between two calls."""
    if not doing or doing_ms < settings.stall_ms:
        return state, cause
    why = f"{doing} for {doing_ms / 1000:.0f} s"
    return SinkState.STALLED, f"{why}; before that: {cause}" if cause else why


def _stands(sight: Sight, settings: PipelineSettings) -> bool:
    if sight.state not in MAY_STALL or not has_work(sight):
        return False
    waits = sight.sealed is None and sight.offered
    patience_ms = settings.stall_ms + (settings.delay_ms if waits else 0)
    return sight.still_ms >= patience_ms or sight.doing_ms >= settings.stall_ms


def _why(sight: Sight) -> str:
    seconds = f"for {sight.still_ms / 1000:.0f} s"
    if sight.cause:
        return sight.cause
    if sight.doing:
        return f"{sight.doing} for {sight.doing_ms / 1000:.0f} s"
    if sight.sealed is not None:
        return f"nobody has committed what is sealed {seconds}"
    return f"rows are offered, and nobody has sealed them {seconds}"


def _where(sight: Sight) -> str:
    text = f"committed up to {sight.committed}"
    return text if sight.sealed is None else f"{text}, {sight.sealed} is sealed"
