"""What a reader sees of a shard: a pinned state with its frontier, its parts, its instants.

The order is the contract. The pin first, so that nothing the state refers to is deleted; for an
attached shard then its timeline; the shard's newest state last (S42, S43).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import CorruptionError, NotFoundError, SinceError
from strandline.model.frontier import TIME_MAX
from strandline.reading.listing import list_changes, list_snapshot
from strandline.reading.request import Bounds, Request, describe
from strandline.shard.moments import decode_moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.frontier import Frontier, Time
    from strandline.parts.chunk import PartTable
    from strandline.parts.part import Chunk
    from strandline.reading.descriptor import PartDescriptor
    from strandline.shard.lease import Pin, ReadLease
    from strandline.shard.machine import Machine
    from strandline.shard.state import Moment, MomentChunk, State


@dataclass(frozen=True, slots=True)
class View:
    """A state whose objects stay until the pin is given back."""

    pin: Pin
    upper: Frontier
    """How far readers may see."""
    state: State


@dataclass(frozen=True, slots=True)
class Described:
    """What is to be fetched, and what is to be fetched only to prove the pruning right."""

    parts: list[PartDescriptor]
    audits: list[PartDescriptor]


def pinned_view(lease: ReadLease) -> View:
    """Pin, then look."""
    pin = lease.pin()
    try:
        while True:
            timeline = lease.machine.state.timeline
            upper = None
            if timeline is not None:
                upper = lease.machine.env.timelines(timeline).committed()
            state = _living(pin.state())
            if state.timeline == timeline:
                return View(pin, state.upper if upper is None else upper, state)
    except BaseException:
        pin.give_back()
        raise


def _living(state: State) -> State:
    if state.dropped:
        raise NotFoundError(f"shard {state.name} was dropped")
    return state


def same_shard(state: State, shard_id: str) -> State:
    """The state, unless it is of another shard that was created under the name since."""
    if state.id != shard_id:
        raise NotFoundError(f"shard {state.name} was dropped and created anew: open it again")
    return state


def described(machine: Machine, state: State, request: Request, bounds: Bounds) -> Described:
    """List what answers a read; the caller holds a pin on the state."""
    env = machine.env
    share = env.settings.audit_share if request.spec else 0.0
    seed = int(env.random.uniform(0, 2**32)) if share else 0
    want = request.want(state.schema, audit_share=share, audit_seed=seed)

    def table(chunk: Chunk) -> PartTable:
        return machine.chunks.table(chunk, shard_id=state.id, stats=bool(want.filter))

    if bounds.as_of is not None:
        listing = list_snapshot(state, bounds.as_of, want, table)
    else:
        upto = TIME_MAX if bounds.upto is None else bounds.upto
        listing = list_changes(state, (bounds.after, upto), want, table)
    if listing.pruned:
        env.metrics.add("parts_pruned", state.name, listing.pruned)
    parts = describe(state, listing.pieces, request, want.filter, bounds)
    audits = describe(state, listing.audits, request, want.filter, bounds)
    return Described(parts, _affordable(audits, sum(part.size for part in parts)))


def _affordable(audits: list[PartDescriptor], budget: int) -> list[PartDescriptor]:
    """Audits never cost more than the read itself."""
    kept = []
    for audit in audits:
        budget -= audit.size
        if budget < 0:
            break
        kept.append(audit)
    return kept


def time_at(machine: Machine, view: View, instant_ms: int) -> Time:
    """The last time that was settled at or before an instant of the store's clock."""
    state = view.state
    if state.timeline is not None:
        found = machine.env.timelines(state.timeline).time_at(instant_ms)
    else:
        found = _settled_at(machine, state, instant_ms)
    oldest = state.readable_from()
    if found is None or found < oldest:
        raise SinceError(
            f"shard {state.name} can't be read as of that instant: it had nothing settled then "
            f"that can still be told; the oldest time that can be read is {oldest}",
            oldest=oldest,
        )
    return found


def _settled_at(machine: Machine, state: State, instant_ms: int) -> Time | None:
    found = _last_before(state.moments, instant_ms)
    if found is not None:
        return found
    for chunk in reversed(state.moment_chunks):
        if chunk.last_instant_ms <= instant_ms:
            return chunk.last_time
        if chunk.first_instant_ms <= instant_ms:
            return _last_before(_listed_moments(machine, state, chunk), instant_ms)
    return None


def _listed_moments(machine: Machine, state: State, chunk: MomentChunk) -> Sequence[Moment]:
    env = machine.env
    encoded = env.patient(lambda: env.blob.get(chunk.key), shard=state.name)
    if encoded is None:
        raise CorruptionError(
            f"shard {state.name}: list of times {chunk.key} is missing; run `strandline fsck`"
        )
    return decode_moments(encoded, chunk, shard=state.id)


def _last_before(moments: Sequence[Moment], instant_ms: int) -> Time | None:
    for moment in reversed(moments):
        if moment.instant_ms <= instant_ms:
            return moment.time
    return None
