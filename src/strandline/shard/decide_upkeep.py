"""What upkeep may do to a shard: swap pieces, merge history, forget. Pure.

Upkeep never blocks or fails an append and never changes what anybody can read:

    for every time t >= since:  rows at or before t, before == rows at or before t, after

The digests are the tripwire: what goes in adds up to what comes out, or nothing is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from strandline.errors import invariant
from strandline.model.digest import Digest
from strandline.parts.part import Batch, Chunk, Part
from strandline.shard import command as c
from strandline.shard.change import Change
from strandline.shard.retention import since_allowed
from strandline.shard.state import Garbage, Moment, MomentChunk, State

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier, Time

_ZERO = Digest.ZERO.pack()

Upkeep = c.Replace | c.AdvanceSince | c.IndexMoments | c.AddManifest | c.Forget | c.Drop


def maintain(state: State, command: Upkeep) -> c.Outcome:
    match command:
        case c.Replace():
            return replace_pieces(state, command)
        case c.AdvanceSince():
            return advance_since(state, command)
        case c.IndexMoments():
            return index_moments(state, command)
        case c.AddManifest():
            return add_manifest(state, command)
        case c.Forget():
            return forget(state, command)
        case c.Drop():
            return drop(state, command)
        case _:
            assert_never(command)


def replace_pieces(state: State, command: c.Replace) -> c.Outcome:
    """Batches that lose a piece are fused into one, which gets the new pieces.

    Fusing costs nothing (a batch is only a list), and keeps the interval that the new pieces
    cover in one place. Any number of these may run at once: whoever finds a piece gone lost.
    """
    if command.writer not in state.writers:
        return c.Lost((command.writer,))
    if _has_all(state, command.parts, command.chunks):
        return c.Unchanged()
    touched = [i for i, batch in enumerate(state.batches) if _touches(batch, command)]
    if not touched or not _all_found(state, command):
        return c.Stale()
    first, last = touched[0], touched[-1] + 1
    fused, removed = _fuse(state.batches[first:last], command)
    _check_pieces(state, command, fused, removed)
    batches = () if _is_empty(fused) else (fused,)
    seqno = state.seqno.next().number
    return c.Changed(
        Change(
            splice=(first, last),
            batches=batches,
            garbage=(Garbage(seqno, command.garbage),) if command.garbage else (),
        )
    )


def advance_since(state: State, command: c.AdvanceSince) -> c.Outcome:
    since = since_allowed(
        state, now_ms=command.now_ms, committed=command.committed, aged=command.aged
    )
    if since <= state.readable_from():
        return c.Unchanged()
    chunks = [chunk for chunk in state.moment_chunks if chunk.last_time < since]
    moments = [moment for moment in state.moments if moment.time < since]
    settled = state.settled
    gone: tuple[Moment | MomentChunk, ...] = (*chunks, *moments)
    for moment in gone:
        settled = settled + moment.total
    keys = tuple(chunk.key for chunk in chunks)
    return c.Changed(
        Change(
            since=since,
            moment_chunks_dropped=len(chunks),
            moments_dropped=len(moments),
            settled=settled.pack(),
            garbage=(Garbage(state.seqno.next().number, keys),) if keys else (),
        )
    )


def index_moments(state: State, command: c.IndexMoments) -> c.Outcome:
    if command.writer not in state.writers:
        return c.Lost((command.writer,))
    chunk = command.chunk
    if any(chunk.key == old.key for old in state.moment_chunks):
        return c.Unchanged()
    listed = state.moments[: chunk.count]
    same = (
        len(listed) == chunk.count > 0
        and listed[0].time == chunk.first_time
        and listed[-1].time == chunk.last_time
    )
    if not same:
        return c.Stale()
    if state.timeline is not None and not _settled(command.committed, chunk.last_time):
        return c.Refused(f"time {chunk.last_time} may still be withdrawn")
    total = Digest.ZERO
    for moment in listed:
        total = total + moment.total
    invariant(total == chunk.total, "R5: a chunk of moments does not add up")
    instants = (listed[0].instant_ms, listed[-1].instant_ms)
    invariant(instants == (chunk.first_instant_ms, chunk.last_instant_ms), "other instants")
    return c.Changed(Change(moment_chunk=chunk))


def add_manifest(state: State, command: c.AddManifest) -> c.Outcome:
    old = state.manifest
    invariant(command.manifest.seqno <= state.seqno.number, "a manifest of a version to come")
    if old is not None and old.seqno >= command.manifest.seqno:
        return c.Unchanged() if old == command.manifest else c.Stale()
    garbage = () if old is None else (Garbage(state.seqno.next().number, (old.key,)),)
    return c.Changed(Change(manifest=command.manifest, garbage=garbage))


def forget(state: State, command: c.Forget) -> c.Outcome:
    listed = {key for garbage in state.garbage for key in (*garbage.keys, *garbage.chunks)}
    gone = tuple(sorted(command.keys & listed))
    return c.Changed(Change(garbage_collected=gone)) if gone else c.Unchanged()


def drop(state: State, command: c.Drop) -> c.Outcome:
    """A tombstone: nothing can be written or read anew, and all objects become garbage."""
    if state.dropped or command.id not in {"", state.id}:
        return c.Unchanged()
    if command.epoch < state.epoch:
        return c.Fenced(state.epoch)
    keys = [key for batch in state.batches for key in batch.object_keys()]
    keys += [chunk.key for chunk in state.moment_chunks]
    chunks = tuple(chunk.key for batch in state.batches for chunk in batch.chunks)
    seqno = state.seqno.next().number
    return c.Changed(
        Change(
            dropped=True,
            closed=True,
            splice=(0, len(state.batches)),
            moments_dropped=len(state.moments),
            moment_chunks_dropped=len(state.moment_chunks),
            settled=_ZERO,
            total=_ZERO,
            writers=dict.fromkeys(state.writers),
            holds=dict.fromkeys(state.holds),
            txns=dict.fromkeys(state.txns),
            garbage=(Garbage(seqno, tuple(keys), chunks),) if keys else (),
        )
    )


def _settled(committed: Frontier | None, time: Time) -> bool:
    return committed is not None and committed.settled(time)


def _check_pieces(state: State, command: c.Replace, fused: Batch, removed: Digest) -> None:
    """The compactor has compared what it read with what it wrote; this is the second check."""
    added = Digest.ZERO
    end = max(fused.upper - 1, command.since)
    pieces: tuple[Part | Chunk, ...] = (*command.parts, *command.chunks)
    for piece in pieces:
        added = added + piece.total
        within = fused.lower <= piece.t_min <= piece.t_max <= end
        invariant(within, f"{piece.key} has times outside of what it replaces")
    invariant(removed == added, f"R5: {removed} would be replaced by {added}")
    invariant(command.since <= state.readable_from(), "merged past since")
    garbage = set(command.garbage)
    invariant(command.remove_chunks <= garbage, "a removed chunk that is not garbage")
    invariant(garbage.isdisjoint(fused.object_keys()), "R8: garbage that is referred to")


def _touches(batch: Batch, command: c.Replace) -> bool:
    return (
        (batch.inline is not None and batch.lower in command.remove_inline)
        or any(part.key in command.remove_parts for part in batch.parts)
        or any(chunk.key in command.remove_chunks for chunk in batch.chunks)
    )


def _all_found(state: State, command: c.Replace) -> bool:
    parts = {part.key for batch in state.batches for part in batch.parts}
    chunks = {chunk.key for batch in state.batches for chunk in batch.chunks}
    inline = {batch.lower for batch in state.batches if batch.inline is not None}
    return (
        command.remove_parts <= parts
        and command.remove_chunks <= chunks
        and command.remove_inline <= inline
    )


def _has_all(state: State, parts: tuple[Part, ...], chunks: tuple[Chunk, ...]) -> bool:
    """Whether the swap has happened, seen after an attempt of unknown fate."""
    wanted = {part.key for part in parts} | {chunk.key for chunk in chunks}
    have = {part.key for batch in state.batches for part in batch.parts}
    have |= {chunk.key for batch in state.batches for chunk in batch.chunks}
    return bool(wanted) and wanted <= have


def _fuse(batches: tuple[Batch, ...], command: c.Replace) -> tuple[Batch, Digest]:
    """Fuse the batches; inline rows that stay between two that go are refused by `invariant`."""
    removed = Digest.ZERO
    parts: list[Part] = []
    chunks: list[Chunk] = []
    for batch in batches:
        if batch.inline is not None:
            invariant(batch.lower in command.remove_inline, "inline rows inside a fused batch")
            removed = removed + batch.inline.total
        for part in batch.parts:
            if part.key in command.remove_parts:
                removed = removed + part.total
            else:
                parts.append(part)
        for chunk in batch.chunks:
            if chunk.key in command.remove_chunks:
                removed = removed + chunk.total
            else:
                chunks.append(chunk)
    return (
        Batch(
            lower=batches[0].lower,
            upper=batches[-1].upper,
            parts=(*parts, *command.parts),
            chunks=(*chunks, *command.chunks),
            epoch=max(batch.epoch for batch in batches),
        ),
        removed,
    )


def _is_empty(batch: Batch) -> bool:
    return not batch.parts and not batch.chunks and batch.inline is None
