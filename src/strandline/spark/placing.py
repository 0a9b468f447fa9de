"""Whether an append is put by place, and what each task of that job is told. Pure.

    the first job   each task puts what it holds in memory as a part, so every part lies over all
                    places, and a key would have to be looked for in each of them
    the second one  divides the places into ranges; each task reads its ranges out of all parts
                    and puts them again, as parts that lie side by side

Only a large append is worth a second job: upkeep merges a small one in a single unit. How large it
is is known from the facts of the first job, so nothing has to be estimated before it runs.

Parts of one sheaf are read together; a task keeps the index of each. However many parts there are,
a sheaf has no more than `SHEAF_PARTS`, and over any place lies one part for each sheaf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from strandline.parts.part import Part
from strandline.parts.ranges import deepest
from strandline.spark.schedule import Span, split_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.shard.settings import Settings

PLACED_BYTES = 128 * 1024 * 1024
"""What one range holds in memory, about, before it is packed."""
SHEAF_PARTS = 512
_TASK_RANGES = 8
"""So many ranges, at most, are one task, if there are enough for all slots: what is lost with it
has to be done again, and each task reads the indexes of its parts anew."""


class Placing(msgspec.Struct, frozen=True, array_like=True):
    """What one task does: these ranges of places, out of these parts, one after the other."""

    parts: tuple[Part, ...]
    ranges: tuple[tuple[int, int], ...]
    """Each from its first place to its last, both inclusive."""
    bytes_max: int = PLACED_BYTES
    """More than so much of a range, unpacked, is put as several parts over the same places."""


_encoder = msgspec.msgpack.Encoder()
_placings = msgspec.msgpack.Decoder(Placing)


def is_worth_it(parts: Sequence[Part], settings: Settings) -> bool:
    """Whether these parts of one append should be put again by place."""
    if sum(part.size for part in parts) < settings.place_bytes:
        return False
    return deepest([(part.place_lo, part.place_hi) for part in parts])[1] > settings.fanout


def placings(
    parts: Sequence[Part], unpacked: int, slots: int, *, range_bytes: int = PLACED_BYTES
) -> list[Placing]:
    """What each task is told; `unpacked` is how many bytes all parts take in memory."""
    total = max(1, sum(part.size for part in parts))
    told: list[Placing] = []
    for sheaf in _sheaves(parts):
        spans = [
            Span(part.place_lo, part.place_hi, max(1, part.size * unpacked // total))
            for part in sheaf
        ]
        ranges = split_bytes(spans, _target(spans, slots, range_bytes))
        tasks = min(len(ranges), max(2 * slots, -(-len(ranges) // _TASK_RANGES)))
        for task in range(tasks):
            start, stop = len(ranges) * task // tasks, len(ranges) * (task + 1) // tasks
            told.append(_placing(sheaf, ranges[start:stop], range_bytes))
    return [each for each in told if each.parts]


def _target(spans: Sequence[Span], slots: int, range_bytes: int) -> int:
    """What a range is to hold: not so much that slots would have nothing to do."""
    total = sum(span.size for span in spans)
    return min(range_bytes, max(range_bytes // 4, total // (2 * slots) + 1))


def _sheaves(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """All parts in lists of about equally many, the same for any order in which tasks ended."""
    ordered = sorted(parts, key=lambda part: part.key)
    count = -(-len(ordered) // SHEAF_PARTS)
    for at in range(count):
        yield ordered[len(ordered) * at // count : len(ordered) * (at + 1) // count]


def _placing(sheaf: Sequence[Part], ranges: list[tuple[int, int]], range_bytes: int) -> Placing:
    lo, hi = ranges[0][0], ranges[-1][1]
    # Statistics are for those who list; tasks need places alone.
    touched = (part for part in sheaf if part.place_lo <= hi and part.place_hi >= lo)
    return Placing(tuple(replace(part, stats=b"") for part in touched), tuple(ranges), range_bytes)


def encode_placing(placing: Placing) -> bytes:
    return _encoder.encode(placing)


def decode_placing(encoded: bytes) -> Placing:
    return _placings.decode(encoded)
