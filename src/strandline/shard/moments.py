"""Lists of moments as objects of their own, so that a long history stays readable. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import CorruptionError, invariant
from strandline.model.digest import Digest
from strandline.parts.envelope import checksum, decoded, seal, unseal
from strandline.shard.state import Moment, MomentChunk

if TYPE_CHECKING:
    from collections.abc import Sequence

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Moment, ...])


def moments_key(shard: str, writer: str, token: str) -> str:
    return f"{shard}/{writer}/{token}.times"


def encode_moments(moments: Sequence[Moment], *, shard: str, key: str) -> tuple[MomentChunk, bytes]:
    """The reference and the object; `shard` is the id of the shard."""
    invariant(moments, "a list of moments without moments")
    encoded = seal("times", shard, key, _encoder.encode(moments))
    total = Digest.ZERO
    for moment in moments:
        total += moment.total
    chunk = MomentChunk(
        key=key,
        size=len(encoded),
        checksum=checksum(encoded),
        count=len(moments),
        first_time=moments[0].time,
        last_time=moments[-1].time,
        first_instant_ms=moments[0].instant_ms,
        last_instant_ms=moments[-1].instant_ms,
        digest=total.pack(),
    )
    return chunk, encoded


def decode_moments(
    encoded: bytes | memoryview, chunk: MomentChunk, *, shard: str
) -> tuple[Moment, ...]:
    what = f"list of times {chunk.key} of shard {shard}"
    if len(encoded) != chunk.size or checksum(encoded) != chunk.checksum:
        raise CorruptionError(f"{what} is damaged: its size or checksum does not match")
    _, body = unseal(encoded, kind="times", owner=shard, at=chunk.key, what=what)
    moments = decoded(_decoder, body, what)
    if len(moments) != chunk.count:
        raise CorruptionError(f"{what} is damaged: {len(moments)} times, not {chunk.count}")
    return moments
