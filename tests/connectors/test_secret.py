"""Secrets are references until they are used, and are shown to nobody (S90)."""

import traceback

import pytest

from strandline.connectors.secret import (
    Secret,
    is_reference,
    resolver,
    shown,
    without_secrets,
)
from strandline.errors import UsageError

MARKER = "hunter2-marker"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("env:PASSWORD", True), ("file:/run/secrets/x", True), ("env:", False), ("env:A B", False),
        ("file:relative", False), ("file:/a\nb", False), ("ENV:X", False), ("", False),
        ("https://env:X", False),
    ],
)  # fmt: skip
def test_references_have_one_of_two_forms(value, expected):
    assert is_reference(value) is expected


def test_s90_a_secret_in_an_option_is_refused_by_name_and_not_shown():
    with pytest.raises(UsageError, match=r"kafka\.sasl\.password") as caught:
        without_secrets({"kafka.sasl.password": MARKER})
    assert MARKER not in "".join(traceback.format_exception(caught.value))
    kept = {"kafka.sasl.password": "env:PASSWORD", "path": "/x"}
    assert without_secrets(kept) == kept


def test_options_are_shown_without_their_secrets():
    given = {"password": MARKER, "token": "env:T", "path": "/x"}
    assert shown(given) == {"password": "***", "token": "env:T", "path": "/x"}
    for name in ("storage.account_key", "catalog.adls.account-key", "catalog.header.Authorization"):
        assert shown({name: MARKER}) == {name: "***"}


def test_a_secret_shows_itself_to_nobody():
    secret = Secret(MARKER)
    assert MARKER not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == MARKER


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("env:A", "value of A\n"),
        ("file:/a", "content"),
        ("file:/crlf", "content"),
        ("file:/two", "content\n"),
    ],
)
def test_references_become_their_values(value, expected):
    files = {"/a": "content\n", "/crlf": "content\r\n", "/two": "content\n\n"}
    assert resolver({"A": "value of A\n"}.get, files.get)(value) == expected


@pytest.mark.parametrize("value", ["env:MISSING", "file:/missing"])
def test_a_reference_to_nothing_is_refused_by_name(value):
    with pytest.raises(UsageError, match=r"(?i)missing"):
        resolver({}.get, {}.get)(value)
