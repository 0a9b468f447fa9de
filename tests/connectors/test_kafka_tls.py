"""Sources and sinks reach a broker over TLS, and one whose certificate nobody vouches for never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker import certificate
from tests.broker.broker import PASSWORD, USER, Broker
from tests.broker.topics import Topics

from strandline.connectors import registry
from strandline.connectors.kafka import KafkaSource
from strandline.connectors.kafka_client import KafkaCluster
from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.connectors.source import Limits
from strandline.errors import SinkStoppedError, UsageError

from .kafka_lives import own, some, targeted


class Secured:
    """A broker of our own, and what a client has to say to it."""

    def __init__(self, folder: Path) -> None:
        self.certificate = certificate.make(folder / "ours")
        self.another = certificate.make(folder / "another")
        self.broker = Broker(folder, certificate=self.certificate)
        self.broker.start()
        self.topics = Topics(self.broker.address)

    def options(self, trusted: Path) -> dict[str, str]:
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.ca.location": str(trusted),
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": USER,
            "kafka.sasl.password": "env:PASSWORD",
        }

    def close(self) -> None:
        self.topics.close()
        self.broker.stop()


@pytest.fixture(scope="module")
def secured(broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Beside the broker that all share, which says whether this machine can have one."""
    made = Secured(tmp_path_factory.mktemp("secured"))
    yield made
    made.close()


def resolve(value: str) -> str:
    return PASSWORD if value == "env:PASSWORD" else value


def test_a_source_reads_over_tls(secured: Secured) -> None:
    name = secured.topics.make()
    secured.topics.write(name, [b"a", b"b"])
    where = {"kafka.bootstrap.servers": secured.broker.sasl_address, "subscribe": name}
    source = KafkaSource({**where, **secured.options(secured.certificate.trusted)}, resolve)
    taken = source.plan({}, Limits(rows=10, bytes=10_000))
    assert PASSWORD not in repr(source.splits(taken))
    batches = [each for split in source.splits(taken) for each in registry.fetch(split, resolve)]
    assert [row["_value"] for batch in batches for row in batch.to_pylist()] == [b"a", b"b"]
    source.close()
    with pytest.raises(UsageError, match=r"kafka\.ssl"):
        KafkaSource({**where, **secured.options(secured.another.trusted)}, resolve)


def test_a_sink_delivers_over_tls(secured: Secured) -> None:
    what = own()
    address, given = secured.broker.sasl_address, {"partitions": "1", "timeoutMs": "5000"}
    trusting = secured.options(secured.certificate.trusted)
    target = targeted(address, "sealed", what, **given, **trusting)
    sink = KafkaSink(KafkaCluster(target, resolve), target, what)
    sink.prepare()
    sink.found(Progress(NOTHING_YET, 1))
    sink.deliver(0, 1, some(0))
    reading = KafkaCluster(target, resolve)
    assert [json.loads(each.value)["time"] for each in reading.committed("sealed")] == [0] * 3
    reading.close()
    sink.close()
    doubting = secured.options(secured.another.trusted)
    refused = targeted(address, "sealed", what, **given, **doubting)
    with pytest.raises(SinkStoppedError, match=r"kafka\.ssl"):
        KafkaSink(KafkaCluster(refused, resolve), refused, what).prepare()
