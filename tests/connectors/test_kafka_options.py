"""A topic's options: Spark's words, refusals by name, secrets that stay references."""

import pytest

from strandline.connectors.addresses import Reach
from strandline.connectors.kafka_options import (
    EARLIEST,
    LATEST,
    admin_settings,
    hidden,
    reader_settings,
    split_options,
    split_topic,
    topic_of,
)
from strandline.errors import UsageError

GIVEN = {"kafka.bootstrap.servers": "host:9092", "subscribe": "orders"}
MARK = "s3cret-marker"


def resolve(value):
    return MARK if value == "env:PASSWORD" else value


def test_a_topic_needs_servers_and_a_name_and_begins_at_the_earliest():
    topic = topic_of(GIVEN)
    assert (topic.name, topic.starting, topic.committed_only) == ("orders", EARLIEST, True)
    assert topic.client == {"bootstrap.servers": "host:9092"}


@pytest.mark.parametrize(
    ("text", "starting"),
    [
        ("latest", LATEST),
        ("Earliest", EARLIEST),
        ('{"orders": {"0": 23, "1": -2}}', {"0": 23, "1": EARLIEST}),
    ],
)
def test_starting_offsets_are_words_or_json(text, starting):
    assert topic_of({**GIVEN, "startingOffsets": text}).starting == starting


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"subscribe": ""}, "subscribe"),
        ({"subscribe": "a,b"}, "one topic"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"startingOffsets": "newest"}, "startingOffsets"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "not about the topic"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "partition '0'"),
        ({"startingOffsets": '{"orders": {"x": 3}}'}, "partition 'x'"),
        ({"failOnDataLoss": "false"}, "failOnDataLoss"),
        ({"subscribePattern": "or.*"}, "one table per topic"),
        ({"startingOffset": "latest"}, "no option 'startingOffset'"),
        ({"topicId": "1"}, "no option 'topicId'"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
        ({"kafkaConsumer.pollTimeoutMs": "soon"}, "kafkaConsumer.pollTimeoutMs"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
        ({"kafka.isolation.level": "none"}, "kafka.isolation.level"),
        ({"kafka.sasl.password": "plain text"}, "kafka.sasl.password"),
        ({"kafka.plugin.library.paths": "/tmp/x.so"}, "run or load programs"),
        ({"kafka.sasl.kerberos.kinit.cmd": "touch /tmp/x"}, "run or load programs"),
        ({"kafka.SSL.Engine.Location": "/tmp/x.so"}, "run or load programs"),
        ({"kafka.oauth_cb": "x"}, "run or load programs"),
    ],
)
def test_what_cannot_be_right_is_refused_by_name(options, names):
    with pytest.raises(UsageError, match=names):
        topic_of({**GIVEN, **options})


def test_settings_of_kafka_are_passed_on_and_secrets_resolved_only_then():
    secure = {
        **GIVEN,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": "env:PASSWORD",
        "kafka.ssl.ca.location": "/etc/ca.pem",
        "kafka.fetch.wait.max.ms": "7",
    }
    topic = topic_of(secure)
    assert MARK not in repr(topic)
    asking, reading = admin_settings(topic, resolve), reader_settings(topic, resolve)
    for settings in (asking, reading):
        assert settings["security.protocol"] == "SASL_SSL"
        assert settings["sasl.password"] == MARK
        assert settings["ssl.ca.location"] == "/etc/ca.pem"
    assert reading["fetch.wait.max.ms"] == "7"
    assert "fetch.wait.max.ms" not in asking
    assert reading["isolation.level"] == "read_committed"
    assert reading["enable.auto.commit"] is False


def test_errors_of_others_are_shown_without_secrets():
    topic = topic_of({**GIVEN, "kafka.sasl.password": "env:PASSWORD"})
    settings = reader_settings(topic, resolve)
    assert hidden(f"bad value {MARK}!", topic, settings) == "'bad value ***!'"


def test_a_split_has_what_a_reader_needs_and_which_topic_is_meant():
    given = {**GIVEN, "format": "json", "kafka.sasl.password": "env:PASSWORD"}
    told = split_options(given, 77, Reach())
    meant = {"topicId": "77", "reach": "any "}
    assert told == {**GIVEN, "kafka.sasl.password": "env:PASSWORD", **meant}
    assert split_topic(told).identity == 77
    assert split_topic(split_options(given, None, Reach())) == topic_of(given)
