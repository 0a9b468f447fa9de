"""The client: what its errors mean, and links that break in the middle of a commit (S80)."""

from __future__ import annotations

import json

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.broker.broker import PASSWORD, USER
from tests.broker.proxy import END_TRANSACTION, INIT_PRODUCER, Proxy

from strandline.connectors.kafka_client import FENCED, STOPPED, KafkaCluster, KafkaOutbox
from strandline.connectors.kafka_port import Batch
from strandline.connectors.kafka_sink import KafkaSink
from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import SinkError, SinkFencedError, SinkStoppedError
from strandline.system import SystemTasks

from .kafka_lives import Lives, impatient, own, some, targeted

PATIENCE_MS = "3000"
PATIENCE_S = 60


@pytest.fixture
def proxy(broker):
    made = Proxy(*broker.proxied)
    yield made
    made.close()


class Behind(Lives):
    """Sinks that reach the broker through the proxy, and others that go round it."""

    def __init__(self, topics, proxy: Proxy, partitions: int = 1) -> None:
        super().__init__(topics, topics.make(partitions), timeoutMs="60000")
        self._far = targeted(proxy.address, self.topic, self.what, timeoutMs=PATIENCE_MS)

    def far(self, patience_ms: int | None = None) -> KafkaSink:
        patience_ms = patience_ms or self._far.patience_ms
        return self.opened(target=msgspec.structs.replace(self._far, patience_ms=patience_ms))[0]

    def hasty(self) -> KafkaSink:
        """One that delivered a first transaction, and does not wait long for what comes next."""
        sink = self.far()
        sink.deliver(0, 1, some(0))
        impatient(sink)
        return sink


def test_s80_an_answer_to_a_commit_that_is_lost(topics, proxy) -> None:
    """S80: it counts, nobody was told, and nothing is sent twice."""
    lives = Behind(topics, proxy, partitions=3)
    sink = lives.hasty()
    proxy.lose_answers_to(END_TRANSACTION)
    with pytest.raises(SinkError):
        sink.deliver(1, 1, some(1, 9))
    assert proxy.caught.is_set()
    again, progress = lives.opened()
    assert progress == Progress(1, 1), "it was committed, and the target does not tell"
    again.deliver(2, 1, some(2))
    assert sorted(lives.times()) == [0] * 3 + [1] * 9 + [2] * 3
    lives.close()


def test_s80_a_commit_that_arrives_late(topics, proxy) -> None:
    """S80: we have moved on when it comes, and it changes nothing any more."""
    lives = Behind(topics, proxy)
    sink = lives.hasty()
    proxy.hold(END_TRANSACTION)
    with pytest.raises(SinkError):
        sink.deliver(1, 1, some(1))
    assert proxy.caught.is_set()
    again, progress = lives.opened()
    assert progress == Progress(0, 1)
    proxy.release()
    again.deliver(1, 2, some(1, 5))
    again.deliver(2, 2, some(2))
    assert lives.times() == [0] * 3 + [1] * 5 + [2] * 3
    assert lives.opened()[1] == Progress(2, 2)
    lives.close()


def test_an_answer_to_an_initialisation_that_is_lost(topics, proxy) -> None:
    lives = Behind(topics, proxy)
    lives.far().deliver(0, 1, some(0))
    proxy.lose_answers_to(INIT_PRODUCER)
    with pytest.raises(SinkError):
        lives.far(patience_ms=1_000)
    assert proxy.caught.is_set()
    proxy.mend()
    again = lives.far()
    again.deliver(1, 1, some(1))
    assert lives.times() == [0] * 3 + [1] * 3
    lives.close()


@pytest.mark.parametrize("every", [150, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["up", "down"])
def test_links_that_are_cut_anywhere(topics, proxy, way: str, every: int) -> None:
    """Exactly once, whatever byte was the last; librdkafka or the next publisher goes on."""
    lives = Behind(topics, proxy, partitions=3)
    sink = lives.far()
    for t, after in enumerate(range(0, 900, every)):
        proxy.cut_after(after, way)
        try:
            sink.deliver(t, 1, some(t))
        except (SinkError, SinkFencedError):
            proxy.mend()
            sink.close()
            sink, progress = lives.opened()
            assert progress in {Progress(t - 1, 1), Progress(t, 1), Progress(NOTHING_YET, 1)}
            if progress is not None and progress.t < t:
                sink.deliver(t, 1, some(t))
        proxy.mend()
        assert sorted(lives.times()) == sorted([*range(t + 1)] * 3)
    lives.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((each, SinkFencedError) for each in sorted(FENCED)),
        *((each, SinkStoppedError) for each in sorted(STOPPED)),
        ("_TIMED_OUT", SinkError),
        ("_STATE", SinkError),
        ("COORDINATOR_NOT_AVAILABLE", SinkError),
        ("CONCURRENT_TRANSACTIONS", SinkError),
        ("NOT_ENOUGH_REPLICAS", SinkError),
    ],
)
def test_what_errors_mean(name: str, kind: type[Exception]) -> None:
    outbox = KafkaOutbox(targeted("127.0.0.1:1", "t", own()), str, "id")
    failed = KafkaException(KafkaError(getattr(KafkaError, name)))
    assert type(outbox._meaning(failed)) is kind


def test_an_error_that_follows_from_being_fenced_is_that(topics) -> None:
    outbox = KafkaOutbox(targeted("127.0.0.1:1", "t", own()), str, "id")
    outbox._complaints(KafkaError(KafkaError._FENCED))
    follows = KafkaException(KafkaError(KafkaError._STATE))
    assert isinstance(outbox._meaning(follows), SinkFencedError)


def test_after_a_commit_that_met_trouble_an_outbox_begins_nothing(topics, proxy) -> None:
    """It counts, but may have been sent twice: a copy that comes late would end what is next."""
    name = topics.make(1)
    cluster = KafkaCluster(targeted(proxy.address, name, own()), str)
    outbox = cluster.outbox(f"troubled-{name}")
    outbox.init()
    outbox.begin()
    outbox.send(name, Batch([b"k"], [b"1"]))
    proxy.hold(END_TRANSACTION)

    def cut() -> None:
        proxy.caught.wait(PATIENCE_S)
        proxy.cut()
        proxy.release()

    cutting = SystemTasks().start("cut", cut)
    outbox.commit()
    cutting.join()
    with pytest.raises(SinkError, match="met trouble on its way: open a new outbox"):
        outbox.begin()
    outbox.init()
    outbox.begin()
    outbox.send(name, Batch([b"k"], [b"2"]))
    outbox.commit()
    assert [each.value for each in cluster.committed(name)] == [b"1", b"2"]
    outbox.close()
    cluster.close()


def test_messages_keep_order_keys_nulls_and_headers(topics) -> None:
    name = topics.make(1)
    cluster = KafkaCluster(targeted(topics.address, name, own()), str)
    outbox = cluster.outbox(f"order-{name}")
    outbox.init()
    outbox.begin()
    outbox.send(name, Batch([b"k", None], [None, b"v"]))
    outbox.send(name, Batch([None], [b"w"], [(("h", b"1"), ("h", b"2"))]))
    outbox.commit()
    found = [(each.key, each.value, each.headers) for each in cluster.committed(name)]
    assert found == [
        (b"k", None, ()),
        (None, b"v", ()),
        (None, b"w", (("h", b"1"), ("h", b"2"))),
    ]
    outbox.close()
    cluster.close()


def test_partitions_are_those_of_kafkas_own_clients(topics) -> None:
    """By murmur2 of the key: 12 keys and where Java's client puts them, of three partitions."""
    name = topics.make(3)
    cluster = KafkaCluster(targeted(topics.address, name, own()), str)
    outbox = cluster.outbox(f"places-{name}")
    outbox.init()
    outbox.begin()
    keys = [f"key-{n}".encode() for n in range(12)]
    outbox.send(name, Batch(keys, [b"v"] * 12))
    outbox.commit()
    places = {each.key: each.partition for each in cluster.committed(name)}
    assert places == {key: _murmur2(key) % 3 for key in keys}
    outbox.close()
    cluster.close()


def test_a_queue_that_is_full_is_waited_for(topics) -> None:
    name = topics.make(1)
    target = targeted(topics.address, name, own(), **{"kafka.queue.buffering.max.messages": "100"})
    cluster = KafkaCluster(target, str)
    outbox = cluster.outbox(f"full-{name}")
    outbox.init()
    outbox.begin()
    outbox.send(name, Batch([None] * 2000, [b"%d" % n for n in range(2000)]))
    outbox.commit()
    assert [int(each.value) for each in cluster.committed(name)] == list(range(2000))
    outbox.close()
    cluster.close()


def test_what_is_not_decided_is_waited_for_and_not_for_ever(topics) -> None:
    name = topics.make(1)
    topics.write(name, [b"a"])
    topics.begin(name, [b"b"])
    cluster = KafkaCluster(targeted(topics.address, name, own(), timeoutMs="1000"), str)
    with pytest.raises(SinkError, match="a transaction may be open"):
        list(cluster.committed(name))
    topics.end(name, commit=False)
    topics.write(name, [b"c"])
    assert [each.value for each in cluster.committed(name)] == [b"a", b"c"]
    assert [each.value for each in cluster.committed(name, {0: 1})] == [b"c"]
    cluster.close()


def test_a_login_that_is_refused_stops_the_sink_and_shows_no_secret(broker) -> None:
    what = own()
    options = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": "env:PASSWORD",
        "partitions": "1",
    }
    target = targeted(broker.sasl_address, "secured", what, **options)
    wrong = KafkaSink(KafkaCluster(target, _secret("hunter2-and-more")), target, what)
    with pytest.raises(SinkStoppedError, match=r"kafka\.sasl") as refused:
        wrong.prepare()
    assert "hunter2" not in str(refused.value)
    right = KafkaSink(KafkaCluster(target, _secret(PASSWORD)), target, what)
    right.prepare()
    right.found(Progress(NOTHING_YET, 1))
    right.deliver(0, 1, some(0))
    found = [json.loads(each.value) for each in KafkaCluster(target, _secret(PASSWORD)).committed(
        "secured")]  # fmt: skip
    assert [each["time"] for each in found] == [0] * 3
    wrong.close()
    right.close()


def _secret(password: str):
    return lambda value: password if value == "env:PASSWORD" else value


def _murmur2(key: bytes) -> int:
    """As Kafka's Java client has it, and without the sign, as it uses it."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    state = 0x9747B28C ^ len(key)
    for at in range(0, len(key) // 4 * 4, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & mask
        state = (state * factor & mask) ^ ((word ^ word >> 24) * factor & mask)
    if rest := key[len(key) // 4 * 4 :]:
        state = (state ^ int.from_bytes(rest, "little")) * factor & mask
    state = (state ^ state >> 13) * factor & mask
    return (state ^ state >> 15) & 0x7FFFFFFF
