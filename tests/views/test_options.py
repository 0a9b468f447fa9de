"""What may be said in OPTIONS, and secrets that may not."""

from __future__ import annotations

import pytest

from strandline.views.options import check_options, check_required, split_ours
from strandline.views.troubles import Refused

SECRETS = [
    "password", "kafka.sasl.password", "ssl.key.password", "client.secret", "auth_token",
    "aws.secret.access.key", "sasl.jaas.config", "api.key", "apiKey", "ssl.key.pem", "credentials",
    "storage.account_key", "storage.azure_storage_account_key", "catalog.adls.account-key",
    "catalog.adls.connection-string", "catalog.header.Authorization", "kafka.ssl.keystore.key",
    "kafka.ssl.key",
]  # fmt: skip


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_is_a_reference_and_never_printed(key):
    check_options([(key, "env:NAME")], "table t")
    check_options([(key, "file:/run/secrets/x")], "table t")
    for value in ("hunter2", "env:NA ME", "file:relative", " env:NAME"):
        with pytest.raises(Refused, match="holds a secret") as refused:
            check_options([(key, value)], "table t")
        assert value not in refused.value.what + refused.value.todo


@pytest.mark.parametrize("key", ["ssl.ca.location", "token.endpoint", "sasl.mechanism", "topic"])
def test_what_only_sounds_like_a_secret_is_none(key):
    check_options([(key, "PLAIN")], "table t")


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://u:hunter2@h/db",
        "postgresql://u:hunter2/w@h/db",
        "postgresql://u:hunter2?w@h/db",
        "postgresql://u:hunter2#@h/db",
        "postgresql://u:hunter 2@h/db",
        "postgresql://u:p@hunter2@h/db",
        "postgresql://h/db?user=u&password=hunter2",
        "postgresql://h/db?PassWord=hunter2",
        "postgresql://h/db?pass%77ord=hunter2",
        "postgresql://h/db?sslpassword=hunter2",
        "postgresql+psycopg2://h/db?password=hunter2",
        "host=h user=u password=hunter2",
        "host=h user=u password = 'hunter2'",
        "host='h'password=hunter2",
        "host= password=hunter2",
        "password=hunter2",
        "Server=h;Uid=u;Pwd=hunter2",
        "https://h/x?access_token=hunter2",
        "https://h/x?a=1&client_secret=hunter2",
        "s3://bucket/x?api-key=hunter2",
        "https://h.blob.core.windows.net/x?sv=2024-11-04&sig=hunter2",
        "https://h/x?X-Amz-Signature=hunter2",
        "https://h/x#access_token=hunter2",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2==",
        "logicalCluster=lkc-1,access_token=hunter2",
        '{"type": "basic", "basic": {"username": "u", "password": "hunter2"}}',
        '{"client_secret" : "hunter2"}',
        "-----BEGIN PRIVATE KEY-----hunter2",
        "-----BEGIN RSA PRIVATE KEY-----hunter2",
        "postgresql://u:123456@h/db",
        "postgresql://u:5432hunter2@h/db",
        "postgresql://u:hunter2,http://x@h/db",
        "postgresql://a:5432,u:hunter2@h/db",
        "http://a:8081,http://u:hunter2@b",
        "http://[::1]:8081,http://u:hunter2@b",
        "http://u:[::1]hunter2@b",
    ],
)
def test_a_secret_within_a_value_is_refused_and_never_printed(value):
    with pytest.raises(Refused, match="option 'url' holds a secret") as refused:
        check_options([("url", value)], "sink s")
    assert "hunter2" not in refused.value.what + refused.value.todo
    assert "'env:NAME'" in refused.value.todo


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://shop@db.example.com:5432/shop",
        "postgresql://shop@[::1]:5432/shop?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "host=h user=u dbname=d",
        "sqlite:////data/catalog.db",
        "SASL_SSL://a:9092,SASL_SSL://b:9092",
        "/data/token=7/part",
        "s3://bucket/a:b@c",
        "https://h/x?token.endpoint=https://h/token",
        "host=h password=",
        "http://h:8181/api/@me/catalog",
        "http://[fe80::1%25eth0]:8181/api/@me/catalog",
        "https://h:8181/?scope=a@b",
        "https://h:8181#a@b",
        "hdfs://nn:8020/user/a@REALM/x",
        "http://a:8081,http://u@b",
        "http://a,http://u@b",
        "postgresql://h:5432/db?application_name=a@b",
        "https://h/x?tokenizer=standard",
        "https://h/x?max_tokens=7&passwordless=1",
        "file:///data",
    ],
)
def test_what_holds_no_secret_may_be_said(value):
    check_options([("url", value)], "sink s")


@pytest.mark.parametrize("key", ["", "a b", "a..b", ".a", "a.", "1a", "a;b", "a'b", "ä"])
def test_a_key_is_words_with_dots(key):
    with pytest.raises(Refused, match="is no option"):
        check_options([(key, "x")], "table t")


def test_ours_are_found_whatever_their_case():
    ours, rest = split_ours({"Envelope": "upsert", "SEQUENCEBY": "a", "path": "x"})
    assert (ours, rest) == ({"envelope": "upsert", "sequenceby": "a"}, {"path": "x"})


def test_required_options_are_found_whatever_their_case():
    check_required("kafka", {"Kafka.Bootstrap.Servers": "x", "SUBSCRIBE": "y"})
    with pytest.raises(Refused, match="kafka needs the option subscribe"):
        check_required("kafka", {"kafka.bootstrap.servers": "x"})


@pytest.mark.parametrize(
    "key",
    ["catalog.auth", "catalog.auth.type", "catalog.auth.basic.password", "catalog.ssl",
     "catalog.ssl.client", "catalog.SSL.client.key"],
)  # fmt: skip
@pytest.mark.parametrize("value", ['{"type": "noop"}', "env:NAME"])
def test_what_pyiceberg_takes_as_a_mapping_is_refused_by_name(key, value):
    with pytest.raises(Refused, match="says nothing to pyiceberg") as refused:
        check_options([(key, value)], "sink s")
    assert "noop" not in refused.value.what + refused.value.todo
    # Where it is on record it did nothing, and does no harm.
    check_options([(key, value)], "sink s", recorded=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kafka.sasl.oauthbearer.extensions", "logicalCluster=lkc-1,identityPoolId=pool-2"),
        ("catalog.authorization-url", "https://h/token"),
        ("catalog.sslmode", "require"),
        ("avro.schema", '{"type": "record", "fields": [{"name": "password", "type": "string"}]}'),
        ("startingOffsets", '{"access_token": {"0": 5}}'),
        ("kafka.ssl.keystore.location", "/run/keystore"),
        ("kafka.ssl.keystore.certificate.chain", "-----BEGIN CERTIFICATE-----"),
    ],
)
def test_what_is_no_secret_is_taken(key, value):
    check_options([(key, value)], "sink s")
