"""The Cluster port on confluent-kafka: what librdkafka is asked, and what its errors mean.

    fenced    another producer of the same transactional id, or a transaction that ran out of time
    stopped   logins, rights, settings and messages that will be refused again
    else      it may pass; whether it happened is for progress to tell

Waits are bounded, by librdkafka's own timeouts. A message that could not be delivered puts its
transaction into a state that can't be committed, so no delivery report has to be counted.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Protocol, TypeVar

from strandline.connectors.addresses import Reach
from strandline.connectors.kafka_cluster import Cluster as Asker, Complaints, kafka_module
from strandline.connectors.kafka_options import reader_settings
from strandline.connectors.kafka_port import Message
from strandline.connectors.kafka_reader import OF_GROUPS
from strandline.connectors.kafka_target import writer_settings
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError, SourceError, UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka import KafkaError, KafkaException, Producer

    from strandline.connectors.kafka_plan import Found
    from strandline.connectors.kafka_port import Batch, Headers
    from strandline.connectors.kafka_target import Target
    from strandline.connectors.source import ResolveSecret

Answer = TypeVar("Answer")

_ANY = Reach()
_ABORTING_S = 10
_SETTLING_S = 1
_SLICE_S = 0.1
_CONSUMED = 10_000
_ATTEMPTS = 100
FENCED = frozenset(
    {
        "_FENCED",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNKNOWN_PRODUCER_ID",
    }
)
STOPPED = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "_SSL",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "INVALID_RECORD",
        "INVALID_TRANSACTION_TIMEOUT",
        "INVALID_CONFIG",
        "INVALID_PARTITIONS",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",
        "UNSUPPORTED_VERSION",
        "_UNSUPPORTED_FEATURE",
        "_INVALID_ARG",
    }
)


class Received(Protocol):
    """What is used of the library's messages; some of them are errors."""

    def error(self) -> KafkaError | None: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class KafkaCluster:
    """One cluster. Nothing is asked of it before it is used."""

    def __init__(self, target: Target, resolve: ResolveSecret, reach: Reach = _ANY) -> None:
        self._kafka = kafka_module()
        self._target = target
        self._resolve = resolve
        self._reach = reach
        self._askers: dict[str, Asker] = {}

    def partitions(self, topic: str) -> int:
        found = self._found(topic)
        return 0 if found is None else len(found.partitions)

    def identity(self, topic: str) -> int | None:
        found = _translated(lambda: self._asker(topic).find(bounds=False))
        return None if found is None else found.identity

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        asker = _translated(lambda: self._asker(topic))
        _translated(lambda: asker.create(partitions, config))
        for _ in range(_ATTEMPTS):
            if self.partitions(topic):
                return
        raise SinkError(f"topic {topic} was made and does not appear")

    def policy(self, topic: str) -> str:
        return _translated(lambda: self._asker(topic).policy())

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        found = self._found(topic)
        if found is None:
            raise SinkError(f"topic {topic} is not there")
        return {int(each): (at.low, at.high) for each, at in found.partitions.items()}

    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        begins = {
            each: ((start or {}).get(each, low), high)
            for each, (low, high) in self.bounds(topic).items()
        }
        return self._read(topic, {each: at for each, at in begins.items() if at[0] < at[1]})

    def outbox(self, transactional_id: str) -> KafkaOutbox:
        return KafkaOutbox(self._target, self._resolve, transactional_id)

    def close(self) -> None:
        for each in self._askers.values():
            each.close()
        self._askers.clear()

    def _found(self, topic: str) -> Found | None:
        return _translated(lambda: self._asker(topic).find())

    def _asker(self, topic: str) -> Asker:
        if topic not in self._askers:
            self._askers[topic] = Asker(self._target.asking(topic), self._resolve, self._reach)
        return self._askers[topic]

    def _read(self, topic: str, ranges: Mapping[int, tuple[int, int]]) -> Iterator[Message]:
        """Committed records of exactly these ranges; a transaction that is open is waited for."""
        if not ranges:
            return
        reading = self._target.reading(topic)
        complaints = Complaints(reading, reader_settings(reading, self._resolve))
        consumer = _translated(lambda: complaints.made(self._kafka.Consumer))
        try:
            consumer.assign(
                [self._kafka.TopicPartition(topic, each, at) for each, (at, _) in ranges.items()]
            )
            left = {each: high for each, (_, high) in ranges.items()}
            silent_s = 0.0
            while left:
                some = consumer.consume(_CONSUMED, 0) or _one(consumer.poll(_SLICE_S))
                silent_s = 0 if some else silent_s + _SLICE_S
                if silent_s >= self._target.patience_s:
                    raise SinkError(
                        f"topic {topic} could not be read to its end in {silent_s:.0f} s: "
                        f"{complaints.last}; a transaction may be open on it"
                    )
                for each in some:
                    if (error := each.error()) is not None:
                        _passed(error, each, left, complaints)
                    elif each.partition() in left:
                        if each.offset() < left[each.partition()]:
                            yield _message(each)
                        _reach(left, each.partition(), each.offset() + 1)
        finally:
            consumer.close()


class KafkaOutbox:
    """A transactional producer."""

    def __init__(self, target: Target, resolve: ResolveSecret, transactional_id: str) -> None:
        self._kafka = kafka_module()
        self._topic = target.asking(target.topic)
        self._patience_s = target.patience_s
        settings = writer_settings(target, resolve, transactional_id)
        self._complaints = Complaints(self._topic, settings)
        self._producer: Producer | None = None
        self._troubled = False
        self._fenced = ""
        """By which words it was shut out; that is final, and librdkafka says so only once."""

    def init(self) -> None:
        self._troubled, self._fenced = False, ""
        self._complaints.names.clear()
        self._producer = _translated(lambda: self._complaints.made(self._kafka.Producer))
        # Somebody to talk to first: who asks for a coordinator too early waits half a second. One
        # answer may come over the address that was given; the next one is a broker's own.
        for _ in range(2):
            self._guarded(lambda producer: producer.list_topics(self._topic.name, self._patience_s))
        self._guarded(lambda producer: producer.init_transactions(self._patience_s))

    def begin(self) -> None:
        if self._troubled:
            # The request to commit may have been sent twice, and a copy of it that comes late would
            # end this transaction too early. Another outbox has another epoch, which refuses it;
            # whoever opens one looks at the claim and at the progress first.
            raise SinkError("the last commit met trouble on its way: open a new outbox")
        self._guarded(lambda producer: producer.begin_transaction())

    def send(self, topic: str, batch: Batch) -> None:
        self._guarded(lambda producer: self._send(producer, topic, batch))

    def commit(self) -> None:
        before = self._complaints.count
        self._guarded(lambda producer: producer.commit_transaction(self._patience_s))
        self._guarded(lambda producer: producer.poll(0))
        self._troubled = self._complaints.count > before

    def abort(self) -> None:
        self._settle()
        self._guarded(
            lambda producer: producer.abort_transaction(min(_ABORTING_S, self._patience_s))
        )

    def close(self) -> None:
        if self._producer is not None:
            self._settle()
            self._producer.purge()
        self._producer = None

    def _send(self, producer: Producer, topic: str, batch: Batch) -> None:
        # A call for each message is most of what a sink does: nothing is looked up twice, and
        # headers cost as much again, even if there are none.
        send: Callable[..., None] = producer.produce
        records: Iterator[tuple[object, ...]] = zip(repeat(topic), batch.values, batch.keys)
        if batch.headers is not None:
            send = _with_headers(producer)
            records = zip(repeat(topic), batch.values, batch.keys, batch.headers)
        for record in records:
            try:
                send(*record)
            except BufferError:
                self._wait_for_room(producer, partial(send, *record))
        producer.poll(0)

    def _settle(self) -> None:
        """Let partitions that are being added to a transaction be added.

        librdkafka ends the whole process if it is let go of just then, and fails for good if it
        is told just then to abort.
        """
        with suppress(self._kafka.KafkaException):
            if self._producer is not None:
                self._producer.flush(_SETTLING_S)

    def _wait_for_room(self, producer: Producer, send: Callable[[], None]) -> None:
        for _ in range(1 + round(self._patience_s / _SLICE_S)):
            producer.poll(_SLICE_S)
            try:
                send()
            except BufferError:
                continue
            return
        raise SinkError(f"Kafka took nothing for {self._patience_s} s: {self._complaints.last}")

    def _guarded(self, act: Callable[[Producer], object]) -> None:
        if self._fenced:
            raise SinkFencedError(self._fenced)
        if self._producer is None:
            raise SinkError("this outbox is closed: open a new one")
        try:
            act(self._producer)
        except self._kafka.KafkaException as failed:
            meaning = self._meaning(failed)
            self._fenced = str(meaning) if isinstance(meaning, SinkFencedError) else ""
            raise meaning from None

    def _meaning(self, failed: KafkaException) -> Exception:
        """What an error says, or the one that it follows from, which librdkafka told before."""
        error = failed.args[0]
        try:
            if self._producer is not None:
                self._producer.poll(0)
        except self._kafka.KafkaException as fatal:
            self._complaints(fatal.args[0])
        names = {error.name(), *self._complaints.names}
        text = f"topic {printable(self._topic.name)}: {self._complaints.shown(error)}"
        if names & FENCED:
            return SinkFencedError(
                f"another publisher has taken over, or kafka.transaction.timeout.ms is over: {text}"
            )
        if error.name() in STOPPED:
            return SinkStoppedError(text)
        return SinkError(text)


def _with_headers(producer: Producer) -> Callable[..., None]:
    def send(topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> None:
        producer.produce(topic, value, key, headers=list(headers))

    return send


def _translated(ask: Callable[[], Answer]) -> Answer:
    """Ask as sources do, and fail as sinks do."""
    try:
        return ask()
    except UsageError as wrong:
        raise SinkStoppedError(str(wrong)) from None
    except SourceError as trouble:
        raise SinkError(str(trouble)) from None


def _one(message: Received | None) -> list[Received]:
    return [] if message is None else [message]


def _passed(error: KafkaError, at: Received, left: dict[int, int], heard: Complaints) -> None:
    """What a reader is told instead of a record."""
    if error.name() == "_PARTITION_EOF":
        _reach(left, at.partition(), at.offset())
    elif error.name() == "_AUTO_OFFSET_RESET":
        raise SinkError(f"partition {at.partition()} can't be read: {heard.shown(error)}")
    elif error.name() not in OF_GROUPS:
        _translated(lambda: heard.hear(error))


def _reach(left: dict[int, int], partition: int, offset: int) -> None:
    """All before this offset was given out, or is a hole."""
    if offset >= left.get(partition, offset + 1):
        del left[partition]


def _message(each: Received) -> Message:
    headers = tuple((name, value or b"") for name, value in each.headers() or ())
    return Message(
        each.partition(), each.offset(), each.key(), each.value(), headers, each.timestamp()[1]
    )
