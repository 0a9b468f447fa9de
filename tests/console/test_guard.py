"""Who may ask: every combination of Host, Origin and token."""

from __future__ import annotations

import pytest

from strandline.console.guard import WRONG_MAX, Guard, host_of, is_loopback

TOKEN = "a-token-for-tests-only"
GOOD = {"host": "localhost:8780", "authorization": f"Bearer {TOKEN}"}


def status(headers: dict[str, str], guard: Guard | None = None) -> int:
    refusal = (guard or Guard(TOKEN)).refusal(headers, 0)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "[::1]:8780"}, 200),
        ({"host": "LOCALHOST"}, 200),
        ({"authorization": f"bearer {TOKEN}"}, 200),
        ({"origin": "http://localhost:8780"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"authorization": ""}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": f"Bearer {TOKEN[:-1]}"}, 401),
        ({"authorization": "Bearer é"}, 401),
    ],
)
def test_only_who_has_all_three_is_served(changed, expected):
    assert status(GOOD | changed) == expected


def test_a_cookie_is_no_token():
    assert status({"host": "localhost", "cookie": f"token={TOKEN}"}) == 401


def test_wrong_tokens_are_counted_and_forgiven_after_a_minute():
    guard = Guard(TOKEN)
    wrong = GOOD | {"authorization": "Bearer wrong"}
    assert [status(wrong, guard) for _ in range(WRONG_MAX)] == [401] * WRONG_MAX
    assert status(wrong, guard) == 429
    assert status(GOOD, guard) == 200
    assert guard.refusal(wrong, 60_000).status == 401


def test_names_that_were_added_are_served():
    guard = Guard(TOKEN, frozenset({"lake.example"}))
    assert status(GOOD | {"host": "lake.example:443"}, guard) == 200
    assert status(GOOD, guard) == 403


@pytest.mark.parametrize(
    ("given", "host"),
    [("a:1", "a"), ("[::1]", "::1"), ("[::1]:9", "::1"), ("", ""), ("A.b", "a.b")],
)
def test_a_host_is_read_without_its_port(given, host):
    assert host_of(given) == host


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
    ],
)
def test_what_others_reach_is_no_loopback(host, loopback):
    assert is_loopback(host) is loopback
