"""A source in memory that does as it is told: it grows, forgets, and fails on purpose.

    topic = ScriptedTopic(["0", "1"])
    topic.send("0", b"key", b"value")
    source = ScriptedSource(topic)

All handles on one topic see the same records, as clients of a broker do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.connectors import raw as layout
from strandline.connectors.position import Position, Range
from strandline.connectors.source import Limits, Split
from strandline.errors import SourceError, SourceGoneError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

NAME = "scripted"


class ScriptedTopic:
    """Records by partition and offset; offsets of records that are gone are never used again."""

    def __init__(self, partitions: Iterable[str] = ("0",)) -> None:
        self.begins: dict[str, int] = dict.fromkeys(partitions, 0)
        self.ends: dict[str, int] = dict.fromkeys(self.begins, 0)
        self._records: dict[tuple[str, int], tuple[bytes | None, bytes | None]] = {}

    def send(self, partition: str, key: bytes | None, value: bytes | None) -> int:
        """Add a record; a partition that is not there yet appears. Its offset is returned."""
        self.begins.setdefault(partition, 0)
        offset = self.ends.setdefault(partition, 0)
        self._records[partition, offset] = (key, value)
        self.ends[partition] = offset + 1
        return offset

    def record(self, partition: str, offset: int) -> tuple[bytes | None, bytes | None]:
        """What was sent there: a key and a value."""
        return self._records[partition, offset]

    def expire(self, partition: str, before: int) -> None:
        """Retention takes everything before an offset."""
        for offset in range(self.begins[partition], min(before, self.ends[partition])):
            self._records.pop((partition, offset), None)
        self.begins[partition] = max(self.begins[partition], min(before, self.ends[partition]))

    def compact(self, partition: str, offset: int) -> None:
        """Take one record away, as compaction does; its offset stays as a gap."""
        self._records.pop((partition, offset), None)

    def fetch(self, split: Split) -> Iterator[pa.RecordBatch]:
        """The records of a split; gone ones are `SourceGoneError`."""
        if split.partition not in self.begins or split.start < self.begins[split.partition]:
            raise _gone(split.partition, split.start, self.begins.get(split.partition))
        places = [
            offset
            for offset in range(split.start, split.stop)
            if (split.partition, offset) in self._records
        ]
        found = [self._records[split.partition, offset] for offset in places]
        keys, values = [key for key, _ in found], [value for _, value in found]
        yield layout.raw_batch(values, split.partition, places, keys=keys)


@dataclass
class ScriptedSource:
    """A handle on a topic. `before` is called with the name of each call and may raise."""

    topic: ScriptedTopic
    replayable: bool = True
    before: Callable[[str], None] = field(default=lambda _: None)
    acknowledged: Position = field(default_factory=dict)

    def latest(self) -> Position:
        self.before("latest")
        return dict(self.topic.ends)

    def plan(self, start: Position, limits: Limits) -> Range | None:
        self.before("plan")
        room = limits.rows
        parts = {}
        for partition in sorted(self.topic.ends):
            first = start.get(partition, self.topic.begins[partition])
            stop = max(first, self.topic.ends[partition])
            if room is not None:
                stop = min(stop, first + room)
                room -= stop - first
            if stop > first:
                parts[partition] = (first, stop)
        return Range(parts) if parts else None

    def splits(self, taken: Range) -> list[Split]:
        self.before("splits")
        return [
            Split(NAME, {}, partition, start, stop)
            for partition, (start, stop) in taken.filled().parts.items()
        ]

    def check(self, taken: Range) -> None:
        self.before("check")
        for partition, (start, _) in taken.filled().parts.items():
            begin = self.topic.begins.get(partition)
            if begin is None or start < begin:
                raise _gone(partition, start, begin)

    def acknowledge(self, upto: Position) -> None:
        self.before("acknowledge")
        for partition, offset in upto.items():
            self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))

    def close(self) -> None:
        self.before("close")


def failing_nth(name: str, nth: int) -> Callable[[str], None]:
    """A script for `ScriptedSource.before`: the nth call of that name (from 1 on) fails, once."""
    calls = 0

    def before(called: str) -> None:
        nonlocal calls
        calls += called == name
        if called == name and calls == nth:
            raise SourceError(f"call {nth} of {name} fails, as the script says")

    return before


def _gone(partition: str, start: int, begin: int | None) -> SourceGoneError:
    left = "there is none" if begin is None else f"it begins at {begin} now"
    return SourceGoneError(f"partition {printable(partition)} can't be read from {start}: {left}")
