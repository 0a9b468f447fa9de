"""What a multiset of updates adds up to, so that two can be compared without their rows.

With h_A and h_B the row hash under the two digest salts, for updates (row, diff):

    count = sum of diff
    a     = sum of diff * h_A(row)
    b     = sum of diff * h_B(row)          all modulo 2**64, the count read as signed

So digest(X + Y) == digest(X) + digest(Y), whatever the order and wherever the batches are cut;
an insertion and its retraction leave nothing; and two equal rows count twice, they never cancel
as they would under exclusive-or (S69).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from strandline.errors import CorruptionError, invariant
from strandline.model.rowhash import DIGEST_SALT_A, DIGEST_SALT_B, salted

if TYPE_CHECKING:
    from strandline.model.frontier import Time
    from strandline.model.valuehash import I64, U64

_WIRE = struct.Struct("<qQQ")
_MODULUS = 2**64
_BLOCK = 1 << 15
"""Updates that are summed at once, few enough that the temporaries stay in the cache."""


@dataclass(frozen=True, slots=True)
class Digest:
    """The fingerprint of a multiset of updates; equal multisets have equal digests.

    Different ones almost never do: `docs/rowhash.md` says how sure that is, and against whom.

    >>> Digest(1, 5, 7) + Digest(2, 1, 1) - Digest(2, 1, 1) == Digest(1, 5, 7)
    True
    >>> print(Digest(-2, 0xABCDEF0123456789, 7))
    -2:abcdef01234567890000000000000007
    """

    count: int
    a: int
    b: int

    ZERO: ClassVar[Digest]

    @classmethod
    def of(cls, base_hashes: U64, diffs: I64) -> Digest:
        """The digest of updates whose rows have these salt-free hashes (`row_base`)."""
        invariant(len(base_hashes) == len(diffs), "every row to be digested has one diff")
        total = cls.ZERO
        for start in range(0, len(diffs), _BLOCK):
            part = slice(start, start + _BLOCK)
            total += cls._of_block(base_hashes[part], diffs[part])
        return total

    @classmethod
    def _of_block(cls, base_hashes: U64, diffs: I64) -> Digest:
        weights, a, b = _weighted(base_hashes, diffs)
        return _wrapped(*(int(np.add.reduce(column)) for column in (weights, a, b)))

    def __add__(self, other: Digest) -> Digest:
        return _wrapped(self.count + other.count, self.a + other.a, self.b + other.b)

    def __sub__(self, other: Digest) -> Digest:
        return _wrapped(self.count - other.count, self.a - other.a, self.b - other.b)

    def __bool__(self) -> bool:
        return self != Digest.ZERO

    def __str__(self) -> str:
        return f"{self.count}:{self.a:016x}{self.b:016x}"

    def pack(self) -> bytes:
        """24 bytes: count (signed), a, b, each a little-endian 64-bit number."""
        return _WIRE.pack(self.count, self.a, self.b)

    @classmethod
    def unpack(cls, packed: bytes) -> Digest:
        if len(packed) != _WIRE.size:
            raise CorruptionError(f"a digest has {_WIRE.size} bytes, this one {len(packed)}")
        return cls(*_WIRE.unpack(packed))


Digest.ZERO = Digest(0, 0, 0)


def per_time(base_hashes: U64, times: I64, diffs: I64) -> dict[Time, Digest]:
    """The digest of the updates at each time, in order of time.

    Every time that occurs is there, even if its updates cancel: that they do is worth knowing.
    """
    invariant(len(times) == len(diffs), "every update has one time")
    if not len(times):
        return {}
    first = times[0]
    if (times == first).all():
        return {int(first): Digest.of(base_hashes, diffs)}
    found: dict[Time, Digest] = {}
    for start in range(0, len(times), _BLOCK):
        part = slice(start, start + _BLOCK)
        for time, digest in _per_time_block(base_hashes[part], times[part], diffs[part]):
            found[time] = found.get(time, Digest.ZERO) + digest
    return dict(sorted(found.items()))


def _per_time_block(base_hashes: U64, times: I64, diffs: I64) -> list[tuple[Time, Digest]]:
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    starts = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    columns = _weighted(base_hashes[order], diffs[order])
    sums = (np.add.reduceat(column, starts).tolist() for column in columns)
    digests = (_wrapped(count, a, b) for count, a, b in zip(*sums, strict=True))
    return list(zip(ordered[starts].tolist(), digests, strict=True))


def _weighted(base_hashes: U64, diffs: I64) -> tuple[U64, U64, U64]:
    weights = np.ascontiguousarray(diffs, dtype=np.int64).view(np.uint64)
    a = salted(base_hashes, DIGEST_SALT_A)
    b = salted(base_hashes, DIGEST_SALT_B)
    a *= weights
    b *= weights
    return weights, a, b


def _wrapped(count: int, a: int, b: int) -> Digest:
    signed = (count + _MODULUS // 2) % _MODULUS - _MODULUS // 2
    return Digest(signed, a % _MODULUS, b % _MODULUS)
