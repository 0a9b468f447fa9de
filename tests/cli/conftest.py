"""A store with a little of everything in it, and a way to ask the command about it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from tests.cli.shop import TEXT, Shop

from strandline.assembly import open_store
from strandline.cli.main import main

EVIL = "\x1b]0;owned\x07[red]x[/red]"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64()),
    ]
)


def rows(*entries: tuple[int, str | None, float | None]) -> pa.Table:
    columns = zip(*entries, strict=True)
    return pa.table(dict(zip(SCHEMA.names, map(list, columns), strict=True)), schema=SCHEMA)


def fill(folder: str) -> None:
    """Shards `orders` (three times, one of them large, and a hold), `empty`, and `done`."""
    with open_store(folder, upkeep=False) as store:
        orders = store.shard("orders", schema=SCHEMA, key=["id"])
        with orders.writer() as writer:
            writer.append(rows((1, "ann", 1.5), (2, EVIL, None)))
            writer.append(rows(*((number, "many", 0.0) for number in range(100, 5_000))))
            writer.append(rows((3, None, float("nan"))))
        orders.hold("books", 1, epoch=2, note=EVIL)
        store.shard("empty", schema=SCHEMA)
        with store.shard("done", schema=SCHEMA).writer() as writer:
            writer.append(rows((1, "last", 0.0)))
            writer.advance(None)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that tests only look at."""
    folder = str(tmp_path_factory.mktemp("filled") / "lake")
    fill(folder)
    return folder


@pytest.fixture
def lake(tmp_path) -> str:
    """A store of the test's own."""
    fill(str(tmp_path / "lake"))
    return str(tmp_path / "lake")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one command."""

    code: int
    out: str
    err: str


@pytest.fixture
def ask(capsys):
    """Run the command in this process."""

    def run(*arguments: str) -> Answer:
        code = main(list(arguments))
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.fixture
def shop(tmp_path, capsys) -> Shop:
    """A program that was not run yet."""
    (tmp_path / "shop.sql").write_text(TEXT)
    return Shop(tmp_path, capsys)


@pytest.fixture
def run_shop(shop) -> Shop:
    """A program that was run until it was idle."""
    assert shop.run("--until-idle").code == 0
    return shop
