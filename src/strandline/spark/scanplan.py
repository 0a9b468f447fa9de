"""How a table is read as a DataFrame: what Spark scans itself, and what corrects it. Pure.

    pieces that only insert    are Parquet that Spark reads by itself, without adding anything up
    all others, the tail       are added up; rows that it retracts are taken out of the scan

Tasks of ours read everything instead, range by range, where that is better or the only way:

    the tail is large          it would not fit into the driver, or into a broadcast
    retractions without a key  there is nothing to look rows up by
    types and paths            that Spark's own reader does not read as we do
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.types as is_

from strandline.parts.part import Part
from strandline.reading.descriptor import decode_descriptor, encode_descriptor
from strandline.spark.source_plan import Way, Work, only_inserts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.model.valuehash import U64
    from strandline.reading.descriptor import PartDescriptor

TAIL_BYTES = 32 * 1024 * 1024
"""The most that a driver reads and adds up itself."""
TAIL_ROWS = 1_000_000
GLOBS = frozenset("*?[]{}\\")
"""What Spark takes for a pattern in a path."""

_PLAIN = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.date32(),
}


@dataclass(frozen=True, slots=True)
class Divided:
    """The pieces of a snapshot, by who reads them."""

    scanned: tuple[PartDescriptor, ...]
    """By Spark: parts that only insert."""
    tail: tuple[PartDescriptor, ...]

    @property
    def is_light(self) -> bool:
        """Whether the tail is worth adding up in the driver."""
        size = sum(each.size for each in self.tail)
        rows = sum(each.piece.rows for each in self.tail)
        return size <= TAIL_BYTES and rows <= TAIL_ROWS

    def split(self, places: U64) -> tuple[Divided, Divided]:
        """Those that may hold something at these places, which ascend, and those that can't."""
        near: list[PartDescriptor] = []
        far: list[PartDescriptor] = []
        for each in self.scanned:
            (near if _holds(each, places) else far).append(each)
        return Divided(tuple(near), self.tail), Divided(tuple(far), ())

    def scans(self) -> list[tuple[bool, list[str]]]:
        """The keys of the objects to scan; `True` with those of which later times are left out."""
        whole = [each for each in self.scanned if each.whole]
        cut = [each for each in self.scanned if not each.whole]
        return [(is_cut, _keys(parts)) for is_cut, parts in ((False, whole), (True, cut)) if parts]


def divide(parts: Iterable[PartDescriptor]) -> Divided:
    """Divide the pieces of a snapshot."""
    scanned: list[PartDescriptor] = []
    tail: list[PartDescriptor] = []
    for each in parts:
        alone = isinstance(each.piece, Part) and only_inserts(each)
        (scanned if alone else tail).append(each)
    return Divided(tuple(scanned), tuple(tail))


def scans_natively(kind: pa.DataType) -> bool:
    """Whether Spark's Parquet reader gives the values of this type as `arrowtypes` would.

    >>> scans_natively(pa.list_(pa.decimal128(12, 2))), scans_natively(pa.timestamp("ns"))
    (True, False)
    """
    if kind in _PLAIN or is_.is_decimal128(kind):
        return True
    if is_.is_timestamp(kind):
        return bool(kind.unit == "us")
    if is_.is_struct(kind):
        return all(scans_natively(field.type) for field in kind)
    if is_.is_map(kind):
        return scans_natively(kind.key_type) and scans_natively(kind.item_type)
    return bool(is_.is_list(kind) and scans_natively(kind.value_type))


def _holds(each: PartDescriptor, places: U64) -> bool:
    if not isinstance(each.piece, Part):
        return True
    first = int(np.searchsorted(places, np.uint64(each.piece.place_lo), side="left"))
    return first < len(places) and int(places[first]) <= each.piece.place_hi


def _keys(parts: Sequence[PartDescriptor]) -> list[str]:
    return [each.piece.key for each in parts if isinstance(each.piece, Part)]


# The tasks that read everything themselves, as they travel.


class _Wire(msgspec.Struct, frozen=True, array_like=True):
    way: str
    pieces: tuple[bytes, ...]
    against: tuple[bytes, ...]
    lo: int
    hi: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Wire)


def encode_work(work: Work) -> bytes:
    return _encoder.encode(
        _Wire(
            work.way.value,
            tuple(encode_descriptor(each) for each in work.pieces),
            tuple(encode_descriptor(each) for each in work.against),
            work.lo,
            work.hi,
        )
    )


def decode_work(encoded: bytes) -> Work:
    wire = _decoder.decode(encoded)
    return Work(
        Way(wire.way),
        tuple(decode_descriptor(each) for each in wire.pieces),
        tuple(decode_descriptor(each) for each in wire.against),
        wire.lo,
        wire.hi,
    )
