"""A program that runs without Spark, and the command around it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from strandline.cli.main import main
from strandline.testing.engines import arrow_engine

TEXT = """
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '9', rows '40', rowsPerSecond '0');
CREATE TABLE notes (id BIGINT, note STRING, PRIMARY KEY (id)) USING http;
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 10;
"""
SINK = "CREATE SINK out FROM large USING files OPTIONS (path '{}');"


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    def json(self) -> dict:
        return json.loads(self.out)

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True, slots=True)
class Shop:
    """A folder with a program, and a store beside it."""

    folder: Path
    capsys: object

    @property
    def file(self) -> str:
        return str(self.folder / "shop.sql")

    @property
    def lake(self) -> str:
        return str(self.folder / "lake")

    @property
    def target(self) -> Path:
        return self.folder / "out"

    def publish(self) -> None:
        """Give the program a sink."""
        Path(self.file).write_text(TEXT + SINK.format(self.target))

    def ask(self, *arguments: str) -> Answer:
        code = main(list(arguments), engine=arrow_engine)
        said = self.capsys.readouterr()
        return Answer(code, said.out, said.err)

    def run(self, *arguments: str) -> Answer:
        return self.ask(
            "run", self.file, "--store", self.lake, "--rows", "10", "--delay", "0", *arguments
        )
