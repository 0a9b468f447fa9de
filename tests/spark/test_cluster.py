"""Tables on real clusters: the same answers as on one machine, whatever is killed.

Executors of the standalone cluster have no packages but those of the archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.spark.cluster import (
    LOOPBACK,
    Driver,
    Gate,
    Standalone,
    executor_of,
    kill,
    leftovers,
    wait_for,
)
from tests.spark.cluster_driver import APART

from strandline.spark.pack import pack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# One worker runs them all: they share the processes, which take most of the time to start.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("cluster"),
]

OWN = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def driver(folder: Path) -> Iterator[Driver]:
    made = Driver(folder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def truth(driver: Driver, folder: Path) -> dict[str, list[str]]:
    """What local mode gives."""
    driver.ask("start", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    found = driver.ask("everything", folder=str(folder / "local"))
    driver.ask("stop")
    return found


@pytest.fixture(scope="module")
def standalone(folder: Path) -> Iterator[Standalone]:
    made = Standalone(folder)
    try:
        made.start()
        yield made
    finally:
        made.close()
        assert made.survivors() == []


@pytest.fixture(scope="module")
def connected(
    driver: Driver, truth: dict[str, list[str]], standalone: Standalone, folder: Path
) -> Iterator[Driver]:
    """The driver with a session on the cluster, after the one that gave the truth."""
    packed = pack(folder)
    driver.ask("start", master=standalone.url, settings={**OWN, **packed.settings})
    yield driver
    driver.ask("stop")


@pytest.fixture(scope="module")
def everything(connected: Driver, folder: Path) -> dict[str, list[str]]:
    """What the cluster gives."""
    return connected.ask("everything", folder=str(folder / "standalone"))


def test_a_standalone_cluster_gives_what_local_mode_gives(
    truth: dict[str, list[str]], everything: dict[str, list[str]], folder: Path
) -> None:
    for name, rows in truth.items():
        assert everything[name] == rows, name
    assert leftovers(folder / "standalone") == []


def test_executors_never_touch_consensus(
    everything: dict[str, list[str]], standalone: Standalone
) -> None:
    opened = standalone.opened()
    # The watch works: it has seen the workers of executors read and write objects.
    assert {".parquet", ".ground"} <= {path.path[path.path.rindex(".") :] for path in opened}
    assert [each for each in opened if each.event == "sqlite3.connect"] == []


def parts(store: Path) -> list[Path]:
    return list(store.glob("blobs/*/*/*.parquet"))


def first_id(part: Path) -> int:
    return pq.ParquetFile(part).read(["id"])["id"][0].as_py()


@pytest.mark.parametrize("victim", ["executor", pytest.param("worker", marks=pytest.mark.slow)])
def test_killing_it_while_it_writes_leaves_orphans_only(
    connected: Driver, standalone: Standalone, folder: Path, victim: str
) -> None:
    store, gate = folder / f"written {victim}", Gate(folder / f"gate of {victim}")
    connected.tell("append", folder=str(store), gate=str(gate.folder))
    worker = gate.first(standalone.logs)
    # A part of the first attempt is there, and nothing refers to it. The other task has its own.
    wait_for(lambda: any(first_id(path) < APART for path in parts(store)), standalone.logs)
    kill(executor_of(worker) if victim == "executor" else worker)
    gate.open()
    assert connected.answer() == 180_000
    assert leftovers(store)


@pytest.mark.parametrize(("way", "victim"), [("df", "executor"), ("format", "worker")])
def test_killing_it_while_it_reads_changes_nothing(
    connected: Driver, standalone: Standalone, truth, folder: Path, way: str, victim: str
) -> None:
    gate = Gate(folder / f"gate of {way}")
    connected.tell("read", folder=str(folder / "local"), gate=str(gate.folder), way=way)
    worker = gate.first(standalone.logs)
    kill(executor_of(worker) if victim == "executor" else worker)
    gate.open()
    assert connected.answer() == truth["df"]


@pytest.mark.slow
def test_a_local_cluster_gives_what_local_mode_gives(
    truth: dict[str, list[str]], tmp_path: Path
) -> None:
    driver = Driver(tmp_path)  # A process has one session at a time, and the other one has it.
    try:
        driver.ask("start", master="local-cluster[2,1,1024]", settings=OWN)
        found = driver.ask("everything", folder=str(tmp_path / "local-cluster"))
        for name, rows in truth.items():
            assert found[name] == rows, name
    finally:
        driver.close()
