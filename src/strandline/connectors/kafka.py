"""The Kafka source: exact ranges of a topic's offsets, read by any process.

A position is the next offset of every partition, and which topic it is about, see `kafka_plan`.
Only rows of finished transactions are offered, unless `kafka.isolation.level` says otherwise.
Rows of a compacted topic may vanish from a range, so those topics are not replayable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.connectors.addresses import Reach, reach_of
from strandline.connectors.hosts import addresses_of
from strandline.connectors.kafka_cluster import Cluster
from strandline.connectors.kafka_options import (
    EARLIEST,
    LATEST,
    NAME,
    REACH,
    split_options,
    split_topic,
    topic_of,
)
from strandline.connectors.kafka_plan import (
    TOPIC,
    Found,
    begins_of,
    insist,
    next_range,
    pieces,
    starts_of,
)
from strandline.connectors.kafka_reader import Reader
from strandline.connectors.source import Split
from strandline.errors import SourceError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from strandline.connectors.position import Position, Range
    from strandline.connectors.source import Limits, Ports, ResolveSecret

_SAMPLE_ROWS = 200
_SAMPLED_FOR_ROWS = 200_000
_ROW_BYTES = 100
_ANY = Reach()
_ANEW = (
    "nothing that is sealed needs them: bring them back, or give the table another name, which "
    "begins with what the topic has now"
)


class KafkaSource:
    """A topic. Connects when it is made, so that what `latest` means is settled then (S87)."""

    def __init__(
        self, options: Mapping[str, str], resolve: ResolveSecret, reach: Reach = _ANY
    ) -> None:
        self._options = dict(options)
        self._topic = topic_of(options)
        self._resolve = resolve
        self._reach = reach
        self._cluster = Cluster(self._topic, resolve, reach)
        found = self._found({})
        self._opened = starts_of(self._topic.starting, found)
        self._ends = _position(found)
        self._replayable = not self._cluster.compacted()
        self._row_bytes: int | None = None
        self._planned = 0

    @property
    def replayable(self) -> bool:
        return self._replayable

    def latest(self) -> Position:
        if self._topic.starting == LATEST:
            return dict(self._ends)
        return _position(self._found({}))

    def plan(self, start: Position, limits: Limits) -> Range | None:
        """What there is beyond `start`; a topic that is not `start`'s, or lacks it, is gone.

        A first range may be empty: it makes lasting where each partition began, if that can't be
        found out again.
        """
        found = self._found(start)
        begins = begins_of(start, self._topic.starting, self._opened, found)
        needed = {each: (offset, offset) for each, offset in {**start, **begins}.items()}
        insist(found, self._topic.name, needed, _ANEW)
        most = self._most(found, begins, limits)
        offered = next_range(found, begins, most)
        if offered.empty and (start or self._topic.starting == EARLIEST):
            return None
        self._planned += offered.rows
        return offered

    def splits(self, taken: Range) -> list[Split]:
        identity, _ = taken.parts.get(TOPIC, (None, None))
        options = split_options(self._options, identity, self._reach)
        return [
            Split(NAME, options, partition, start, stop)
            for partition, start, stop in pieces(taken, self._topic.rows_per_split)
        ]

    def check(self, taken: Range) -> None:
        needed = dict(taken.filled().parts)
        if not needed:
            return
        if TOPIC in taken.parts:
            needed[TOPIC] = taken.parts[TOPIC]
        insist(self._cluster.find(), self._topic.name, needed)

    def acknowledge(self, upto: Position) -> None:
        """Kafka keeps rows for as long as the topic says, whoever has read them."""

    def close(self) -> None:
        self._cluster.close()

    def _found(self, start: Position) -> Found:
        found = self._cluster.find()
        if found is None and not start:
            servers = printable(self._topic.client["bootstrap.servers"])
            raise SourceError(
                f"topic {printable(self._topic.name)} does not exist at {servers}: create it, or "
                "change option subscribe"
            )
        return insist(found, self._topic.name, {})

    def _most(self, found: Found, begins: Position, limits: Limits) -> int | None:
        if limits.bytes is None:
            return limits.rows
        if self._row_bytes is None or self._planned >= _SAMPLED_FOR_ROWS:
            self._row_bytes = self._sampled(found, begins)
            self._planned = 0
        fitting = max(1, limits.bytes // (self._row_bytes or _ROW_BYTES))
        return fitting if limits.rows is None else min(limits.rows, fitting)

    def _sampled(self, found: Found, begins: Position) -> int | None:
        """The size of a row, by some of those that come next; `None` if there are none."""
        waiting = {each: bounds.high - begins[each] for each, bounds in found.partitions.items()}
        partition = max(waiting, key=lambda each: waiting[each])
        start, count = begins[partition], min(_SAMPLE_ROWS, waiting[partition])
        reader = Reader(
            self._topic, self._resolve, partition, start, start + count, reach=self._reach
        )
        batches = list(reader.rows())
        rows = sum(each.num_rows for each in batches)
        return -(-sum(each.nbytes for each in batches) // rows) if rows else None


def open_source(options: Mapping[str, str], ports: Ports) -> KafkaSource:
    """The topic that a table's options name."""
    return KafkaSource(options, ports.resolve, ports.reach)


def fetch(split: Split, resolve: ResolveSecret) -> Iterator[pa.RecordBatch]:
    """The rows of exactly the split's offsets, or `SourceGoneError` if they are not all there."""
    topic = split_topic(split.options)
    reach = reach_of(split.options.get(REACH, ""), addresses_of)
    reader = Reader(topic, resolve, split.partition, split.start, split.stop, reach=reach)
    yield from reader.rows()


def _position(found: Found) -> Position:
    ends = {each: bounds.high for each, bounds in found.partitions.items()}
    return {**ends, TOPIC: found.identity} if found.identity else ends
