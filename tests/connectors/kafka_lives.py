"""Kafka sinks, one life after the other, each of which can be ended before any of its effects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import pyarrow as pa

from strandline.connectors.kafka_client import KafkaCluster
from strandline.connectors.kafka_port import Batch, Cluster, Message, Outbox
from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.kafka_target import Target, target_of
from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress
from strandline.testing.conformance_sink import CHANGES, COLUMNS, WHAT, DiedError, no_step

NUMBERS = count()
Rows = list[tuple[int, str | None, int]]

GRAVES: list[Outbox] = []
"""Of those that died. Nobody lets go of anything in a process that has ended; librdkafka may even
end the whole process if one does so in the middle of a transaction."""


class Stepping:
    """A cluster that calls `step` before each effect on it: each batch that is sent is one, or
    each record, if it is to be `fine`."""

    def __init__(
        self, cluster: Cluster, step: Callable[[str], None], *, fine: bool = False
    ) -> None:
        self._cluster = cluster
        self._step = step
        self._fine = fine

    def partitions(self, topic: str) -> int:
        return self._cluster.partitions(topic)

    def identity(self, topic: str) -> int | None:
        return self._cluster.identity(topic)

    def create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self._step("create")
        self._cluster.create(topic, partitions, config)

    def policy(self, topic: str) -> str:
        return self._cluster.policy(topic)

    def bounds(self, topic: str) -> dict[int, tuple[int, int]]:
        return self._cluster.bounds(topic)

    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        return self._cluster.committed(topic, start)

    def outbox(self, transactional_id: str) -> Outbox:
        made = self._cluster.outbox(transactional_id)
        return SteppingOutbox(made, self._step, fine=self._fine)

    def close(self) -> None:
        self._cluster.close()


class SteppingOutbox:
    """The outbox of such a cluster."""

    def __init__(self, outbox: Outbox, step: Callable[[str], None], *, fine: bool) -> None:
        self._outbox = outbox
        self._call = step
        self._fine = fine

    def _step(self, name: str) -> None:
        try:
            self._call(name)
        except DiedError:
            GRAVES.append(self._outbox)
            raise

    def init(self) -> None:
        self._step("init")
        self._outbox.init()

    def begin(self) -> None:
        self._step("begin")
        self._outbox.begin()

    def send(self, topic: str, batch: Batch) -> None:
        size = 1 if self._fine else len(batch.keys)
        for at in range(0, len(batch.keys), size):
            self._step("send")
            end = at + size
            headers = None if batch.headers is None else batch.headers[at:end]
            self._outbox.send(topic, Batch(batch.keys[at:end], batch.values[at:end], headers))

    def commit(self) -> None:
        self._step("commit")
        self._outbox.commit()
        self._step("answer")

    def abort(self) -> None:
        self._step("abort")
        self._outbox.abort()

    def close(self) -> None:
        self._outbox.close()


def options(address: str, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": address, "topic": topic, "envelope": "changes", **more}


def targeted(address: str, topic: str, what: Delivered = WHAT, **more: str) -> Target:
    return target_of(options(address, topic, **more), what)


def own(prefix: str = "l") -> Delivered:
    """What a sink of its own publishes, with a progress topic of its own. Processes that share a
    broker need prefixes of their own, as each counts for itself."""
    return Delivered(Address(f"{prefix}{next(NUMBERS)}", "shop", "out", "first"), COLUMNS)


def batch(rows: Rows) -> pa.RecordBatch:
    given = [dict(zip(CHANGES.names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(given, schema=CHANGES)


def some(t: int, rows: int = 3) -> list[pa.RecordBatch]:
    """A transaction of so many new rows."""
    return [batch([(t * 100 + n, f"row {n}", 1) for n in range(rows)])]


def impatient(sink: KafkaSink) -> None:
    """From here on it does not wait long for answers: the test knows that none will come."""
    outbox = sink._outbox
    assert isinstance(outbox, SteppingOutbox)
    outbox._outbox._patience_s = 0.5


class Lives:
    """One sink after the other on the same topic, as publishers open them."""

    def __init__(self, topics, topic: str, what: Delivered | None = None, **more: str) -> None:
        self.what = what or own()
        self.target = targeted(topics.address, topic, self.what, **more)
        self.topic = topic
        self._sinks: list[KafkaSink] = []

    def new(self, step: Callable[[str], None] = no_step, target: Target | None = None) -> KafkaSink:
        target = target or self.target
        sink = KafkaSink(Stepping(KafkaCluster(target, str), step), target, self.what)
        self._sinks.append(sink)
        return sink

    def opened(
        self, step: Callable[[str], None] = no_step, target: Target | None = None
    ) -> tuple[KafkaSink, Progress | None]:
        sink = self.new(step, target)
        sink.prepare()
        progress = sink.progress()
        if progress is None:
            sink.found(Progress(NOTHING_YET, 1))
        return sink, progress

    def read(self) -> list[Message]:
        """What readers of committed records see."""
        return list(KafkaCluster(self.target, str).committed(self.topic))

    def held(self) -> Rows:
        """What is read back, added up."""
        found = self.new().read_back()
        assert found is not None
        rows = pa.Table.from_batches(found.rows, schema=CHANGES).to_pylist()
        sums: dict[tuple[int, str | None], int] = {}
        for row in rows:
            sums[row["id"], row["name"]] = sums.get((row["id"], row["name"]), 0) + row["_diff"]
        return sorted((*row, diff) for row, diff in sums.items() if diff)

    def times(self) -> list[int]:
        """The times of all messages of `changes`, in order of offsets."""
        return [json.loads(each.value or b"")["time"] for each in self.read()]

    def close(self) -> None:
        for each in self._sinks:
            each.close()
