"""What may be said in OPTIONS, and secrets that may not."""

from __future__ import annotations

import pytest

from strandline.views.options import check_options, check_required, split_ours
from strandline.views.troubles import Refused

SECRETS = [
    "password", "kafka.sasl.password", "ssl.key.password", "client.secret", "auth_token",
    "aws.secret.access.key", "sasl.jaas.config", "api.key", "apiKey", "ssl.key.pem", "credentials",
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
