"""kill -9 of a driver between the steps of its writes: nothing shows, nothing is lost (G9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.spark.cluster import LOOPBACK, Driver, Gate, wait_for
from tests.spark.cluster_driver import HANGING, HANGS, PAD, PADDED, SCHEMA, padded

import strandline
from strandline.upkeep.findings import Severity
from strandline.upkeep.fsck import fsck
from strandline.upkeep.garbage import named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store

# Two sessions start in the one test: its own, and the one that is killed.
pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.timeout(600)]

LEFT = {"gathered": {"rows"}, "resolved": {"rows", "parquet"}, "put": {"parquet"}}
"""What kinds of objects the steps that were done have put."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A table for each write; upserts replace half of what is there."""
    folder = str(tmp_path / "lake")
    with strandline.open(folder, upkeep=False, settings=HANGING) as opened:
        for name in HANGS:
            start = PADDED if name == "put" else PADDED - 50
            ids = list(range(start, start + 100))
            old = pa.table([ids, ["old"] * 100, [0] * 100], schema=SCHEMA)
            with opened.shard(name, SCHEMA, key=["id"]).writer() as writer:
                writer.append(old)
        yield opened


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path)
    yield made
    made.close()


def content(shard: Shard) -> dict[int, tuple[str, int]]:
    rows = shard.snapshot().to_arrow()
    found = {row["id"]: (row["name"], row["step"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows
    return found


def unneeded(store: Store, shard: Shard) -> set[str]:
    """Objects that the newest version does not name."""
    there = {entry.key for entry in store.env.blob.list(f"{shard.id}/")}
    return there - set(named(shard.state()))


def reported(store: Store, *names: str, repair: bool = False) -> dict[str, bool]:
    """What fsck says that nobody needs, and whether it is gone."""
    found = fsck(store.env, store.leases, names, deep=True, repair=repair)
    assert found.sound
    return {each.thing: each.repaired for each in found.of(Severity.LEFTOVER)}


def test_a_driver_killed_between_its_steps_leaves_orphans_only(spark, store, driver, tmp_path):
    gates = {name: Gate(tmp_path / name) for name in HANGS}
    driver.ask("start", master="local[2]", settings={"spark.driver.host": LOOPBACK})
    told = {name: str(gate.folder) for name, gate in gates.items()}
    driver.ask("hang", folder=str(tmp_path / "lake"), gates=told)
    for gate in gates.values():
        gate.first(lambda: "a write did not get to its gate")
    shards = {name: store.shard(name) for name in HANGS}
    orphans = {name: unneeded(store, shard) for name, shard in shards.items()}
    for name, shard in shards.items():
        (writer,) = shard.state().writers
        assert all(key.startswith(f"{shard.id}/{writer}/") for key in orphans[name])
        assert {key.rpartition(".")[2] for key in orphans[name]} >= LEFT[name]
        # It may still commit them.
        assert reported(store, name) == {}
    driver.kill()

    before = {name: content(shard) for name, shard in shards.items()}
    for name, shard in shards.items():
        assert shard.upper.time == 1
        assert len(before[name]) == 100
        assert unneeded(store, shard) == orphans[name]
    repaired = reported(store, "gathered", "put", repair=True)
    for name in ("gathered", "put"):
        assert {key: repaired.get(key) for key in orphans[name]} == dict.fromkeys(
            orphans[name], True
        )
    machine = shards["resolved"].machine

    def swept() -> bool:
        store.upkeep.run_once(machine)
        store.upkeep.collector.sweep(machine, delete=True)
        return not unneeded(store, shards["resolved"])

    wait_for(swept, lambda: str(reported(store, "resolved")))
    assert not any(unneeded(store, shard) for shard in shards.values())
    assert {name: content(shard) for name, shard in shards.items()} == before

    came = {n: (f"{n:0{PAD}}", 1) for n in range(PADDED)}
    for name in HANGS:
        with store.table(name) as table:
            (table.append if name == "put" else table.upsert)(padded(spark))
        assert content(shards[name]) == before[name] | came
        assert shards[name].upper.time == 2
        assert all(key.endswith(".ground") for key in reported(store, name))
