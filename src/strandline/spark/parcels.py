"""What the tasks of a job are told, each by its number, on its way to them. Pure.

The same as `errands`, for tasks that are told in words of their own.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import CorruptionError
from strandline.spark.errands import CARRIED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Parcels(msgspec.Struct, frozen=True, array_like=True):
    """What a closure carries: all of it, or the key of the object that has it."""

    ends: tuple[int, ...]
    """Where what each task is told ends."""
    carried: bytes = b""
    key: str = ""

    def of(self, task: int, get_range: Callable[[str, int, int], bytes | None]) -> bytes:
        """What the task of this number is told."""
        start, stop = (self.ends[task - 1] if task else 0), self.ends[task]
        told: bytes | None = self.carried[start:stop]
        if self.key:
            told = get_range(self.key, start, stop - start)
        if told is None:
            raise CorruptionError(f"what a job was told is missing: {self.key}")
        return told


_parcels = msgspec.msgpack.Decoder(Parcels)


def wrap(told: Sequence[bytes], put: Callable[[bytes, str], str]) -> Parcels:
    """Ready to travel; `put` is called if it is too much for a closure.

    >>> parcels = wrap([b"one", b"two"], lambda encoded, kind: "")
    >>> parcels.of(1, lambda key, start, length: None)
    b'two'
    """
    ends = tuple(accumulate(map(len, told)))
    whole = b"".join(told)
    if len(whole) <= CARRIED_BYTES:
        return Parcels(ends, carried=whole)
    return Parcels(ends, key=put(whole, "errands"))


def unwrap(encoded: bytes) -> Parcels:
    return _parcels.decode(encoded)
