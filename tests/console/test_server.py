"""Where it listens, and what it refuses to listen on."""

from __future__ import annotations

import socket

import pytest

from strandline.console.server import Place, Server
from strandline.errors import UsageError

TOKEN = "a-token-for-tests-only"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"token": "short"}, "at least 16"),
        ({"host": "0.0.0.0"}, "needs TLS"),
        ({"host": "::"}, "needs TLS"),
        ({"host": "192.0.2.1"}, "needs TLS"),
        ({"tls_cert": "cert.pem"}, "give both"),
    ],
)
def test_what_others_could_reach_or_guess_is_refused(options, words):
    with pytest.raises(UsageError, match=words):
        Place(**({"token": TOKEN} | options))


def test_a_place_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"127.0.0.1:{port}"):
            Server(None, Place(TOKEN, port=port))


def test_its_own_names_are_served_and_no_others():
    place = Place(TOKEN, "lake.example", 443, ("Other.example",), "cert", "key")
    assert {"lake.example", "other.example", "localhost"} <= place.guard().hosts
    assert "0.0.0.0" not in Place(TOKEN, "0.0.0.0", 1, (), "cert", "key").guard().hosts


def test_it_says_where_it_is_and_nothing_of_what_it_is(served):
    assert served.server.url == f"http://127.0.0.1:{served.client.port}"
    assert "server" not in {
        name.lower() for name in served.client.ask("GET", "/v1/pipelines").headers
    }
