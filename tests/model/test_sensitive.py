"""Names that say that a value is a secret."""

from __future__ import annotations

import pytest

from strandline.model.sensitive import is_sensitive, is_sensitive_setting


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("kafka.sasl.password", True), ("kafka.ssl.key.password", True), ("password", True),
        ("kafka.sasl.jaas.config", True), ("kafka.ssl.key.pem", True), ("apiKey", True),
        ("kafka.sasl.oauthbearer.client.secret", True), ("token", True),
        ("storage.account_key", True), ("storage.azure_storage_account_key", True),
        ("storage.master_key", True), ("storage.sas_key", True), ("storage.accessKey", True),
        ("storage.service_account_key", True), ("storage.aws_secret_access_key", True),
        ("catalog.adls.account-key", True), ("catalog.adls.connection-string", True),
        ("catalog.header.Authorization", True), ("SharedKey", True),
        ("kafka.ssl.keystore.key", True), ("ssl_key", True),
        ("kafka.ssl.keystore.location", False), ("kafka.sasl.oauthbearer.extensions", False),
        ("catalog.s3.access-key-id", False), ("storage.account_name", False),
        ("catalog.rest.authorization-url", False), ("catalog.credential-provider", False),
        ("kafka.sasl.oauthbearer.token.endpoint.url", False), ("kafka.sasl.username", False),
        ("path", False), ("key", False), ("keys", False), ("format", False),
    ],
)  # fmt: skip
def test_options_are_secret_by_name(option, expected):
    assert is_sensitive(option) is expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("password", True), ("sslpassword", True), ("Pwd", True), ("access_token", True),
        ("accessToken", True), ("client_secret", True), ("secret_key", True), ("api-key", True),
        ("AccountKey", True), ("SharedAccessKey", True), ("SharedAccessSignature", True),
        ("sig", True), ("X-Amz-Signature", True), ("X-Amz-Security-Token", True),
        ("credentials", True), ("Authorization", True), ("private_key", True),
        ("sasl.jaas.config", True),
        ("tokenizer", False), ("max_tokens", False), ("passwordless", False), ("config", False),
        ("token.endpoint", False), ("token_type", False), ("secretary", False), ("design", False),
        ("AWSAccessKeyId", False), ("sslkey", False), ("AccountName", False),
    ],
)  # fmt: skip
def test_settings_are_secret_by_how_their_name_ends(word, expected):
    assert is_sensitive_setting(word) is expected
