"""Speculation: Spark runs a slow task a second time while the first attempt still runs.

Spark never runs both attempts on one host, so one worker of this cluster listens on another of
this machine's own addresses.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.spark.cluster import (
    ELSEWHERE,
    LOOPBACK,
    ROOT,
    Driver,
    Gate,
    Standalone,
    leftovers,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# With the other clusters: they would take each other's cores.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("cluster"),
]

PACKAGES = Path(pa.__file__).parents[1]
"""Not what `sysconfig` says: the floor's environment has a folder that holds Spark alone."""
EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "0ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.efficiency.enabled": "false",
    "spark.locality.wait": "0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("speculation")


@pytest.fixture(scope="module")
def standalone(folder: Path) -> Iterator[Standalone]:
    made = Standalone(folder, hosts=(LOOPBACK, ELSEWHERE))
    try:
        made.start()
        yield made
    finally:
        made.close()
        assert made.survivors() == []


@pytest.fixture(scope="module")
def events(folder: Path) -> Path:
    (folder / "events").mkdir()
    return folder / "events"


@pytest.fixture(scope="module")
def driver(folder: Path, standalone: Standalone, events: Path) -> Iterator[Driver]:
    made = Driver(folder)
    settings = {
        **EAGER,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": f"{ROOT}/src:{PACKAGES}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    try:
        made.ask("start", master=standalone.url, settings=settings)
        yield made
        made.ask("stop")
    finally:
        made.close()


def second_hosts(events: Path) -> list[tuple[str, str]]:
    """The hosts of the first and of the second attempt, wherever Spark says that it speculated."""
    (log,) = events.iterdir()
    listed = [json.loads(line) for line in log.read_text().splitlines()]
    starts = [each for each in listed if each["Event"] == "SparkListenerTaskStart"]
    tasks = {
        (each["Stage ID"], info["Index"], info["Speculative"]): info["Host"]
        for each in starts
        for info in (each["Task Info"],)
    }
    return [
        (tasks[stage, index, False], host)
        for (stage, index, again), host in tasks.items()
        if again and index == 0
    ]


@pytest.mark.slow
def test_speculation_gives_what_local_mode_gives(
    driver: Driver, folder: Path, tmp_path: Path
) -> None:
    found = driver.ask("everything", folder=str(folder / "everything"))
    leftovers(folder / "everything")
    alone = Driver(tmp_path)
    try:
        alone.ask("start", master="local[2]", settings={"spark.sql.shuffle.partitions": "2"})
        truth = alone.ask("everything", folder=str(tmp_path / "local"))
    finally:
        alone.close()
    assert found == truth


@pytest.mark.slow
def test_a_second_attempt_overtakes_one_that_saves(
    driver: Driver, standalone: Standalone, events: Path, folder: Path
) -> None:
    """The first has put a part, and never gets through the gate."""
    store, gate = folder / "saved", Gate(folder / "gate of saved")
    before = len(second_hosts(events))
    assert driver.ask("save", folder=str(store), gate=str(gate.folder)) == 180_000
    assert gate.waiting()
    assert wait_for(lambda: second_hosts(events)[before:], standalone.logs)
    assert leftovers(store)


@pytest.mark.parametrize(
    ("verb", "winner"),
    [
        pytest.param("upsert", 1, marks=pytest.mark.slow),
        pytest.param("upsert", 0, marks=pytest.mark.slow),
        pytest.param("append", 0, marks=pytest.mark.slow),
        pytest.param("append", 1, marks=pytest.mark.slow),
    ],
)
def test_of_two_attempts_at_once_one_is_committed_and_the_other_is_an_orphan(
    driver: Driver, standalone: Standalone, events: Path, folder: Path, verb: str, winner: int
) -> None:
    store, gate = folder / f"{verb} {winner}", Gate(folder / f"gate of {verb} {winner}")
    before = len(second_hosts(events))
    found = driver.ask(
        "contested", folder=str(store), call=verb, gate=str(gate.folder), winner=winner
    )
    put = [json.loads((gate.folder / f"put.{attempt}").read_text()) for attempt in (0, 1)]
    # Both attempts have put parts of their own, at once, and Spark calls the second speculative.
    assert all(put)
    assert not set(put[0]) & set(put[1])
    hosts = wait_for(lambda: second_hosts(events)[before:], standalone.logs)
    assert {LOOPBACK, ELSEWHERE} in [set(each) for each in hosts]
    assert set(put[winner]) <= set(found["parts"])
    assert leftovers(store) == sorted(put[1 - winner])
    start = 10_000 if verb == "append" else 0
    rows = {n: [n, f"order {n}", 0] for n in range(6000)}
    rows |= {n: [n, f"order {n} at 1", 1] for n in range(start, start + 8000)}
    assert found["rows"] == [rows[n] for n in sorted(rows)]
