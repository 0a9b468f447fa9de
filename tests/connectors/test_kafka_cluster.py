"""A real cluster is asked about topics: what is there, what is not, and who may not ask."""

from concurrent.futures import Future
from threading import Timer
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID
from tests.broker.broker import PASSWORD, USER

from strandline.connectors.kafka_cluster import Cluster, kafka_module
from strandline.connectors.kafka_options import topic_of
from strandline.connectors.kafka_plan import Bounds
from strandline.errors import NotInstalledError, SourceError, UsageError

WRONG = "wrong-marker"
RIGHT = {"env:RIGHT": PASSWORD, "env:WRONG": WRONG}


def resolve(value):
    return RIGHT.get(value, value)


def cluster_of(address, topic, **more):
    options = {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}
    given = {"kafka.bootstrap.servers": address, "subscribe": topic, **options}
    return Cluster(topic_of(given), resolve)


def login(broker, topic, password):
    return cluster_of(
        broker.sasl_address,
        topic,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=USER,
        sasl_password=password,
    )


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(NotInstalledError, match=r"strandline\[kafka\]"):
        kafka_module("confluent_kafka_of_nobody")


def test_a_topic_is_found_with_its_bounds(broker, topics):
    name = topics.make(2)
    topics.write(name, [b"a", b"b", b"c"], 1)
    topics.forget_before(name, 1, 1)
    found = cluster_of(broker.address, name).find()
    assert found.partitions == {"0": Bounds(0, 0), "1": Bounds(1, 3)}


def test_rows_of_open_transactions_are_beyond_the_end_unless_they_are_asked_for(broker, topics):
    name = topics.make()
    topics.transaction(name, [b"a"])
    topics.begin(name, [b"b"])
    careful = cluster_of(broker.address, name)
    careless = cluster_of(broker.address, name, isolation_level="read_uncommitted")
    assert careful.find().partitions["0"] == Bounds(0, 2)
    assert careless.find().partitions["0"] == Bounds(0, 3)
    topics.end(name, commit=False)
    assert careful.find().partitions["0"] == Bounds(0, 4)


def test_a_topic_that_is_not_there_is_none(broker):
    assert cluster_of(broker.address, "nobody-made-this").find() is None


def test_a_topic_that_is_made_again_is_another_one(broker, topics):
    name = topics.make()
    cluster = cluster_of(broker.address, name)
    first = cluster.find().identity
    assert cluster.find().identity == first
    topics.drop(name)
    topics.make(name=name)
    assert cluster.find().identity != first


@pytest.mark.parametrize(
    ("policy", "compacted"), [("delete", False), ("compact", True), ("compact,delete", True)]
)
def test_compaction_is_seen(broker, topics, policy, compacted):
    name = topics.make(cleanup_policy=policy)
    assert cluster_of(broker.address, name).compacted() is compacted


def test_the_right_password_is_let_in(broker, topics):
    name = topics.make()
    assert login(broker, name, "env:RIGHT").find() is not None


def test_s89_a_wrong_password_is_permanent_and_named_without_it(broker, topics):
    name = topics.make()
    with pytest.raises(UsageError, match=r"kafka\.sasl") as refused:
        login(broker, name, "env:WRONG").find()
    assert WRONG not in str(refused.value)


class Slow:
    """A client whose answers take a while; meanwhile a connection that it makes anew complains."""

    def __init__(self, client, complains):
        self._client, self._complains = client, complains

    def describe_topics(self, topics):
        asked = self._client.describe_topics(topics)
        for each in asked.values():
            each.result(10)
        self._complains()
        later = {name: Future() for name in asked}
        for name, each in asked.items():
            Timer(0.3, later[name].set_result, [each.result()]).start()
        return later

    def __getattr__(self, name):
        return getattr(self._client, name)


@pytest.mark.parametrize("before", [True, False], ids=["before", "meanwhile"])
def test_who_was_let_in_is_not_sent_away_by_what_one_connection_says_later(broker, topics, before):
    """A broker that restarts may break off a handshake, days after the login."""
    cluster = login(broker, topics.make(), "env:RIGHT")
    assert cluster.find() is not None
    told = SimpleNamespace(name=lambda: "_SSL", str=lambda: "SSL handshake failed")
    if before:
        cluster._complaints(told)
    complains = (lambda: None) if before else (lambda: cluster._complaints(told))
    cluster._client = Slow(cluster._client, complains)
    assert cluster.find() is not None


def test_s89_a_broker_that_is_not_there_may_come():
    topic = topic_of(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "kafkaConsumer.pollTimeoutMs": "500",
        }
    )
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1.*refused"):
        Cluster(topic, resolve).find()


def test_settings_that_librdkafka_does_not_know_are_named():
    with pytest.raises(UsageError, match=r"sasl\.teapot"):
        cluster_of("127.0.0.1:1", "t", sasl_teapot="short")


def test_a_setting_that_librdkafka_refuses_is_named_without_its_secret():
    with pytest.raises(UsageError, match=r"security\.protocol") as refused:
        cluster_of("127.0.0.1:1", "t", security_protocol="env:WRONG")
    assert WRONG not in str(refused.value)


class Interrupted:
    """A client whose connection breaks while it is asked for offsets: its first answers have none,
    and no error either. The end of a topic is asked for last."""

    def __init__(self, client, answers):
        self._client, self._left = client, answers

    def list_offsets(self, places, **more):
        if not self._left.pop(0):
            return self._client.list_offsets(places, **more)
        empty = Future()
        empty.set_result(SimpleNamespace(offset=OFFSET_INVALID))
        return dict.fromkeys(places, empty)

    def __getattr__(self, name):
        return getattr(self._client, name)


@pytest.mark.parametrize("breaks", [[True, False], [False, True]], ids=["first", "end"])
def test_s24_an_answer_without_an_offset_is_asked_for_again(broker, topics, breaks):
    name = topics.make()
    topics.write(name, [b"a"])
    cluster = cluster_of(broker.address, name)
    left = [*breaks, False, False]
    cluster._client = Interrupted(cluster._client, left)
    assert cluster.find().partitions == {"0": Bounds(0, 1)}
    assert not left
