"""A pipeline of Spark that reads a broker: exact ranges, read by tasks, beside plain Python."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from tests.kills.inputs import Generated, Written
from tests.kills.judge import against_oracle
from tests.kills.shop import GENERATED, Event, program
from tests.kills.watch import NAME, Watch
from tests.spark.jobs import last_job

import strandline
from strandline.connectors import kafka
from strandline.pipeline import reload
from strandline.spark.engines import spark_engine
from strandline.testing.engines import arrow_engine

PARTITIONS = 3
PIECE = 4
"""Offsets that one task reads, at most."""
SETTINGS = strandline.PipelineSettings(rows_max=30, delay_ms=0, poll_ms=5)


class Shop:
    """Writes orders to a topic, some of them deletions, and remembers where each of them is."""

    def __init__(self, topics, seed: int) -> None:
        self._topics, self.topic = topics, topics.make(PARTITIONS)
        self._random = random.Random(seed)
        self.partitions = PARTITIONS
        self.orders = Written()

    def write(self, count: int) -> None:
        for _ in range(count):
            chance = self._random
            key = chance.randrange(25)
            row = (key, chance.randrange(9), chance.randrange(1_000_000), chance.random() < 0.5)
            named = dict(zip(("id", "customer", "amount", "paid"), row, strict=True))
            gone = chance.random() < 0.25
            value = None if gone else json.dumps(named).encode()
            at = key % PARTITIONS if key < 20 else self.partitions - 1
            self._topics.write(self.topic, [value], at, key=json.dumps({"id": key}).encode())
            self.orders.note(str(at), [Event(key, None if gone else row)])

    def grow(self) -> None:
        """One partition more. What goes there has keys that no other partition had."""
        self.partitions += 1
        self._topics.grow(self.topic, self.partitions)

    def text(self) -> str:
        options = {
            "kafka.bootstrap.servers": self._topics.address,
            "subscribe": self.topic,
            "envelope": "upsert",
            "maxRecordsPerPartition": str(PIECE),
        }
        customers = {**GENERATED["customers"], "rows": "40"}
        return program({"orders": ("kafka", options), "customers": ("generator", customers)})


def refused(*_: object) -> None:
    raise AssertionError("rows of a topic are for tasks, and not for the driver")


def tasks_of(spark, after: int) -> list[int]:
    """How many tasks each stage of the jobs after this one had."""
    tracker = spark.sparkContext.statusTracker()
    found = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(None)
        if job > after
        for stage in tracker.getJobInfo(job).stageIds
    ]
    return [each.numTasks for each in found if each is not None]


def test_s72_tasks_read_exact_ranges_of_a_broker_and_a_replay_verifies(
    broker, topics, spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "fetch", refused)
    shop, folder = Shop(topics, seed=5), tmp_path / "lake"
    shop.write(40)
    before = last_job(spark)
    engine = spark_engine(spark)
    with strandline.open(str(folder), upkeep=False) as store:
        with store.pipeline(NAME, shop.text(), settings=SETTINGS, engine=engine) as pipeline:
            pipeline.step()
            while pipeline.status().sealed is None:
                pipeline.step()
            # What comes after the seal is for the next one.
            shop.write(20)
            pipeline.run(until_idle=True)
            shop.grow()
            shop.write(25)
            pipeline.run(until_idle=True)
            last = pipeline.committed.time
            assert [each.t for each in pipeline.replay()] == list(range(last))
        assert max(tasks_of(spark, before)) > PARTITIONS, "one task for each piece of a partition"
        monkeypatch.undo()
        with store.pipeline(NAME, shop.text(), engine=arrow_engine) as other:
            noted = [each.noted for each in other.replay()]
            assert noted == [()] * last, "two engines computed the same"
    watch = Watch(folder)
    try:
        told = watch.history()
        taken = [partition for each in told for partition in each.taken.get("orders", {})]
        assert {str(each) for each in range(shop.partitions)} <= set(taken)
        assert len(told) >= 3
        given = {"orders": shop.orders, "customers": Generated("customers")}
        assert list(against_oracle(watch, told, given, range(len(told)))) == []
        assert not watch.wrong
    finally:
        watch.close()


def test_tables_are_reloaded_from_a_topic_and_a_shard_by_tasks(
    broker, topics, spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "HERE_MAX", 0)
    monkeypatch.setattr(kafka, "fetch", refused)
    shop = Shop(topics, seed=6)
    shop.write(40)
    last: dict[object, tuple[object, ...]] = {}
    for event in (each for rows in shop.orders.rows.values() for each in rows):
        last.pop(event.key, None)
        if event.row is not None:
            last[event.key] = event.row
    expected = sorted(last.values())
    columns = "(id BIGINT, customer INT, amount BIGINT, paid BOOLEAN, PRIMARY KEY (id))"
    text = "".join(f"CREATE TABLE {each} {columns} USING http;\n" for each in ("orders", "copies"))
    topic = {"kafka.bootstrap.servers": topics.address, "subscribe": shop.topic}
    engine = spark_engine(spark)
    with (
        strandline.open(str(tmp_path / "lake"), upkeep=False) as store,
        store.pipeline(NAME, text, settings=SETTINGS, engine=engine) as pipeline,
    ):
        pipeline.reload("orders", ("kafka", {**topic, "maxRecordsPerPartition": str(PIECE)}))
        held = pipeline.collection("orders")
        pipeline.reload("copies", ("strandline", {"shard": held.name}))
        for each in (held, pipeline.collection("copies")):
            rows = each.snapshot(as_of=pipeline.committed.last()).to_arrow().to_pylist()
            assert sorted(tuple(row.values()) for row in rows) == expected
        assert [each.t for each in pipeline.replay()] == [0, 1]
