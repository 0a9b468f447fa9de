"""X12: a program can't make a connector speak to an address inside."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import strandline
from strandline.connectors.addresses import Reach, listed_hosts
from strandline.connectors.kafka import KafkaSource, fetch
from strandline.connectors.source import Limits, Split
from strandline.errors import StrandlineError, UsageError
from strandline.testing.engines import arrow_engine

OAUTH = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.method": "oidc",
    "kafka.sasl.oauthbearer.client.id": "me",
    "kafka.sasl.oauthbearer.client.secret": "env:X12_SECRET",
    "kafka.sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:{port}/token",
}


@pytest.fixture
def canary() -> Iterator[socket.socket]:
    """A listener inside: whoever connects to it was led there."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(0.2)
        yield made


def _reached(canary: socket.socket) -> bool:
    try:
        canary.accept()[0].close()
    except TimeoutError:
        return False
    return True


def _run(text: str, *, confined: bool = False) -> None:
    with strandline.open("memory://") as store:
        made = store.pipeline("p", text, engine=arrow_engine, confined=confined)
        made.run(until_idle=True)


def _kafka(servers: str, more: dict[str, str] | None = None) -> str:
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "t",
        "kafkaConsumer.pollTimeoutMs": "500",
        **(more or {}),
    }
    told = ", ".join(f"{name} '{value}'" for name, value in options.items())
    return f"CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING kafka OPTIONS ({told});"


@pytest.mark.parametrize(
    "path", ["http://127.0.0.1:{port}/x", "//127.0.0.1:{port}/x", "[::1]:{port}"]
)
@pytest.mark.parametrize("connector", ["files", "http", "generator", "strandline"])
def test_x12_no_option_reaches_a_listener_of_ours(connector, path, canary):
    target = path.format(port=canary.getsockname()[1])
    text = f"""CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING {connector}
        OPTIONS (path '{target}', url '{target}', shard '{target}', format 'json');"""
    with pytest.raises(StrandlineError):
        _run(text)
    assert not _reached(canary)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
def test_x12_a_program_that_is_served_leads_kafka_to_no_host_that_is_not_listed(host, canary):
    servers = f"{host}:{canary.getsockname()[1]}"
    with pytest.raises(UsageError, match=r"bootstrap.servers' leads to .* not listed"):
        _run(_kafka(servers), confined=True)
    assert not _reached(canary)


def test_x12_a_list_holds_for_everybody_and_what_it_names_is_reached(canary, monkeypatch):
    port = canary.getsockname()[1]
    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", f"127.0.0.0/8:{port + 1}, kafka.example.com")
    with pytest.raises(UsageError, match="not listed"):
        _run(_kafka(f"127.0.0.1:{port}"))
    assert not _reached(canary)
    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", f"127.0.0.0/8:{port}")
    with pytest.raises(StrandlineError, match="could not be asked"):
        _run(_kafka(f"127.0.0.1:{port}"), confined=True)
    assert _reached(canary), "the listener would have told of a connection before, too"


@pytest.mark.parametrize(
    "servers", ["169.254.169.254:80", "2852039166:80", "metadata.google.internal:80"]
)
def test_x12_nobody_reaches_a_metadata_service_by_a_program(servers):
    with pytest.raises(UsageError, match="metadata service"):
        _run(_kafka(f"127.0.0.1:1,{servers}"))


def test_x12_an_other_word_for_the_servers_leads_nowhere_else(canary, monkeypatch):
    port = canary.getsockname()[1]
    with pytest.raises(UsageError, match=r"metadata.broker.list.* leads to"):
        _run(_kafka("127.0.0.1:1", {"kafka.metadata.broker.list": "169.254.169.254:80"}))
    text = _kafka("127.0.0.1:1", {"kafka.metadata.broker.list": f"127.0.0.1:{port}"})
    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", "127.0.0.1:1")
    with pytest.raises(UsageError, match=r"metadata.broker.list.* not listed"):
        _run(text, confined=True)
    assert not _reached(canary)


@pytest.mark.parametrize(
    ("connector", "told", "reason"),
    [
        ("postgresql", "url 'postgresql://10.0.0.5%2Eevil.example/db', table 'x'", "no name"),
        ("postgresql", "url 'postgresql:///db', table 'x'", "not listed"),
        ("postgresql", "url 'dbname=postgres', table 'x'", "not listed"),
        ("iceberg", "table 'a.b', catalog.s3.endpoint 'evil:9000'", "not listed"),
        ("iceberg", "table 'a.b', catalog.s3.endpoint '169.254.169.254'", "metadata service"),
        ("iceberg", "table 'a.b', catalog.uri 'mysql://10.0.0.5/d?host=evil'", "not listed"),
        ("iceberg", "table 'a.b', catalog.type 'glue'", "rest or sql"),
        ("iceberg", "table 'a.b', 'catalog.py-io-impl' 'evil.Files'", "loads code"),
        ("files", "path 's3://10.0.0.5/x', storage.endpoint 'evil:9000'", "not listed"),
    ],
)
def test_x12_a_sink_that_is_served_goes_nowhere_else(connector, told, reason, monkeypatch):
    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", "10.0.0.5")
    text = f"""CREATE TABLE t (k BIGINT, PRIMARY KEY (k)) USING http;
        CREATE SINK s FROM t USING {connector} OPTIONS ({told});"""
    with pytest.raises(UsageError, match=reason):
        _run(text, confined=True)


def test_x12_a_secret_is_sent_only_to_a_host_that_is_listed(canary, monkeypatch):
    """librdkafka would POST the client's secret to the address, before it speaks to a broker."""
    port = canary.getsockname()[1]
    monkeypatch.setenv("X12_SECRET", "hunter2")
    more = {name: value.format(port=port) for name, value in OAUTH.items()}
    with pytest.raises(UsageError, match=r"token.endpoint.url.* a secret goes only") as caught:
        _run(_kafka("127.0.0.1:1", more))
    assert "hunter2" not in str(caught.value)
    assert not _reached(canary)


def test_x12_a_cluster_that_sends_us_elsewhere_is_not_followed(broker, topics):
    """What a broker says of where the others are is checked before anything is asked of them."""
    name, port = topics.make(), broker.address.rpartition(":")[2]
    options = {"kafka.bootstrap.servers": f"localhost:{port}", "subscribe": name}
    with pytest.raises(UsageError, match=r"leads to '127.0.0.1:\d+', which is not listed"):
        KafkaSource(options, str, Reach(listed_hosts("localhost"), only=True))
    KafkaSource(options, str, Reach(listed_hosts("localhost, 127.0.0.1"), only=True)).close()


def test_x12_a_reader_elsewhere_is_led_no_further_than_who_planned_for_it(broker, topics):
    """What a reader may reach comes with its split, as its process may be told nothing."""
    name, port = topics.make(), broker.address.rpartition(":")[2]
    topics.write(name, [b"1"])
    options = {"kafka.bootstrap.servers": f"localhost:{port}", "subscribe": name}
    source = KafkaSource(options, str, Reach(listed_hosts("localhost, 127.0.0.1"), only=True))
    (split,) = source.splits(source.plan({}, Limits()))
    source.close()
    assert [each.num_rows for each in fetch(split, str)] == [1]
    # As if the cluster had brokers elsewhere since then.
    fewer = str(Reach(listed_hosts("localhost"), only=True))
    moved = Split(split.connector, split.options | {"reach": fewer}, split.partition, 0, 1)
    with pytest.raises(UsageError, match=r"leads to '127.0.0.1:\d+', which is not listed"):
        list(fetch(moved, str))
    none = {each: value for each, value in split.options.items() if each != "reach"}
    with pytest.raises(UsageError, match="not listed"):
        list(fetch(Split(split.connector, none, split.partition, 0, 1), str))
