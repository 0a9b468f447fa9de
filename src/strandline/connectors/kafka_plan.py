"""What of a topic comes next, and what of it is lost. Decisions only: `kafka` asks the broker.

Beside its partitions a position holds `topic`: which topic of that name it is about, as a number
made from the topic's id. Its ranges are empty. A topic that was deleted and made again has the
same name and the same offsets, and other rows: without this it could not be told apart. Some
clusters give topics no ids: then there is none, until they do.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.kafka_options import EARLIEST, LATEST
from strandline.connectors.position import Position, Range
from strandline.errors import SourceGoneError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC = "topic"


class Bounds(msgspec.Struct, frozen=True):
    """The offsets that a partition has: `[low, high)`; open transactions lie above `high`."""

    low: int
    high: int


class Found(msgspec.Struct, frozen=True):
    """A topic as the broker describes it now."""

    name: str
    identity: int
    partitions: dict[str, Bounds]


_NO_ID = "A" * 22
"""As the client writes the id of a topic whose cluster gives none."""


def identity_of(topic_id: str) -> int:
    """A topic's id as a number that any JSON reader keeps exact; 0 if it has none."""
    if topic_id == _NO_ID:
        return 0
    return int.from_bytes(hashlib.blake2b(topic_id.encode(), digest_size=6).digest(), "big")


def starts_of(starting: int | Mapping[str, int], found: Found) -> Position:
    """Where each partition begins that there is when a source is opened (S87)."""
    starts = {}
    for partition, bounds in found.partitions.items():
        wanted = starting if isinstance(starting, int) else starting.get(partition)
        if wanted is not None:
            starts[partition] = {EARLIEST: bounds.low, LATEST: bounds.high}.get(wanted, wanted)
    return starts


def begins_of(
    start: Mapping[str, int], starting: int | Mapping[str, int], opened: Position, found: Found
) -> Position:
    """The next offset of every partition; `opened` are the starts when the source was opened.

    Every range holds all partitions that there were. So one that is missing from a position is
    new, and begins at 0; only the first range of all begins where the options say.
    """
    begins = {}
    for partition, bounds in found.partitions.items():
        if partition in start:
            begins[partition] = start[partition]
        elif start:
            begins[partition] = 0
        elif starting == EARLIEST:
            begins[partition] = bounds.low
        elif partition in opened:
            begins[partition] = opened[partition]
        elif isinstance(starting, int):
            begins[partition] = 0
        else:
            raise UsageError(
                f"option startingOffsets does not say where partition {partition} of topic "
                f"{printable(found.name)} begins: name all of {', '.join(found.partitions)}"
            )
    return begins


def lost(found: Found | None, name: str, needed: Mapping[str, tuple[int, int]]) -> str | None:
    """What of `needed` (`[start, stop)` by partition, and `topic`) can't be read, as a sentence."""
    topic = f"topic {printable(name)}"
    if found is None:
        return f"{topic} does not exist any more"
    identity = needed.get(TOPIC, (found.identity, 0))[0]
    if identity and found.identity and identity != found.identity:
        return (
            f"{topic} was deleted and made again: rows were taken from the one with id {identity}, "
            f"and this one has id {found.identity}"
        )
    for partition, (start, stop) in needed.items():
        if partition == TOPIC:
            continue
        bounds = found.partitions.get(partition)
        if bounds is None:
            return f"{topic} has no partition {partition} any more, needed from {start} to {stop}"
        if start < bounds.low or stop > bounds.high:
            return (
                f"{topic}, partition {partition}: offsets {start} to {stop} are needed, and the "
                f"broker has {bounds.low} to {bounds.high}"
            )
    return None


_AMEND = "bring the rows back, or amend the transaction that needs them"


def insist(
    found: Found | None, name: str, needed: Mapping[str, tuple[int, int]], remedy: str = _AMEND
) -> Found:
    """The topic, if it has all that is needed of it."""
    reason = lost(found, name, needed)
    if found is None or reason is not None:
        raise SourceGoneError(f"{reason}; {remedy}")
    return found


def next_range(found: Found, begins: Position, most: int | None) -> Range:
    """What is offered: at most `most` offsets, shared out by how much each partition has.

    All partitions are in it, those too of which nothing is taken: the first range of all makes
    their beginnings last.
    """
    waiting = {each: bounds.high - begins[each] for each, bounds in found.partitions.items()}
    taken = _shared(waiting, most)
    parts = {each: (begins[each], begins[each] + taken[each]) for each in waiting}
    known = {TOPIC: (found.identity, found.identity)} if found.identity else {}
    return Range({**parts, **known})


def _shared(waiting: Mapping[str, int], most: int | None) -> dict[str, int]:
    total = sum(waiting.values())
    if most is None or total <= most:
        return dict(waiting)
    shares = {each: count * most // total for each, count in waiting.items()}
    left = most - sum(shares.values())
    # What rounding left over goes to those who lost most by it; each of them has that much.
    for each in sorted(waiting, key=lambda name: (-(waiting[name] * most % total), name))[:left]:
        shares[each] += 1
    return shares


def pieces(taken: Range, most: int) -> list[tuple[str, int, int]]:
    """The range cut so that no piece has more than `most` offsets, in order."""
    return [
        (partition, start, min(start + most, stop))
        for partition, (first, stop) in taken.parts.items()
        if partition != TOPIC
        for start in range(first, stop, most)
    ]
