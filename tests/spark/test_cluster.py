"""Tables on real clusters: the same answers as on one machine, whatever is killed.

Executors of the standalone cluster have no packages but those of the archive.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.jvm import EXECUTOR
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

SEED = 4
OWN = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    **EXECUTOR,
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


@pytest.mark.slow
def test_what_takes_longer_gives_what_local_mode_gives(
    connected: Driver, folder: Path, tmp_path: Path
) -> None:
    local = Driver(tmp_path)  # A process has one session at a time, and the other one has it.
    try:
        local.ask("start", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
        truth = local.ask("more", folder=str(tmp_path / "local"))
    finally:
        local.close()
    found = connected.ask("more", folder=str(folder / "more"))
    for name, rows in truth.items():
        assert found[name] == rows, name


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


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["executor", "worker"])
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


@pytest.mark.parametrize(
    ("way", "victim"),
    [pytest.param("df", "executor", marks=pytest.mark.slow), ("format", "worker")],
)
def test_killing_it_while_it_reads_changes_nothing(
    connected: Driver, standalone: Standalone, truth, folder: Path, way: str, victim: str
) -> None:
    gate = Gate(folder / f"gate of {way}")
    connected.tell("read", folder=str(folder / "local"), gate=str(gate.folder), way=way)
    worker = gate.first(standalone.logs)
    kill(executor_of(worker) if victim == "executor" else worker)
    gate.open()
    assert connected.answer() == truth["df"]


def told(store: Path, gate: Gate, call: str, step: int) -> dict[str, object]:
    return {"folder": str(store), "gate": str(gate.folder), "call": call, "step": step}


def undisturbed(connected: Driver, store: Path, call: str, step: int) -> list[list[object]]:
    """What a call gives whose gate is open from the start."""
    gate = Gate(store.parent / f"open gate {store.name} {step}")
    gate.open()
    return connected.ask("held", **told(store, gate, call, step))


@pytest.mark.parametrize(
    ("call", "victim"),
    [
        ("upsert", "executor"),
        pytest.param("compact", "executor", marks=pytest.mark.slow),
        pytest.param("upsert", "worker", marks=pytest.mark.slow),
        pytest.param("compact", "worker", marks=pytest.mark.slow),
    ],
)
def test_killing_it_after_it_has_put_and_before_it_says_so_leaves_orphans_only(
    connected: Driver, standalone: Standalone, folder: Path, call: str, victim: str
) -> None:
    store, gate = folder / f"{call} {victim}", Gate(folder / f"gate of {call} {victim}")
    before = undisturbed(connected, store, "upsert", 0)
    assert len(before) == 3000
    connected.tell("held", **told(store, gate, call, 1))
    worker = gate.first(standalone.logs)
    kill(executor_of(worker) if victim == "executor" else worker)
    gate.open()
    step = 1 if call == "upsert" else 0
    assert connected.answer() == [[n, f"order {n} at {step}", step] for n in range(3000)]
    assert leftovers(store)


@pytest.mark.slow
def test_cycles_of_kills_change_nothing(
    connected: Driver, standalone: Standalone, folder: Path, cycles: int, seed: int | None
) -> None:
    """Whatever a table does, an executor or a Python worker is killed in the midst of it (G9)."""
    chance = random.Random(SEED if seed is None else seed)
    store = folder / "cycles"
    undisturbed(connected, store, "upsert", 0)
    rows = {n: [n, f"order {n} at 0", 0] for n in range(3000)}
    for step in range(1, cycles + 1):
        call = chance.choice(["append", "upsert", "compact", "read"])
        victim = chance.choice(["executor", "worker"])
        if call == "compact":  # It needs something that was not merged yet.
            undisturbed(connected, store, "upsert", -step)
            rows |= {n: [n, f"order {n} at {-step}", -step] for n in range(3000)}
        first = APART * (1 + step) if call == "append" else 0
        if call in ("append", "upsert"):
            ids = range(first, first + (2000 if call == "append" else 3000))
            rows |= {n: [n, f"order {n} at {step}", step] for n in ids}
        gate = Gate(folder / f"gate of cycle {step}")
        connected.tell("held", **told(store, gate, call, step))
        worker = gate.first(standalone.logs)
        kill(executor_of(worker) if victim == "executor" else worker)
        gate.open()
        found = connected.answer()
        assert found == [rows[n] for n in sorted(rows)], f"cycle {step}: {call}, {victim} killed"
    leftovers(store)


@pytest.mark.slow
def test_a_local_cluster_gives_what_local_mode_gives(
    truth: dict[str, list[str]], tmp_path: Path
) -> None:
    driver = Driver(tmp_path)
    try:
        driver.ask("start", master="local-cluster[2,1,1024]", settings=OWN)
        found = driver.ask("everything", folder=str(tmp_path / "local-cluster"))
        for name, rows in truth.items():
            assert found[name] == rows, name
    finally:
        driver.close()
