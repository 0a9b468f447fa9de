"""The errands of a range job on their way to its tasks. Pure.

Few bytes travel in the closure: an object costs a synced write and a read for each task. Many
travel as one object, of which each task reads its own piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import CorruptionError
from strandline.spark.instruction import Errand, decode_errand, encode_errand

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CARRIED_BYTES = 256 * 1024
"""A closure of up to this size costs nothing that can be measured."""


class Errands(msgspec.Struct, frozen=True, array_like=True):
    """What the closure of a range job carries, beside its site."""

    shard_id: str
    ends: tuple[int, ...]
    """Where the errand of each task ends."""
    carried: bytes = b""
    key: str = ""
    """The object that has them, if they are not carried."""

    def of(self, task: int, get_range: Callable[[str, int, int], bytes | None]) -> Errand:
        start, stop = (self.ends[task - 1] if task else 0), self.ends[task]
        encoded: bytes | None = self.carried[start:stop]
        if self.key:
            encoded = get_range(self.key, start, stop - start)
        if encoded is None:
            raise CorruptionError(f"the errands {self.key} of a job are missing")
        return decode_errand(encoded, self.shard_id)


def send(errands: Sequence[Errand], shard_id: str, put: Callable[[bytes, str], str]) -> Errands:
    """Errands ready to travel; `put` is called if they are too many for a closure."""
    pieces = [encode_errand(each, shard_id) for each in errands]
    ends, end = [], 0
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    encoded = b"".join(pieces)
    if end <= CARRIED_BYTES:
        return Errands(shard_id, tuple(ends), carried=encoded)
    return Errands(shard_id, tuple(ends), key=put(encoded, "errands"))
