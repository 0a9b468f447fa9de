"""A served shop on a store in memory, asked over a real socket."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import strandline
from strandline.console.routes import application
from strandline.console.server import Place, Server
from strandline.console.serving import Serving
from strandline.handles.store import Store
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.engines import arrow_engine

TOKEN = "a-token-for-tests-only"
TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id)) USING http;
CREATE TABLE lines (id BIGINT, note STRING) USING http;
CREATE MATERIALIZED VIEW large AS SELECT id FROM orders WHERE amount > 10;
"""


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict:
        return json.loads(self.body)


@dataclass
class Client:
    port: int
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request; a header that is the empty text is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Authorization": f"Bearer {TOKEN}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()


@dataclass
class Served:
    store: Store
    pipeline: Pipeline
    client: Client
    server: Server


@pytest.fixture
def served() -> Iterator[Served]:
    settings = PipelineSettings(delay_ms=0, poll_ms=5)
    with strandline.open("memory://") as store:
        pipeline = store.pipeline("shop", TEXT, settings=settings, engine=arrow_engine)
        pipeline.start()
        place = Place(TOKEN, port=0)
        serving = Serving(store, pipeline, arrow_engine)
        server = Server(application(serving, place.guard()), place)
        task = store.env.tasks.start("server", server.run)
        yield Served(store, pipeline, Client(server.port), server)
        server.stop()
        assert task.join(30_000)
