"""X5, X6, X11: nothing is served to who has no token, to other sites, or without a limit."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import strandline
from strandline.console import limits
from strandline.console.routes import application
from strandline.console.server import Place, Server
from strandline.console.serving import Serving
from strandline.errors import UsageError
from strandline.testing.engines import arrow_engine

TOKEN = "TABOO-c0ffee-MARKER-token"
TEXT = "CREATE TABLE t (k BIGINT, v STRING, PRIMARY KEY (k)) USING http;"
ROWS = "/v1/pipelines/p/tables/t/rows"


class Target:
    """A served pipeline, and raw requests to it."""

    def __init__(self, store: strandline.Store) -> None:
        self.store = store
        self.pipeline = store.pipeline("p", TEXT, engine=arrow_engine)
        self.pipeline.start()
        place = Place(TOKEN, port=0)
        self.app = application(Serving(store, self.pipeline, arrow_engine), place.guard())
        self.server = Server(self.app, place)

    def routes(self) -> list[tuple[str, str]]:
        named = {"{name}": "p", "{table}": "t", "{id}": "h0-00"}
        found = []
        for route in self.app.routes:
            path = route.path
            for name, value in named.items():
                path = path.replace(name, value)
            found += [(method, path) for method in sorted(route.methods)]
        return found

    def ask(
        self, method: str, path: str, headers: dict[str, str], body: object = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (BrokenPipeError, ConnectionResetError):
            # It answered and hung up before everything was sent.
            return 413, b""
        finally:
            connection.close()


@pytest.fixture
def target() -> Iterator[Target]:
    with strandline.open("memory://") as store:
        made = Target(store)
        task = store.env.tasks.start("server", made.server.run)
        yield made
        made.server.stop()
        assert task.join(30_000)


GOOD = {"Authorization": f"Bearer {TOKEN}"}


def test_x05_every_route_wants_the_token(target: Target) -> None:
    routes = target.routes()
    assert len(routes) >= 11
    for method, path in [*routes, ("GET", "/"), ("GET", "/nowhere"), ("OPTIONS", ROWS)]:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, body = target.ask(method, path, headers)
            assert status in {401, 429}, (method, path)
            assert TOKEN.encode() not in body


def test_x05_nothing_listens_beyond_loopback(target: Target) -> None:
    port = f"{target.server.port:04X}"
    listening = [
        line.split()[1]
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port}")
    ]
    assert listening == [f"0100007F:{port}"]


def test_x05_an_open_address_without_tls_is_refused() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.7"):
        with pytest.raises(UsageError, match="TLS"):
            Place(TOKEN, host)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://localhost.evil.example"},
    ],
)
def test_x06_other_names_and_other_sites_are_refused(target: Target, headers: dict) -> None:
    for method, path in target.routes():
        assert target.ask(method, path, GOOD | headers)[0] == 403


def test_x06_a_form_of_another_site_changes_nothing(target: Target) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": f"token={TOKEN}"}
    assert target.ask("POST", ROWS, form, b'{"k": 1}')[0] == 401
    assert target.pipeline.committed.time == 0


def test_x06_looking_never_changes_anything(target: Target) -> None:
    target.pipeline.transaction().commit()
    consensus = target.store.env.consensus
    target.pipeline.stop()

    def everything() -> dict[str, object]:
        # What replicas say of themselves moves with the clock alone.
        keys = [key for key in consensus.keys("") if not key.startswith(("pulse", "replicas/"))]
        return {key: consensus.head(key) for key in keys}

    before = everything()
    for method, path in target.routes():
        if method in {"GET", "HEAD"}:
            assert target.ask(method, path, GOOD)[0] in {200, 404}
    assert everything() == before


def test_x06_no_answer_lets_other_sites_in(target: Target) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", target.server.port, timeout=60)
    connection.request("GET", "/v1/pipelines", headers=GOOD)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    names = {name.lower() for name in answer.headers}
    assert not any(name.startswith("access-control") for name in names)
    assert "set-cookie" not in names
    assert answer.headers["x-content-type-options"] == "nosniff"


def _pieces(size: int) -> Iterator[bytes]:
    for _ in range(size // 65_536 + 1):
        yield b"x" * 65_536


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"Content-Encoding": "gzip"}, gzip.compress(b"0" * 10_000_000), {400}),
        ({"Content-Encoding": "zstd"}, b"x", {400}),
        ({"Content-Length": str(10**12)}, b"", {400, 413}),
        ({}, b"x" * (limits.LINE_MAX + 1), {413}),
        ({}, b"1\n" * (limits.LINES_MAX + 1), {413}),
        ({}, b"[" * 1_000_000, {413}),
        ({}, _pieces, {413}),
    ],
    ids=["gzip", "zstd", "declared", "line", "rows", "deep", "endless"],
)
def test_x11_what_is_too_large_is_refused(
    target: Target, headers: dict, body: object, expected: set[int]
) -> None:
    sent = body(4 * limits.BODY_MAX) if callable(body) else body
    assert target.ask("POST", ROWS, GOOD | headers, sent)[0] in expected
    assert target.ask("GET", "/v1/pipelines", GOOD)[0] == 200
    assert target.pipeline.committed.time == 0


def test_x11_a_row_that_can_not_be_read_goes_to_the_errors(target: Target) -> None:
    status, body = target.ask("POST", ROWS, GOOD, b"not json")
    assert (status, json.loads(body)["sealed"]) == (200, True)
    target.pipeline.transaction().commit()
    assert target.pipeline.query("SELECT * FROM t_errors").num_rows == 1


def test_x04_neither_answers_nor_the_store_hold_the_token(target: Target, capfd) -> None:
    target.ask("POST", ROWS, GOOD, b'{"k": 1, "v": "x"}')
    for method, path in target.routes():
        assert TOKEN.encode() not in target.ask(method, path, GOOD)[1]
    consensus = target.store.env.consensus
    held = [consensus.head(key) for key in consensus.keys("")]
    assert not any(TOKEN.encode() in each.data for each in held if each is not None)
    said = capfd.readouterr()
    assert TOKEN not in said.out + said.err
