"""What one version of a shard changed, as it is stored, and how it is read back.

Deciding and recording are apart on purpose: `decide` may learn new rules with every release,
but a stored change must mean the same for ever, so `evolve` only carries out what it says.

    state(v) == evolve(state(v - 1), change(v))
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import msgspec

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.envelope import decoded
from strandline.parts.part import Batch
from strandline.shard.state import (
    Critical,
    Garbage,
    Manifest,
    Moment,
    MomentChunk,
    Reader,
    Retention,
    State,
    Writer,
    inline_size,
)
from strandline.shard.txn import Mark

_Entry = TypeVar("_Entry")
_schema_decoder = msgspec.msgpack.Decoder(dict[str, object])


class Created(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a shard is born with."""

    name: str
    id: str
    schema: bytes
    created_ms: int


class Change(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one version changed, as it is stored. `evolve` reads it; it decides nothing.

    `None` and empty mean unchanged. An entry of a dictionary set to `None` is removed.
    """

    upper: int | None = None
    closed: bool = False
    since: int | None = None
    timeline: str | None = None
    """Attaches the shard."""
    epoch: int | None = None
    schema: bytes | None = None
    """The wire form of the new schema."""
    splice: tuple[int, int] | None = None
    """Batches at positions `[first, last)` go, and `batches` take their place; without it,
    `batches` are added at the end."""
    batches: tuple[Batch, ...] = ()
    moments_dropped: int = 0
    """How many of the oldest listed moments go."""
    moments_cut: int = 0
    """How many of the newest listed moments go (withdrawn), before `moments` are added."""
    moments: tuple[Moment, ...] = ()
    moment_chunks_dropped: int = 0
    moment_chunk: MomentChunk | None = None
    """Takes the place of its `count` oldest listed moments."""
    settled: bytes | None = None
    total: bytes | None = None
    instant_ms: int | None = None
    readers: dict[str, Reader | None] = {}
    writers: dict[str, Writer | None] = {}
    holds: dict[str, Critical | None] = {}
    retention: Retention | None = None
    garbage: tuple[Garbage, ...] = ()
    garbage_collected: tuple[str, ...] = ()
    manifest: Manifest | None = None
    dropped: bool = False
    created: Created | None = None
    """Starts a shard anew, on nothing or on a tombstone; applied before all else."""
    txns: dict[str, Mark | None] = {}


def evolve(before: State | None, change: Change) -> State:
    """The version after `change`; the first one has no version before it."""
    state = before
    if change.created is not None:
        state = _create(before, change.created)
    if state is None:
        raise CorruptionError("a shard's first version does not create it")
    _check_fits(state, change)
    seqno = state.seqno if before is None else before.seqno.next()
    batches = _spliced(state.batches, change)
    return replace(
        state,
        seqno=seqno,
        upper=_upper(state.upper, change),
        since=state.since if change.since is None else Frontier(change.since),
        timeline=state.timeline if change.timeline is None else change.timeline,
        epoch=state.epoch if change.epoch is None else change.epoch,
        schema=state.schema if change.schema is None else unpack_schema(change.schema),
        batches=batches,
        inline_size=(
            state.inline_bytes() + inline_size(change.batches)
            if change.splice is None
            else inline_size(batches)
        ),
        moments=_moments(state.moments, change),
        moment_chunks=_moment_chunks(state.moment_chunks, change),
        settled=state.settled if change.settled is None else Digest.unpack(change.settled),
        total=state.total if change.total is None else Digest.unpack(change.total),
        instant_ms=state.instant_ms if change.instant_ms is None else change.instant_ms,
        readers=_edited(state.readers, change.readers),
        writers=_edited(state.writers, change.writers),
        holds=_edited(state.holds, change.holds),
        retention=state.retention if change.retention is None else change.retention,
        garbage=_garbage(state.garbage, change),
        manifest=state.manifest if change.manifest is None else change.manifest,
        dropped=state.dropped or change.dropped,
        txns=_edited(state.txns, change.txns),
    )


def pack_schema(schema: Schema) -> bytes:
    return msgspec.msgpack.encode(schema.to_wire())


def unpack_schema(data: bytes) -> Schema:
    wire = decoded(_schema_decoder, data, "a stored schema")
    return Schema.from_wire(wire)


def _check_fits(state: State, change: Change) -> None:
    """Cutting more than there is would go unseen and leave another state than was decided."""
    first, last = change.splice or (0, 0)
    chunked = 0 if change.moment_chunk is None else change.moment_chunk.count
    fits = (
        0 <= first <= last <= len(state.batches)
        and min(change.moments_dropped, change.moments_cut, chunked) >= 0
        and change.moments_dropped + change.moments_cut + chunked <= len(state.moments)
        and 0 <= change.moment_chunks_dropped <= len(state.moment_chunks)
    )
    if not fits:
        raise CorruptionError(
            f"version {state.seqno.next()} of shard {state.name} changes what {state.seqno} "
            "does not have"
        )


def _create(before: State | None, created: Created) -> State:
    """A tombstone's garbage and the readers that still protect it live on in the new shard.

    Its epoch does not: the owner it fenced out has no writer here, and whoever comes next need
    not know of any owner.
    """
    new = State(
        name=created.name,
        id=created.id,
        schema=unpack_schema(created.schema),
        created_ms=created.created_ms,
    )
    if before is None:
        return new
    return replace(
        new,
        instant_ms=before.instant_ms,
        garbage=before.garbage,
        manifest=before.manifest,
        readers={name: _without_since(reader) for name, reader in before.readers.items()},
    )


def _without_since(reader: Reader) -> Reader:
    return Reader(reader.pulse, None, reader.seqno, reader.purpose)


def _upper(upper: Frontier, change: Change) -> Frontier:
    if change.closed:
        return Frontier.closed()
    return upper if change.upper is None else Frontier(change.upper)


def _spliced(batches: tuple[Batch, ...], change: Change) -> tuple[Batch, ...]:
    if change.splice is None:
        return batches + change.batches
    first, last = change.splice
    return batches[:first] + change.batches + batches[last:]


def _moments(moments: tuple[Moment, ...], change: Change) -> tuple[Moment, ...]:
    start = change.moments_dropped
    if change.moment_chunk is not None:
        start += change.moment_chunk.count
    end = len(moments) - change.moments_cut
    kept = moments if start == 0 and change.moments_cut == 0 else moments[start:end]
    # Not unpacked into a new tuple: with a thousand moments that takes several times as long.
    return kept + change.moments


def _moment_chunks(chunks: tuple[MomentChunk, ...], change: Change) -> tuple[MomentChunk, ...]:
    kept = chunks[change.moment_chunks_dropped :]
    return kept if change.moment_chunk is None else (*kept, change.moment_chunk)


def _edited(old: dict[str, _Entry], edits: dict[str, _Entry | None]) -> dict[str, _Entry]:
    if not edits:
        return old
    return {name: entry for name, entry in {**old, **edits}.items() if entry is not None}


def _garbage(garbage: tuple[Garbage, ...], change: Change) -> tuple[Garbage, ...]:
    if change.garbage_collected:
        gone = set(change.garbage_collected)
        rest = (
            Garbage(
                g.seqno,
                tuple(k for k in g.keys if k not in gone),
                tuple(k for k in g.chunks if k not in gone),
            )
            for g in garbage
        )
        garbage = tuple(g for g in rest if g.keys or g.chunks)
    return (*garbage, *change.garbage) if change.garbage else garbage
