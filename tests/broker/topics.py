"""Topics of a broker as tests write them: rows, holes, retention, topics that are made again."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATIENCE_S = 60
_QUIET = {"log_level": 0}


class Topics:
    """What an application and an operator would do to a broker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._admin = AdminClient({"bootstrap.servers": address, **_QUIET})
        self._writers: dict[str | None, Producer] = {}
        self._numbers = itertools.count()

    def make(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """A new topic; `cleanup_policy="compact"` is `cleanup.policy`."""
        topic = name or f"t{next(self._numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, partitions, 1, config=settings)
        self._admin.create_topics([new])[topic].result(_PATIENCE_S)
        self._wait_for(topic, partitions)
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(_PATIENCE_S)
        self._wait_for(topic, partitions)
        # A writer asks about new partitions only now and then.
        self.close()

    def names(self) -> list[str]:
        """Of all topics that there are."""
        return sorted(self._admin.list_topics(timeout=_PATIENCE_S).topics)

    def drop(self, topic: str) -> None:
        """Delete it; returns when the broker no longer shows it, not only when it has agreed."""
        self._admin.delete_topics([topic])[topic].result(_PATIENCE_S)
        for _ in range(_PATIENCE_S * 10):
            if topic not in self._admin.list_topics(timeout=_PATIENCE_S).topics:
                return
            self._admin.poll(0.1)
        raise TimeoutError(f"topic {topic} did not go")

    def forget_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does when it overtakes a reader."""
        place = TopicPartition(topic, partition, offset)
        for done in self._admin.delete_records([place]).values():
            done.result(_PATIENCE_S)

    def write(self, topic: str, values: Iterable[bytes | None], partition: int = 0, **more) -> None:
        """Rows that are there when this returns; `more` as `Producer.produce` takes it."""
        writer = self._writer(None)
        for value in values:
            writer.produce(topic, value, partition=partition, **more)
            writer.poll(0)
        assert writer.flush(_PATIENCE_S) == 0

    def transaction(
        self, topic: str, values: Iterable[bytes], partition: int = 0, *, commit: bool = True
    ) -> None:
        """Rows and a marker, which is a hole in the offsets."""
        self.begin(topic, values, partition)
        self.end(topic, partition, commit=commit)

    def begin(self, topic: str, values: Iterable[bytes], partition: int = 0) -> None:
        """Rows of a transaction that does not end before `end`."""
        writer = self._writer("transactional")
        writer.begin_transaction()
        for value in values:
            writer.produce(topic, value, partition=partition)
        assert writer.flush(_PATIENCE_S) == 0

    def end(self, topic: str, partition: int = 0, *, commit: bool) -> None:
        """End the transaction; returns when its marker is in the partition, not only decided."""
        writer = self._writer("transactional")
        (writer.commit_transaction if commit else writer.abort_transaction)(_PATIENCE_S)
        for _ in range(_PATIENCE_S * 100):
            if self.end_of(topic, partition) == self.end_of(topic, partition, stable=False):
                return
            self._admin.poll(0.01)
        raise TimeoutError(f"a transaction on topic {topic} did not end")

    def end_of(self, topic: str, partition: int = 0, *, stable: bool = True) -> int:
        """The offset after the last row; `stable`: after the last that no transaction holds."""
        place = TopicPartition(topic, partition)
        level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        for _ in range(_PATIENCE_S * 10):
            asked = self._admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)
            try:
                return asked[place].result(_PATIENCE_S).offset
            except KafkaException:  # no leader yet, or no more for a moment
                self._admin.poll(0.1)
        raise TimeoutError(f"nobody knows the end of topic {topic}")

    def close(self) -> None:
        for writer in self._writers.values():
            writer.flush(1)
        self._writers.clear()

    def _writer(self, transactional: str | None) -> Producer:
        if transactional not in self._writers:
            settings = {"bootstrap.servers": self.address, "linger.ms": 5, **_QUIET}
            if transactional is not None:
                settings["transactional.id"] = transactional
            made = Producer(settings)
            if transactional is not None:
                made.init_transactions(_PATIENCE_S)
            self._writers[transactional] = made
        return self._writers[transactional]

    def _wait_for(self, topic: str, partitions: int) -> None:
        """Until the broker shows it: it answers a request before every part of it has heard."""
        for _ in range(_PATIENCE_S * 10):
            try:
                known = self._admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic]
            except KafkaException:
                continue
            ready = [each for each in known.partitions.values() if each.leader >= 0]
            if known.error is None and len(ready) == partitions:
                return
            self._admin.poll(0.1)
        raise TimeoutError(f"topic {topic} did not appear")
