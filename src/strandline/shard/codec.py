"""A shard's history as bytes: records in Consensus, manifests in Blob. Pure.

A record is one version's change; it also names the newest manifest, so that whoever reads the
head knows where to start. A manifest is a whole version. Both are sealed (see `envelope`).
"""

from __future__ import annotations

import msgspec

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.parts.envelope import decoded, seal, unseal
from strandline.parts.part import Batch
from strandline.shard.change import Change, pack_schema, unpack_schema
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
)
from strandline.shard.txn import Mark


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One version as it is stored in Consensus."""

    change: Change
    manifest: Manifest | None
    """The newest one that this version knows of, so that nobody who starts at the head asks for
    one that this version made garbage; `None` if there is none, and all records are needed."""


class _Whole(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Every field of a state, under names that stay."""

    name: str
    id: str
    schema: bytes
    seqno: int
    created_ms: int
    dropped: bool
    upper: int | None
    since: int | None
    timeline: str | None
    epoch: int
    batches: tuple[Batch, ...]
    moments: tuple[Moment, ...]
    moment_chunks: tuple[MomentChunk, ...]
    settled: bytes
    total: bytes
    instant_ms: int
    readers: dict[str, Reader]
    writers: dict[str, Writer]
    holds: dict[str, Critical]
    retention: Retention
    garbage: tuple[Garbage, ...]
    manifest: Manifest | None
    txns: dict[str, Mark] = {}


_encoder = msgspec.msgpack.Encoder()
_record_decoder = msgspec.msgpack.Decoder(Record)
_whole_decoder = msgspec.msgpack.Decoder(_Whole)


def encode_record(name: str, seqno: SeqNo, record: Record) -> bytes:
    return seal("record", name, str(seqno), _encoder.encode(record))


def decode_record(name: str, seqno: SeqNo, data: bytes) -> Record:
    what = f"version {seqno} of shard {name}"
    _, body = unseal(data, kind="record", owner=name, at=str(seqno), what=what)
    return decoded(_record_decoder, body, what)


def encode_manifest(state: State) -> bytes:
    whole = _Whole(
        name=state.name,
        id=state.id,
        schema=pack_schema(state.schema),
        seqno=state.seqno.number,
        created_ms=state.created_ms,
        dropped=state.dropped,
        upper=state.upper.time,
        since=state.since.time,
        timeline=state.timeline,
        epoch=state.epoch,
        batches=state.batches,
        moments=state.moments,
        moment_chunks=state.moment_chunks,
        settled=state.settled.pack(),
        total=state.total.pack(),
        instant_ms=state.instant_ms,
        readers=state.readers,
        writers=state.writers,
        holds=state.holds,
        retention=state.retention,
        garbage=state.garbage,
        manifest=state.manifest,
        txns=state.txns,
    )
    return seal("manifest", state.name, str(state.seqno), _encoder.encode(whole))


def decode_manifest(name: str, seqno: SeqNo, data: bytes | memoryview, key: str) -> State:
    what = f"manifest {key} of shard {name}"
    _, body = unseal(data, kind="manifest", owner=name, at=str(seqno), what=what)
    whole = decoded(_whole_decoder, body, what)
    if (whole.name, whole.seqno) != (name, seqno.number):
        raise CorruptionError(f"{what} is damaged: its inside is of another version")
    return State(
        name=whole.name,
        id=whole.id,
        schema=unpack_schema(whole.schema),
        seqno=SeqNo(whole.seqno),
        created_ms=whole.created_ms,
        dropped=whole.dropped,
        upper=Frontier(whole.upper),
        since=Frontier(whole.since),
        timeline=whole.timeline,
        epoch=whole.epoch,
        batches=whole.batches,
        moments=whole.moments,
        moment_chunks=whole.moment_chunks,
        settled=Digest.unpack(whole.settled),
        total=Digest.unpack(whole.total),
        instant_ms=whole.instant_ms,
        readers=whole.readers,
        writers=whole.writers,
        holds=whole.holds,
        retention=whole.retention,
        garbage=whole.garbage,
        manifest=whole.manifest,
        txns=whole.txns,
    )
