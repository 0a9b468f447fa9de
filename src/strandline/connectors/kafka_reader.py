"""Reads exact ranges of offsets from a partition, as batches of bounded size.

There is no consumer group and nothing is committed: who reads which range is on record elsewhere.
A range may have fewer rows than offsets: markers of transactions, aborted rows and compaction
leave holes. It ends when the reader has seen an offset at or beyond its end, never by a count.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from strandline.connectors.kafka_cluster import Cluster, Complaints, kafka_module
from strandline.connectors.kafka_options import Topic, reader_settings
from strandline.connectors.kafka_plan import TOPIC, insist
from strandline.connectors.raw import HEADERS, RAW, TIMESTAMP
from strandline.errors import SourceError, SourceGoneError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import KafkaError

    from strandline.connectors.addresses import Reach
    from strandline.connectors.source import ResolveSecret

_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 * 1024 * 1024
_SLICE_MS = 1_000
# The reader never joins a group, so what happens to its coordinator is nobody's business.
OF_GROUPS = (
    "GROUP_AUTHORIZATION_FAILED",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_COORDINATOR",
)


class Message(Protocol):
    """What is used of the library's messages; some of them are errors."""

    def error(self) -> KafkaError | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def offset(self) -> int: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def __len__(self) -> int: ...


class Consumer(Protocol):
    """What is used of the library's consumer to get at messages."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]: ...
    def poll(self, timeout: float) -> Message | None: ...


class Reader:
    """One range of one partition. `rows` may be taken once."""

    def __init__(
        self,
        topic: Topic,
        resolve: ResolveSecret,
        partition: str,
        start: int,
        stop: int,
        *,
        reach: Reach,
    ) -> None:
        self._kafka = kafka_module()
        self._topic = topic
        self._partition = partition
        self._next = start
        self._stop = stop
        self._complaints = Complaints(topic, reader_settings(topic, resolve))
        self._cluster = Cluster(topic, resolve, reach)
        self._waiting: list[Message] = []
        self._bytes = 0
        self._silent_ms = 0

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of the range, in the order of their offsets.

        Before the last of them the topic is looked at again: was it made anew meanwhile, they are
        not those that were asked for.
        """
        if self._next >= self._stop:
            return
        try:
            self._cluster.admit()
        except BaseException:
            self._cluster.close()
            raise
        consumer = self._complaints.made(self._kafka.Consumer)
        try:
            place = self._kafka.TopicPartition(self._topic.name, int(self._partition), self._next)
            consumer.assign([place])
            while self._next < self._stop:
                self._accept(self._arrived(consumer))
                if len(self._waiting) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
                    yield self._batch()
            if self._topic.identity is not None:
                self._insist()
        finally:
            consumer.close()
            self._cluster.close()
        if self._waiting:
            yield self._batch()

    def _arrived(self, consumer: Consumer) -> list[Message]:
        """What came meanwhile, or the first that comes; nothing after a while of silence."""
        # Asked to wait for many, the library waits until there are many: at the end of a topic
        # there never will be.
        many = consumer.consume(_BATCH_ROWS, 0)
        if many:
            return many
        one = consumer.poll(_SLICE_MS / 1000)
        return [] if one is None else [one]

    def _accept(self, messages: Sequence[Message]) -> None:
        good = [each for each in messages if each.error() is None]
        if good:
            self._silent_ms = 0
            self._take(good)
        if len(good) < len(messages):
            for each in messages:
                if (error := each.error()) is not None:
                    self._hear(error, each.offset())
        if not messages:
            self._silent_ms += _SLICE_MS
            self._lose_patience()

    def _take(self, messages: list[Message]) -> None:
        offsets = [each.offset() for each in messages]
        first, last = bisect_left(offsets, self._next), bisect_left(offsets, self._stop)
        self._waiting += messages[first:last] if first or last < len(messages) else messages
        self._bytes += sum(map(len, messages))
        self._next = max(self._next, min(offsets[-1] + 1, self._stop))

    def _hear(self, error: KafkaError, offset: int) -> None:
        if error.name() == "_PARTITION_EOF":
            # All that was before it has been given out, or is a hole.
            self._next = max(self._next, min(offset, self._stop))
        elif error.name() == "_AUTO_OFFSET_RESET":
            self._insist()
            raise SourceError(f"{self._where()}: {printable(error.str(), limit=200)}")
        elif error.name() not in OF_GROUPS:
            self._complaints.hear(error)

    def _lose_patience(self) -> None:
        """Nothing came for a while: find out whether anything will."""
        self._complaints.hear()
        if self._silent_ms >= self._topic.patience_ms:
            self._insist()
            raise SourceError(
                f"{self._where()}: nothing came for {self._silent_ms} ms: {self._complaints.last}"
            )
        # A topic that is gone answers with silence, which is not worth the whole patience.
        if self._silent_ms == 3 * _SLICE_MS:
            try:
                self._insist()
            except SourceGoneError:
                raise
            except SourceError as trouble:
                self._complaints.last = str(trouble)

    def _insist(self) -> None:
        """Raise unless the topic is the one that was meant and has what is still to come."""
        missing = self._next < self._stop
        needed = {self._partition: (self._next, self._stop)} if missing else {}
        if self._topic.identity is not None:
            needed[TOPIC] = (self._topic.identity, self._topic.identity)
        insist(self._cluster.find(bounds=missing), self._topic.name, needed)

    def _where(self) -> str:
        return (
            f"topic {printable(self._topic.name)}, partition {self._partition} can't be read from "
            f"{self._next} to {self._stop}"
        )

    def _batch(self) -> pa.RecordBatch:
        messages, self._waiting, self._bytes = self._waiting, [], 0
        unknown = self._kafka.TIMESTAMP_NOT_AVAILABLE
        stamps = [
            None if kind == unknown else at * 1000
            for kind, at in [each.timestamp() for each in messages]
        ]
        return pa.RecordBatch.from_arrays(
            [
                pa.array([each.key() for each in messages], pa.binary()),
                pa.array([each.value() for each in messages], pa.binary()),
                pa.repeat(pa.scalar(self._partition, pa.string()), len(messages)),
                pa.array([each.offset() for each in messages], pa.int64()),
                pa.array(stamps, RAW.field(TIMESTAMP).type),
                pa.array([each.headers() for each in messages], RAW.field(HEADERS).type),
            ],
            schema=RAW,
        )
