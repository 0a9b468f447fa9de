"""How a sink is, seen from any process: by its record in the store, and by what replicas say. Pure.

who says it                                     state
--------------------------------------------    ------------------------------------------------
the living replica that has the claim           what it says
no such, others live                            the best of what they say
nobody lives, the last word was `stopped`       stopped: somebody has to look, also now
nobody lives                                    ended
whoever it is, and somebody has paused it       paused, unless it has stopped

A word about another lineage is about another history, and counts for nothing. How far it is comes
from the record, which outlives everybody; whoever has the claim may be a second further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.connectors.sink import NOTHING_YET
from strandline.pipeline.states import SinkState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.frontier import Frontier, Time
    from strandline.pipeline.claim import Claim
    from strandline.pipeline.said import Seen, SinkSaid

DELIVERED, UNCHANGED, PENDING = "delivered", "no change", "pending"
_BEST_FIRST = (
    SinkState.PUBLISHING,
    SinkState.BLOCKED,
    SinkState.RETRYING,
    SinkState.STALLED,
    SinkState.STARTING,
    SinkState.WAITING,
    SinkState.PAUSED,
    SinkState.ENDED,
    SinkState.STOPPED,
)


@dataclass(frozen=True, slots=True)
class SinkSight:
    """What there is to know about a sink before anybody is asked."""

    name: str
    source: str
    connector: str
    lineage: str
    """Empty before the program was promoted."""
    claim: Claim
    paused: bool
    since: Time = 0
    """From which time on its collection means what it means now."""


@dataclass(frozen=True, slots=True)
class SinkReport:
    """How a sink is."""

    name: str
    source: str
    """The table or the view that it publishes."""
    connector: str
    state: str
    cause: str
    """Why it is retrying, stalled, blocked or stopped; empty while all is well."""
    paused: bool
    """Whether somebody asked for that."""
    publisher: str | None
    """The replica that publishes it."""
    delivered: Time | None
    """The last transaction that is known to be in the target; `None` before the first."""
    reached: Time | None
    """Every transaction up to here is delivered, or has no changes."""
    behind: int
    """How many committed transactions it has not reached."""
    retries: int
    """How often in a row it was tried in vain."""
    still_seconds: float
    """For how long there was something to deliver, and nothing was."""
    lag_seconds: float | None = None
    """Since the first transaction was committed that it has not reached; `None` if that is not on
    record any more."""

    @property
    def stopped(self) -> bool:
        return self.state == SinkState.STOPPED


def report_of(sight: SinkSight, replicas: Sequence[Seen], committed: Frontier) -> SinkReport:
    """How a sink is, by all that is known of it."""
    words = _words(sight, replicas)
    living = [each for each in words if each[0].alive]
    owner = next((each for each in living if _owns(each[1], sight.claim)), None)
    seen, said = owner or _best(living) or _last(words)
    state = _state(sight, living, said)
    mark = sight.claim.marks.get(sight.lineage)
    done, reached = (NOTHING_YET,) * 2 if mark is None else (mark.done, mark.reached)
    # What others saw may be past: whoever has the claim finds out that a target was set back.
    reached = max(done, reached, NOTHING_YET if owner is None else owner[1].reached)
    last = committed.last()
    behind = 0 if last is None else max(0, last - max(reached, sight.since - 1))
    return SinkReport(
        sight.name,
        sight.source,
        sight.connector,
        state,
        "" if said is None else said.cause.removeprefix(f"sink {sight.name}: "),
        sight.paused,
        None if owner is None or seen is None else seen.name,
        None if done == NOTHING_YET else done,
        None if reached == NOTHING_YET else reached,
        behind,
        0 if said is None else said.retries,
        said.still_ms / 1000 if said is not None and living and behind else 0.0,
    )


def trouble_of(sinks: Sequence[SinkReport]) -> str:
    """What a pipeline says of sinks that have stopped, while it may itself go on."""
    return "; ".join(
        f"sink {each.name} has stopped: {each.cause}" for each in sinks if each.stopped
    )


def fate_of(sight: SinkSight, t: Time, *, changed: bool) -> str | None:
    """What became of a transaction in a sink; `None` if it is older than what the sink publishes.

    What a sink began with, or what came while its view could not be read, is delivered with a
    later transaction.
    """
    if not sight.lineage or t < sight.since:
        return None
    if not changed:
        return UNCHANGED
    mark = sight.claim.marks.get(sight.lineage)
    reached = NOTHING_YET if mark is None else max(mark.reached, mark.done)
    return DELIVERED if t <= reached else PENDING


def _words(sight: SinkSight, replicas: Sequence[Seen]) -> list[tuple[Seen, SinkSaid]]:
    return [
        (replica, said)
        for replica in replicas
        for said in replica.said.sinks
        if said.name == sight.name and said.lineage in {"", sight.lineage}
    ]


def _owns(said: SinkSaid, claim: Claim) -> bool:
    return bool(said.owner) and said.owner == claim.owner


def _best(words: Sequence[tuple[Seen, SinkSaid]]) -> tuple[Seen, SinkSaid] | None:
    return min(words, key=lambda each: _rank(each[1].state), default=None)


def _rank(state: str) -> int:
    """Where a state stands; one of a newer version comes last."""
    return _BEST_FIRST.index(SinkState(state)) if state in list(SinkState) else len(_BEST_FIRST)


def _last(words: Sequence[tuple[Seen, SinkSaid]]) -> tuple[Seen | None, SinkSaid | None]:
    """The last word of those that are gone, if it is that somebody has to look."""
    newest = max(words, key=lambda each: each[0].said.at_ms, default=None)
    if newest is None or newest[1].state != SinkState.STOPPED:
        return None, None
    return newest


def _state(sight: SinkSight, living: Sequence[tuple[Seen, SinkSaid]], said: SinkSaid | None) -> str:
    state = SinkState.ENDED if said is None else said.state
    if state == SinkState.STOPPED:
        return state
    if sight.paused and (not living or state == SinkState.PAUSED):
        return SinkState.PAUSED
    return state
