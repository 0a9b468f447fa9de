"""The suite takes what keeps the rules of Cluster, and refuses what breaks one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from strandline.connectors.kafka_port import Batch, Message
from strandline.errors import SinkError, SinkFencedError
from strandline.system import SystemTasks
from strandline.testing import broker as model
from strandline.testing.broker import Broker, ModelCluster, ModelOutbox
from strandline.testing.conformance_cluster import ClusterStand, check_cluster

TASKS = SystemTasks()


def stand_of(
    kind: type[ModelCluster] = ModelCluster, *, lazy: bool = False
) -> Callable[[], ClusterStand]:
    def stand() -> ClusterStand:
        broker = Broker()
        broker.lazy = lazy

        def wait() -> None:
            broker.work()
            TASKS.sleep(1)

        def cut(topic: str, partition: int, first: int) -> None:
            broker.log.topics[topic][partition].cut(first)

        return ClusterStand(lambda: kind(broker, wait=wait), TASKS, "run-", cut)

    return stand


@pytest.mark.parametrize("lazy", [False, True])
def test_the_broker_in_memory_keeps_the_rules(*, lazy: bool) -> None:
    check_cluster(stand_of(lazy=lazy))


class Uncommitted(ModelCluster):
    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        at = start or {}
        for number, each in enumerate(self._log.topics.get(topic, ())):
            for one in each.records(at.get(number, 0)):
                yield Message(number, one.offset, one.key, one.value, one.headers)


class OnlyTheStable(ModelCluster):
    """It reads up to the last stable offset, as a consumer's own end is, and waits for nothing."""

    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        found = self._log.topics[topic]
        return self._read([(each, each.stable) for each in found], start or {})


class ReadsOn(ModelCluster):
    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        yield from super().committed(topic, start)


class StartsAnew(ModelCluster):
    def committed(self, topic: str, start: Mapping[int, int] | None = None) -> Iterator[Message]:
        return super().committed(topic)


class OneForAll(ModelCluster):
    """All outboxes have one transactional id."""

    def outbox(self, transactional_id: str) -> ModelOutbox:
        return super().outbox("")


class _Forgetful(ModelOutbox):
    def init(self) -> None:
        if self._name not in self._log.owners:
            super().init()
        self._who = (self._log.owners[self._name].producer, self._log.owners[self._name].epoch)


class NeverFences(ModelCluster):
    def outbox(self, transactional_id: str) -> ModelOutbox:
        return _Forgetful(self._link, transactional_id)


class _Backwards(ModelOutbox):
    def send(self, topic: str, batch: Batch) -> None:
        super().send(topic, Batch(batch.keys[::-1], batch.values[::-1], batch.headers))


class Reorders(ModelCluster):
    def outbox(self, transactional_id: str) -> ModelOutbox:
        return _Backwards(self._link, transactional_id)


class _OneByOne(ModelOutbox):
    def send(self, topic: str, batch: Batch) -> None:
        super().send(topic, batch)
        self._end("commit", commit=True)


class CommitsAtOnce(ModelCluster):
    def outbox(self, transactional_id: str) -> ModelOutbox:
        return _OneByOne(self._link, transactional_id)


@pytest.mark.parametrize(
    "wrong",
    [
        Uncommitted, OnlyTheStable, ReadsOn, StartsAnew, OneForAll, NeverFences, Reorders,
        CommitsAtOnce,
    ],
)  # fmt: skip
def test_a_cluster_that_breaks_a_rule_is_refused(wrong: type[ModelCluster]) -> None:
    with pytest.raises((AssertionError, SinkError, SinkFencedError)):
        check_cluster(stand_of(wrong))


def test_another_choice_of_partitions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "partition_of", lambda key, count: sum(key) % count)
    with pytest.raises(AssertionError):
        check_cluster(stand_of())
