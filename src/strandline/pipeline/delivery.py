"""Where a sink goes on, and whether a transaction is for it. Pure.

The target's own progress decides (`started`); the store's record of intents is asked only when
the target has none, or says what nobody intended:

    on record              target's progress        then
    -------------------    ----------------------   ------------------------------------------
    nothing                none                     Found: leave a first mark, begin
    nothing                nothing yet              Go: the mark was left and not recorded
    founded, intent=done   none                     Found: it is lost, and nothing is in doubt
    founded, intent>done   none                     Stop: the intent may have been delivered;
                                                    Found at done, if it may be delivered again
    any                    t <= intent              Go: after t
    any                    t > intent               Stop: somebody else writes there, or the
                                                    store is older than its target
    an epoch above ours, here or there              Fence: a newer generation publishes

`verdict` of a transaction at t, with changes, where the one with changes before it is `before`:

    t <= progress                LATE     it is there: drop it
    before <= progress < t       DUE      deliver it
    progress < before            EARLY    something is missing in between: read from progress on

Intent(t) is on record before a delivery and done(t) after it. The epoch only grows, and so does
the intent: a delivery that was not answered may land later, where opening the target shuts nobody
out, and meanwhile a shorter one may be begun (of an interval, the part that is there by then). So
what is done may be less than the last intent, and then that one is in doubt. Done grows as well
while the target does not go back; a transaction without changes has neither.

What was reached beyond that is on record now and then: all that came since has no changes for the
sink. It is true of a target that has what is done, so a publisher of that one goes on from there
(`onward`), and history up to there is held for nobody (`frees`). A target that was set back to
before what is done has not reached it (`confirmed`), and gets what came since again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import InvariantError, invariant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.model.frontier import Time

_TRIES = 4
_HELD_MAX_MS = 600_000
"""For so long what has no changes for a sink may be held for it, however few transactions that are.
A delivery lets go of all that was before it, and so does a restart."""


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What is on record in the store about one lineage of a sink."""

    epoch: int = 0
    intent: int = NOTHING_YET
    """The latest transaction whose delivery was begun, or may have been."""
    done: int = NOTHING_YET
    """The last one that is known to be delivered."""
    reached: int = NOTHING_YET
    """Everything up to here is delivered, or has no changes. May lag: it costs no write."""
    raises: int = NOTHING_YET
    """Up to here it was looked, and the collection can't be read there; -1 if it can. May lag."""


class Verdict(StrEnum):
    """What a transaction is to a sink."""

    LATE = "late"
    DUE = "due"
    EARLY = "early"


@dataclass(frozen=True, slots=True)
class Found:
    """Leave a mark at `at`, put it on record, and go on after it."""

    at: Progress


@dataclass(frozen=True, slots=True)
class Go:
    """Go on after what the target has."""

    after: Time


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing is published until somebody has looked."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fence:
    """A newer generation publishes: look at the claim, and at the epoch."""

    epoch: int


Start = Found | Go | Stop | Fence


def started(
    mark: Mark | None,
    progress: Progress | None,
    epoch: int,
    *,
    again: bool = False,
    newest: int = 0,
) -> Start:
    """Where a publisher of this epoch goes on; the table above.

    `again`: at least once will do. `newest`: the highest epoch on record for any lineage.
    """
    here = 0 if mark is None else mark.epoch
    seen = max(here, newest, 0 if progress is None else progress.epoch)
    if seen > epoch:
        return Fence(seen)
    intent = NOTHING_YET if mark is None else mark.intent
    if progress is not None:
        if progress.t > intent:
            return Stop(_unintended(progress.t, intent))
        return Go(progress.t)
    if mark is None:
        return Found(Progress(NOTHING_YET, epoch))
    if mark.intent != mark.done and not again:
        return Stop(_in_doubt(mark))
    return Found(Progress(mark.done, epoch))


def verdict(t: Time, before: Time, progress: Time) -> Verdict:
    """What a transaction with changes is to a target that has everything up to `progress`."""
    invariant(before < t, "transactions are in order")
    if t <= progress:
        return Verdict.LATE
    return Verdict.DUE if before <= progress else Verdict.EARLY


def onward(mark: Mark | None, progress: Time) -> Time:
    """Up to where a target with this progress has everything, by what is on record.

    One that has nothing yet is not told of here: it begins with all that there is.
    """
    if mark is None or progress == NOTHING_YET or progress < mark.done:
        return progress
    return max(progress, mark.reached)


def last_done(marks: Mapping[str, Mark], lineage: str) -> Time:
    """The last delivery of a lineage that is known to have arrived."""
    mark = marks.get(lineage)
    return NOTHING_YET if mark is None else mark.done


def replaces(marks: Mapping[str, Mark], lineage: str) -> bool:
    """Whether a lineage that begins finds what another one may have left in the target."""
    return any(each.intent > NOTHING_YET for name, each in marks.items() if name != lineage)


def lets_go(retries: int) -> bool:
    """Whether another replica may try, after so many attempts in vain: it may be this one that
    can't reach the target."""
    return retries % _TRIES == 0


def rest_ms(retries: int, drawn_ms: float, lease_ms: int) -> float:
    """How long to rest after an attempt in vain. Who lets go is back before the claim has rested
    for a lease: whoever waits for somebody to publish takes that for nobody's."""
    return min(drawn_ms, lease_ms / 2) if lets_go(retries) else drawn_ms


def frees(held: Time, reached: Time, unmoved_ms: float, held_max: int) -> bool:
    """Whether it is time to let go of history that has no changes for a sink.

    `reached` is on record: whoever goes on must find what came after it.
    """
    return reached - held >= held_max or (reached > held and unmoved_ms >= _HELD_MAX_MS)


def confirmed(mark: Mark | None, at: Progress) -> Mark:
    """The record after a target was asked: what it has is done, whoever did not come to say so.

    If more was done, the target was set back, and what was reached with that is reached no longer.
    """
    if mark is None:
        return founded(None, at)
    reached = mark.reached if at.t >= mark.done else at.t
    return msgspec.structs.replace(mark, done=at.t, reached=reached)


def founded(mark: Mark | None, at: Progress) -> Mark:
    """The record after a mark was left in the target."""
    if mark is None:
        return Mark(at.epoch)
    invariant(mark.done == at.t, "what is left again is what was there")
    return msgspec.structs.replace(mark, epoch=max(mark.epoch, at.epoch))


def intended(mark: Mark | None, t: Time, epoch: int, progress: Time) -> Mark:
    """The record before t is delivered to a target that has everything up to `progress`.

    What the target has is done, whoever did not come to say so.
    """
    mark = _known(mark)
    invariant(t > progress, f"{t} is delivered already: the target is at {progress}")
    invariant(progress <= mark.intent, f"the target is at {progress}, and nobody intended that")
    done = max(mark.done, progress)
    intent = max(mark.intent, t)
    return msgspec.structs.replace(mark, epoch=max(mark.epoch, epoch), intent=intent, done=done)


def done(mark: Mark | None, t: Time) -> Mark:
    """The record after t was delivered."""
    mark = _known(mark)
    invariant(t <= mark.intent, f"{t} is done and {mark.intent} was intended")
    return msgspec.structs.replace(mark, done=t, reached=max(mark.reached, t))


def reached(mark: Mark | None, t: Time) -> Mark | None:
    """The record of a sink that has everything up to t, or of one that was never founded."""
    return mark if mark is None or t <= mark.reached else msgspec.structs.replace(mark, reached=t)


def raised(mark: Mark | None, t: Time) -> Mark | None:
    """The record of a sink whose collection can't be read at t, the newest; or can, with -1."""
    return mark if mark is None or t == mark.raises else msgspec.structs.replace(mark, raises=t)


def objection(before: Mark | None, at: Progress | None, after: Mark | None) -> str:
    """What the record says against the progress that a target was read back with; empty if
    nothing. A publisher may be at work: the record was read `before`, and `after`."""
    done = NOTHING_YET if before is None else before.done
    if at is None or at.t < done:
        where = "has no progress" if at is None else f"is at {at.t}"
        return (
            ""
            if done == NOTHING_YET
            else (
                f"its target {where}, and transaction {done} is on record as delivered: what came "
                "later is lost there"
            )
        )
    intent = NOTHING_YET if after is None else after.intent
    return _unintended(at.t, intent) if at.t > intent else ""


def _known(mark: Mark | None) -> Mark:
    if mark is None:
        raise InvariantError("a sink delivers nothing before it is founded")
    return mark


def _unintended(t: Time, intent: Time) -> str:
    last = "none was ever begun" if intent == NOTHING_YET else f"{intent} was the last to be begun"
    return (
        f"its target says that transaction {t} was delivered, and on record {last}: the store is "
        "older than its target, or somebody else writes there; bring the store up to date, or "
        "publish to a new target"
    )


def _in_doubt(mark: Mark) -> str:
    return (
        f"its target's progress is gone, and whether transaction {mark.intent} was delivered is "
        f"not on record (the last that is: {mark.done}): bring the progress back, or publish to "
        "a new target"
    )
