"""A part's description that travels: all that another process needs to read it. Pure.

The lease that keeps the part stays with whoever listed it. A descriptor is encoded without any
code in it, sealed like all metadata, and says which rows of the part are asked for:

    as_of is a time    the rows at or before it, all moved to it
    as_of is None      the rows at times in [after, upto), each at its own
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.errors import CorruptionError
from strandline.model.ids import valid_id, valid_name
from strandline.parts.envelope import decoded, seal, unseal
from strandline.parts.filters import Condition, Filter
from strandline.parts.part import Inline, Part
from strandline.shard.change import pack_schema, unpack_schema

if TYPE_CHECKING:
    from strandline.model.frontier import Time
    from strandline.model.schema import Schema

_KIND = "descriptor"
EVERYTHING = Filter()


@dataclass(frozen=True, slots=True)
class PartDescriptor:
    """Which rows of which part of which shard, under which schema."""

    id: str
    """Unique among what one reader lists."""
    shard: str
    shard_id: str
    schema: Schema
    """The columns that the reader sees; the piece may have been written under older ones."""
    piece: Part | Inline
    owed: Time
    """The time that waits for these rows."""
    as_of: Time | None = None
    after: Time = 0
    upto: Time | None = None
    columns: tuple[str, ...] | None = None
    """`None` asks for all."""
    filter: Filter = EVERYTHING

    @property
    def part(self) -> Part | None:
        return self.piece if isinstance(self.piece, Part) else None

    @property
    def size(self) -> int:
        """How many bytes have to be fetched; inline rows travel with the descriptor."""
        return self.piece.size if isinstance(self.piece, Part) else len(self.piece.payload)

    @property
    def whole(self) -> bool:
        """Whether every row of the piece lies within the times asked for."""
        if self.as_of is not None:
            return self.piece.t_max <= self.as_of
        below = self.upto is None or self.piece.t_max < self.upto
        return below and self.piece.t_min >= self.after

    def __str__(self) -> str:
        what = self.piece.key if isinstance(self.piece, Part) else f"inline rows {self.id}"
        return f"part {what} of shard {self.shard}"


class _Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A descriptor as it travels; fields are appended, never moved or removed."""

    id: str
    shard: str
    schema: bytes
    owed: int
    as_of: int | None
    after: int
    upto: int | None
    columns: tuple[str, ...] | None
    filter: tuple[tuple[tuple[int, str, str, bytes, bool], ...], ...]
    part: Part | None
    inline: Inline | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)


def encode_descriptor(descriptor: PartDescriptor) -> bytes:
    piece = descriptor.piece
    wire = _Wire(
        id=descriptor.id,
        shard=descriptor.shard,
        schema=pack_schema(descriptor.schema),
        owed=descriptor.owed,
        as_of=descriptor.as_of,
        after=descriptor.after,
        upto=descriptor.upto,
        columns=descriptor.columns,
        filter=_filter_to_wire(descriptor.filter),
        part=piece if isinstance(piece, Part) else None,
        inline=piece if isinstance(piece, Inline) else None,
    )
    return seal(_KIND, descriptor.shard_id, "", _encoder.encode(wire))


def decode_descriptor(encoded: bytes) -> PartDescriptor:
    """What `encode_descriptor` gave, or `CorruptionError`."""
    what = "a part's descriptor"
    shard_id, body = unseal(encoded, kind=_KIND, owner=None, at="", what=what)
    wire = decoded(_decoder, body, what)
    try:
        conditions = _filter_from_wire(wire.filter)
    except (pa.ArrowException, OSError, EOFError, KeyError, ValueError) as error:
        raise CorruptionError(f"{what} is damaged: {error}") from error
    piece = wire.part if wire.part is not None else wire.inline
    if piece is None:
        raise CorruptionError(f"{what} is damaged: it describes nothing")
    return PartDescriptor(
        id=wire.id,
        shard=valid_name(wire.shard),
        shard_id=valid_id(shard_id, "s"),
        schema=_schema(wire.schema),
        piece=piece,
        owed=wire.owed,
        as_of=wire.as_of,
        after=wire.after,
        upto=wire.upto,
        columns=wire.columns,
        filter=conditions,
    )


@lru_cache(maxsize=64)
def _schema(wire: bytes) -> Schema:
    """All descriptors of one reader have the same schema."""
    return unpack_schema(wire)


def _filter_to_wire(
    wanted: Filter,
) -> tuple[tuple[tuple[int, str, str, bytes, bool], ...], ...]:
    return tuple(
        tuple((c.field_id, c.name, c.op, _values_to_wire(c.values), c.nan) for c in group)
        for group in wanted.alternatives
    )


def _filter_from_wire(
    wire: tuple[tuple[tuple[int, str, str, bytes, bool], ...], ...],
) -> Filter:
    return Filter(
        tuple(
            tuple(
                Condition(field_id, name, op, _values_from_wire(values), nan)
                for field_id, name, op, values, nan in group
            )
            for group in wire
        )
    )


def _values_to_wire(values: pa.Array) -> bytes:
    batch = pa.record_batch([values], ["values"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _values_from_wire(encoded: bytes) -> pa.Array:
    with pa.ipc.open_stream(pa.py_buffer(encoded)) as stream:
        return stream.read_all().combine_chunks().column("values").combine_chunks()
