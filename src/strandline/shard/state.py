"""What a shard is: its state, and the rules that hold in every one. No I/O, no clock.

Rules, proven by `check` after every transition:

    R1  since < upper, unless nothing is settled; an attached shard's since stays below the
        timeline's committed frontier instead, and may pass an idle shard's own upper
    R2  batches are in order, do not overlap and end at or before upper
    R3  no reader and no critical hold holds a time before since
    R4  upper, since and epoch never move back (but an owner may withdraw what was never
        committed, and a new shard may take a dropped one's name)
    R5  the digests of all batches add up to the digests of all appends, and so do those of
        all moments, listed and settled
    R6  instants never move back
    R7  a tombstone has no batches, no writers and no applications
    R8  an object is garbage, or referred to, and never both

R24 and R25, about the batches of applications, stand in `txn`; R26 and R27, about terms, in `term`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import InvariantError, invariant
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier, Time
from strandline.model.ids import SeqNo
from strandline.shard.term import end_of
from strandline.shard.txn import check_marks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.model.schema import Schema
    from strandline.parts.part import Batch
    from strandline.shard.txn import Mark

WEEK_MS = 7 * 24 * 3600 * 1000


class Reader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A leased reader: what may not be merged (`since`) and not be deleted (`seqno`)."""

    pulse: str
    """What keeps it: the heartbeat of a process (see `pulse`), or a term (see `term`)."""
    since: int | None
    """`None` holds no time back, only objects."""
    seqno: int
    """Objects that a version from this one on refers to stay."""
    purpose: str = ""

    @property
    def until_ms(self) -> int | None:
        """When its term ends; `None` if a process keeps it alive."""
        return end_of(self.pulse)


class Writer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A leased writer: as long as it is listed, its appends count and its parts stay."""

    pulse: str
    token: str = ""
    """The token of its last append, so that an append of unknown fate is found again."""
    lower: int = 0
    upper: int | None = 0
    seqno: int = -1
    """What its last append was: `[lower, upper)`, committed as this version."""
    purpose: str = ""


class Critical(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A hold that never expires by time; whoever knows the highest epoch may move it."""

    since: int
    epoch: int
    note: str = ""


class Retention(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How much history stays readable; a time stays if any of the two keeps it.

    Both `None` keeps everything.
    """

    duration_ms: int | None = WEEK_MS
    count: int | None = None


_RETENTION = Retention()


class Moment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a time was settled, and what was written at it.

    It covers the times after the moment before it, up to and including `time`; `digest` is of
    the rows at exactly `time`, and the times between have none.
    """

    time: int
    instant_ms: int
    digest: bytes

    @property
    def total(self) -> Digest:
        return Digest.unpack(self.digest)


class MomentChunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reference to an object that lists moments, oldest first."""

    key: str
    size: int
    checksum: int
    count: int
    first_time: int
    last_time: int
    first_instant_ms: int
    last_instant_ms: int
    digest: bytes

    @property
    def total(self) -> Digest:
        return Digest.unpack(self.digest)


class Garbage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Objects that no version from `seqno` on refers to."""

    seqno: int
    keys: tuple[str, ...]
    chunks: tuple[str, ...] = ()
    """Chunks among the garbage whose listed parts are garbage too (a dropped shard's)."""


class Manifest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reference to a full copy of one version."""

    seqno: int
    key: str
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class State:
    """One version of a shard."""

    name: str
    id: str
    schema: Schema
    seqno: SeqNo = SeqNo(0)
    created_ms: int = 0
    dropped: bool = False
    upper: Frontier = Frontier(0)
    """Physical: an attached shard's may lag behind its timeline, or lead by one time."""
    since: Frontier = Frontier(0)
    timeline: str | None = None
    epoch: int = 0
    batches: tuple[Batch, ...] = ()
    moments: tuple[Moment, ...] = ()
    moment_chunks: tuple[MomentChunk, ...] = ()
    settled: Digest = Digest.ZERO
    """The sum of the digests of all times whose moment is no longer listed."""
    total: Digest = Digest.ZERO
    """The sum of the digests of all appends."""
    instant_ms: int = 0
    readers: dict[str, Reader] = field(default_factory=dict)
    writers: dict[str, Writer] = field(default_factory=dict)
    holds: dict[str, Critical] = field(default_factory=dict)
    retention: Retention = _RETENTION
    garbage: tuple[Garbage, ...] = ()
    manifest: Manifest | None = None
    txns: dict[str, Mark] = field(default_factory=dict)
    """The newest batch of each application."""
    inline_size: int = field(default=-1, compare=False)
    """What `inline_bytes` says, carried along so that an append need not add it up; -1 if it
    is not known yet. Derived, and not stored."""

    def readable_from(self) -> Time:
        return 0 if self.since.time is None else self.since.time

    def seqno_hold(self) -> int:
        """The oldest version whose objects some reader may still be fetching."""
        return min((r.seqno for r in self.readers.values()), default=self.seqno.number)

    def heartbeats(self) -> dict[str, str]:
        """Every reader and writer that depends on a process, with the pulse of that process."""
        found = {name: r.pulse for name, r in self.readers.items() if r.until_ms is None}
        return found | {name: writer.pulse for name, writer in self.writers.items()}

    def terms(self) -> dict[str, int]:
        """Every reader that has a term, with its end."""
        return {name: r.until_ms for name, r in self.readers.items() if r.until_ms is not None}

    def inline_bytes(self) -> int:
        """How much row data stands in the metadata itself."""
        return inline_size(self.batches) if self.inline_size < 0 else self.inline_size

    def since_holds(self) -> Iterator[tuple[str, Time]]:
        """Everybody who holds a time, with the time."""
        for name, reader in self.readers.items():
            if reader.since is not None:
                yield name, reader.since
        for name, hold in self.holds.items():
            yield name, hold.since


def inline_size(batches: tuple[Batch, ...]) -> int:
    return sum(len(b.inline.payload) for b in batches if b.inline is not None)


def check(before: State, after: State, committed: Frontier | None = None) -> None:
    """Stop if a transition broke one of the rules at the top of this file.

    Costs what has changed, not what there is: what `before` had already was proven before.
    """
    reborn = before.dropped and not after.dropped
    _check_since(before, after, committed)
    _check_batches(before, after)
    _check_holds(before, after)
    if not reborn:
        invariant(before.since <= after.since, "R4: since moved back")
        invariant(before.epoch <= after.epoch, "R4: epoch moved back")
        withdrawn = before.timeline is not None
        invariant(before.upper <= after.upper or withdrawn, "R4: upper moved back")
    invariant(before.instant_ms <= after.instant_ms, "R6: instants moved back")
    if not reborn and not after.dropped:
        appended = before.upper != after.upper
        check_marks(before.txns, after.txns, after.seqno, appended=appended)
    if after.dropped:
        held = after.batches or after.writers or after.txns
        invariant(not held, "R7: a tombstone holds something")


def _check_since(before: State, after: State, committed: Frontier | None) -> None:
    if after.timeline is None:
        below = after.since < after.upper or after.since == Frontier(0)
        invariant(below, "R1: since is not below upper")
    elif committed is not None and after.since != before.since:
        invariant(after.since < committed, "R1: since is not below what the timeline committed")


def _check_batches(before: State, after: State) -> None:
    known = len(before.batches)
    # Tuples compare by identity first, so this costs next to nothing where batches were kept.
    if after.batches[:known] != before.batches:
        known = 0
    edge = after.batches[known - 1].upper if known else 0
    for batch in after.batches[known:]:
        if not edge <= batch.lower < batch.upper:
            raise InvariantError(f"R2: batch [{batch.lower}, {batch.upper}) after {edge}")
        edge = batch.upper
    invariant(after.upper.time is None or edge <= after.upper.time, "R2: batches end after upper")


def _check_holds(before: State, after: State) -> None:
    same = after.readers is before.readers and after.holds is before.holds
    if same and after.since == before.since:
        return
    for name, reader in after.readers.items():
        old = before.readers.get(name, reader)
        invariant(old.pulse == reader.pulse, f"R27: {name} lives by another pulse")
    for name, since in after.since_holds():
        if after.readable_from() > since:
            raise InvariantError(f"R3: since {after.since} passed {name}'s hold of {since}")


def check_whole(state: State) -> None:
    """The rules that cost time to prove: after what rewrites batches, and in `fsck`."""
    stored = Digest.ZERO
    for batch in state.batches:
        stored = stored + batch.total
    invariant(stored == state.total, f"R5: batches hold {stored}, appends were {state.total}")
    listed = state.settled
    moments: tuple[Moment | MomentChunk, ...] = (*state.moment_chunks, *state.moments)
    for moment in moments:
        listed = listed + moment.total
    invariant(listed == state.total, f"R5: moments hold {listed}, appends were {state.total}")
    named = [key for batch in state.batches for key in batch.object_keys()]
    named += [chunk.key for chunk in state.moment_chunks]
    if state.manifest is not None:
        named.append(state.manifest.key)
    referred = set(named)
    invariant(len(referred) == len(named), "R8: an object is referred to twice")
    for garbage in state.garbage:
        both = referred.intersection((*garbage.keys, *garbage.chunks))
        invariant(not both, f"R8: {sorted(both)} are garbage and referred to")
