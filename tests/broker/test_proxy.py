"""The proxy of the tests: it passes on, holds back, loses and cuts as it is told."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from .proxy import END_TRANSACTION, PRODUCE, Proxy

PATIENCE_S = 20


def request(kind: int, body: bytes = b"") -> bytes:
    return (2 + len(body)).to_bytes(4, "big") + kind.to_bytes(2, "big") + body


@pytest.fixture
def link():
    """A proxy in front of somebody who answers with what they are told."""
    server = socket.create_server(("127.0.0.1", 0))
    free = socket.create_server(("127.0.0.1", 0))
    front = free.getsockname()
    free.close()

    def echo(served: socket.socket) -> None:
        with served, suppress(OSError):
            while chunk := served.recv(1000):
                served.sendall(chunk)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    proxy = Proxy(front, server.getsockname())
    client = socket.create_connection(front, timeout=PATIENCE_S)
    yield proxy, client
    client.close()
    proxy.close()
    server.close()


def test_it_passes_on_both_ways(link):
    _, client = link
    whole = request(PRODUCE, b"x" * 300)
    client.sendall(whole[:7])
    client.sendall(whole[7:])
    found = b""
    while len(found) < len(whole):
        found += client.recv(1000)
    assert found == whole


def test_a_request_of_a_kind_comes_late(link):
    proxy, client = link
    proxy.hold(END_TRANSACTION)
    client.sendall(request(PRODUCE))
    assert client.recv(100) == request(PRODUCE)
    client.sendall(request(END_TRANSACTION))
    assert proxy.caught.wait(PATIENCE_S)
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(100)
    client.settimeout(PATIENCE_S)
    proxy.release()
    assert client.recv(100) == request(END_TRANSACTION)


def test_an_answer_is_lost(link):
    proxy, client = link
    proxy.lose_answers_to(END_TRANSACTION)
    client.sendall(request(END_TRANSACTION) + request(PRODUCE))
    assert proxy.caught.wait(PATIENCE_S)
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(100)


@pytest.mark.parametrize("way", ["up", "down"])
def test_links_are_cut_after_some_bytes(link, way):
    proxy, client = link
    proxy.cut_after(10, way)
    client.sendall(request(PRODUCE))
    assert client.recv(100) == request(PRODUCE)
    with suppress(OSError):
        client.sendall(request(PRODUCE))
        assert client.recv(100) == b""
