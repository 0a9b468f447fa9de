"""A replica as a process that is killed, with all that it and the API have said."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import strandline
from strandline.console.routes import application
from strandline.console.server import Place, Server
from strandline.console.serving import Serving
from strandline.testing.engines import arrow_engine

TOKEN = "a-token-for-tests-only"
PATHS = (
    "/v1/pipelines",
    "/v1/pipelines/shop/history",
    "/v1/pipelines/shop/status",
    "/metrics",
)
# Everything that is logged, by us and by others; values of options are resolved where rows are
# fetched, as they are by Spark's tasks.
CODE = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
from strandline.cli.main import main
from strandline.config import resolve_secret
from strandline.connectors.registry import fetch
from strandline.pipeline.engine import PipelineEngine
from strandline.testing.computing import ArrowComputer
def engine(store):
    computer = ArrowComputer(store, fetch=lambda split: fetch(split, resolve_secret))
    return PipelineEngine(computer, lambda question: None)
sys.exit(main(sys.argv[1:], engine=engine))
"""


class Run:
    """One life of `strandline run`, whose output is kept."""

    def __init__(self, folder: Path, *more: str) -> None:
        made = len(list(folder.glob("said-*")))
        self.said, self.erred = folder / f"said-{made}", folder / f"erred-{made}"
        command = [sys.executable, "-c", textwrap.dedent(CODE), "run", str(folder / "shop.sql")]
        command += ["--store", str(folder / "lake"), "--json", *more]
        with self.said.open("wb") as out, self.erred.open("wb") as err:
            self.child = subprocess.Popen(command, stdout=out, stderr=err)

    def events(self) -> list[dict[str, object]]:
        lines = self.said.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def ended(self) -> int:
        return self.child.wait(timeout=120)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait(timeout=60)


@contextmanager
def served(lake: Path) -> Iterator[dict[str, bytes]]:
    """What the API answers about the pipeline, by path."""
    with strandline.open(str(lake), upkeep=False) as store:
        place = Place(TOKEN, port=0)
        server = Server(application(Serving(store, None, arrow_engine), place.guard()), place)
        task = store.env.tasks.start("server", server.run)
        try:
            yield {path: _answer(server.port, path) for path in PATHS}
        finally:
            server.stop()
            task.join(30_000)


def _answer(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        return str(answer.status).encode() + b" " + answer.read()
    finally:
        connection.close()
