"""Whether what is settled is what a replica computed, by digests alone.

Digests are kept per time and add up, so it does not matter how either side cut its batches:
the times in question are compared one by one, as far as they are settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import CorruptionError, ReplicaDivergedError, SinceError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.shard.moments import decode_moments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.model.frontier import Time
    from strandline.shard.machine import Machine
    from strandline.shard.state import Moment, State

_ATTEMPTS = 5


def check_settled(
    machine: Machine,
    digests: dict[Time, Digest],
    *,
    lower: Time,
    upper: Frontier,
    uncommitted: bool = False,
) -> Frontier:
    """Raise `ReplicaDivergedError` if some settled time in `[lower, upper)` has other rows.

    Returns how far it could compare: times from there on are not settled yet.
    `uncommitted` counts what an attached shard holds and its timeline has not committed.
    """
    for _ in range(_ATTEMPTS):
        state, settled = _settled(machine, uncommitted=uncommitted)
        if state.readable_from() > lower:
            raise SinceError(
                f"shard {machine.name}: what was written at {lower} can't be compared any more, "
                f"history before {state.since} has been merged",
                oldest=state.readable_from(),
            )
        edge = min(settled, upper)
        theirs = _digests(machine, state, lower, edge)
        if theirs is not None:
            _compare(machine.name, digests, theirs, edge)
            return edge
    raise CorruptionError(f"shard {machine.name}: a list of its times is missing; run fsck")


def digest_at(machine: Machine, time: Time) -> Digest | None:
    """What the newest state holds at a time, committed or not; `None` if history is merged past it.

    For whoever moves the timeline of an attached shard: nobody else may see what is not committed.
    """
    for _ in range(_ATTEMPTS):
        state = machine.refresh()
        if state.readable_from() > time:
            return None
        found = _digests(machine, state, time, Frontier(time + 1))
        if found is not None:
            return found.get(time, Digest.ZERO)
    raise CorruptionError(f"shard {machine.name}: a list of its times is missing; run fsck")


def _settled(machine: Machine, *, uncommitted: bool) -> tuple[State, Frontier]:
    """The timeline first, then the shard's newest state: never the other way round."""
    timeline = machine.state.timeline
    if timeline is None or uncommitted:
        state = machine.refresh()
        if state.timeline is None or uncommitted:
            return state, state.upper
        timeline = state.timeline
    committed = machine.env.timelines(timeline).committed()
    return machine.refresh(), committed


def _digests(
    machine: Machine, state: State, lower: Time, edge: Frontier
) -> dict[Time, Digest] | None:
    """What was written at each time; `None` if a list has been collected meanwhile."""
    found: dict[Time, Digest] = {}
    for moments in _moments(machine, state, lower, edge):
        if moments is None:
            return None
        for moment in moments:
            if lower <= moment.time and edge.settled(moment.time):
                found[moment.time] = moment.total
    return found


def _moments(
    machine: Machine, state: State, lower: Time, edge: Frontier
) -> Iterator[tuple[Moment, ...] | None]:
    env = machine.env
    for chunk in state.moment_chunks:
        if chunk.last_time >= lower and edge.settled(chunk.first_time):
            encoded = env.patient(
                lambda key=chunk.key: env.blob.get(key),  # type: ignore[misc]
                shard=machine.name,
            )
            yield None if encoded is None else decode_moments(encoded, chunk, shard=state.id)
    yield state.moments


def _compare(
    name: str, mine: dict[Time, Digest], theirs: dict[Time, Digest], edge: Frontier
) -> None:
    for time in sorted({*mine, *theirs}):
        if not edge.settled(time):
            return
        ours = mine.get(time, Digest.ZERO)
        settled = theirs.get(time, Digest.ZERO)
        if ours != settled:
            raise ReplicaDivergedError(
                f"shard {name}: at time {time} another writer settled rows with digest {settled}, "
                f"this one computed {ours}: stop this replica and compare their inputs"
            )
