"""Sources that may lose rows: what was there when it was sealed is what is computed, for ever."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import strandline
from strandline.connectors.addresses import Reach
from strandline.connectors.kafka import fetch
from strandline.connectors.kafka_options import split_options
from strandline.connectors.source import Split
from strandline.errors import SourceError
from strandline.journal.log import Lost
from strandline.journal.staging import fetch as fetch_staged
from strandline.pipeline import forgetful
from strandline.pipeline.forgetful import is_forgetful, stage_range
from strandline.pipeline.meaning import unpacked_rows
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig, rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.testing.computing import ArrowComputer
from strandline.testing.engines import arrow_engine
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse

TEXT = "CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING generator;"
SETTINGS = PipelineSettings(rows_max=100, delay_ms=0, poll_ms=5)
PATIENCE_S = 90


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


@pytest.fixture
def topic() -> ScriptedTopic:
    made = ScriptedTopic(["0", "1"])
    for at in range(4):
        send(made, at % 2, at // 2, at)
    return made


def send(topic: ScriptedTopic, partition: int, key: int, n: int) -> None:
    row = {"id": key, "n": n}
    topic.send(str(partition), str(key).encode(), json.dumps(row).encode())


def rig_of(store: strandline.Store, topic: ScriptedTopic) -> Rig:
    return rigged(
        store, "shop", parse(TEXT), TEXT,
        sources={"t": ScriptedSource(topic, replayable=False)},
        computer=ArrowComputer(store, fetch=topic.fetch), settings=SETTINGS, fetch=topic.fetch,
    )  # fmt: skip


def staged(store: strandline.Store) -> set[str]:
    found = {entry.key for entry in store.env.blob.list("journal/shop/")}
    return {key for key in found if not key.endswith((".entry", ".snapshot"))}


def test_what_vanishes_after_it_was_sealed_counts_all_the_same(
    lab: Lab, topic: ScriptedTopic
) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, topic)
        replica = Replica(rig)
        while replica.standing.sealed is None:
            replica.step()
        (sealed,) = replica.standing.sealed.inputs
        assert sealed.taken == {"0": (0, 2), "1": (0, 2)}
        assert sum(ref.rows for ref in sealed.staged) == 4
        for partition in ("0", "1"):
            topic.compact(partition, 0)
            topic.expire(partition, 2)
        while replica.standing.sealed is not None:
            replica.step()
        rows = store.shard("shop.t").snapshot(as_of=0).to_arrow().sort_by("id").to_pylist()
        assert rows == [{"id": 0, "n": 1}, {"id": 1, "n": 3}]
        assert [each.noted for each in replay(rig, Planner(rig), 0, 1)] == [()]
        replica.close()


def test_a_range_that_holds_nothing_any_more_is_not_read_again(
    lab: Lab, topic: ScriptedTopic
) -> None:
    for partition in ("0", "1"):
        for offset in range(2):
            topic.compact(partition, offset)
    with new_store(lab) as store:
        replica = Replica(rig_of(store, topic))
        while replica.standing.sealed is None:
            replica.step()
        (sealed,) = replica.standing.sealed.inputs
        assert [ref.rows for ref in sealed.staged] == [0]
        for partition in ("0", "1"):
            topic.expire(partition, 2)
        while replica.standing.sealed is not None:
            replica.step()
        assert replica.standing.positions["t"] == {"0": 2, "1": 2}
        replica.close()


def test_who_loses_the_race_leaves_nothing_behind(
    lab: Lab, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, topic)
        replica = Replica(rig)
        replica.step()
        planner = Planner(rig)
        standing = rig.journal.refresh()
        monkeypatch.setattr(type(rig.journal), "propose", lambda *_: Lost(standing))
        planner.plan(standing)
        assert staged(store) == set()
        replica.close()


def test_a_source_that_fails_half_way_leaves_nothing_behind(
    lab: Lab, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetful, "_CHUNK_BYTES", 1)

    def failing(split: Split) -> Iterator[pa.RecordBatch]:
        if split.partition == "1":
            raise SourceError("away")
        yield from topic.fetch(split)

    splits = [Split("scripted", {}, each, 0, 2) for each in ("0", "1")]
    with new_store(lab) as store:
        with pytest.raises(SourceError, match="away"):
            stage_range(store.env, "shop", splits, failing)
        assert staged(store) == set()
        refs = stage_range(store.env, "shop", splits, topic.fetch)
        found = [unpacked_rows(fetch_staged(store.env, "shop", each)) for each in refs]
        assert [each.num_rows for each in found] == [2, 2]


def test_only_sources_that_may_lose_rows_are_staged_here(topic: ScriptedTopic) -> None:
    assert is_forgetful(ScriptedSource(topic, replayable=False))
    assert not is_forgetful(ScriptedSource(topic))


def of_topic(store: strandline.Store, address: str, name: str) -> Pipeline:
    text = f"""CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING kafka
        OPTIONS (kafka.bootstrap.servers '{address}', subscribe '{name}');"""
    return store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)


def rows_at(pipeline: Pipeline, at: int) -> dict[int, int]:
    found = pipeline.table("t").snapshot(as_of=at).to_arrow().to_pylist()
    return {row["id"]: row["n"] for row in found}


def test_a_compacted_topic_of_a_real_broker(broker, topics) -> None:
    """Between sealing and computing the broker drops a record of the sealed range."""
    name = topics.make(
        cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        min_compaction_lag_ms="0", max_compaction_lag_ms="100",
    )  # fmt: skip
    for key in (1, 2):
        topics.write(name, [b'{"id": %d, "n": 1}' % key], key=b"%d" % key)
    with strandline.open("memory://", upkeep=False) as store:
        with of_topic(store, topics.address, name) as pipeline:
            pipeline.step()
            while pipeline.status().sealed is None:
                pipeline.step()
            # This process goes away before it computes anything.
        options = {"kafka.bootstrap.servers": topics.address, "subscribe": name}
        split = Split("kafka", split_options(options, None, Reach()), "0", 0, 2)
        until = time.monotonic() + PATIENCE_S
        while sum(each.num_rows for each in fetch(split, str)) == 2:
            assert time.monotonic() < until, "the broker compacts nothing"
            # Each record lets the segment before it end, and only ended ones are compacted.
            topics.write(name, [b'{"id": 1, "n": 2}'], key=b"1")
        with of_topic(store, topics.address, name) as again:
            again.run(until_idle=True)
            assert rows_at(again, 0) == {1: 1, 2: 1}
            assert rows_at(again, again.committed.time - 1) == {1: 2, 2: 1}
            assert all(each.noted == () for each in again.replay())


def test_rows_of_aborted_transactions_are_never_delivered(broker, topics) -> None:
    """Markers and aborted rows are holes in a range; an open transaction is beyond its end."""
    name = topics.make()
    topics.transaction(name, [b'{"id": 1, "n": 1}'])
    topics.transaction(name, [b'{"id": 1, "n": 2}', b'{"id": 2, "n": 2}'], commit=False)
    topics.transaction(name, [b'{"id": 3, "n": 3}'])
    topics.begin(name, [b'{"id": 4, "n": 4}'])
    with (
        strandline.open("memory://", upkeep=False) as store,
        of_topic(store, topics.address, name) as pipeline,
    ):
        pipeline.run(until_idle=True)
        first = pipeline.committed.time
        assert rows_at(pipeline, first - 1) == {1: 1, 3: 3}
        topics.end(name, commit=True)
        pipeline.run(until_idle=True)
        assert rows_at(pipeline, pipeline.committed.time - 1) == {1: 1, 3: 3, 4: 4}
        assert sum(each.rows for each in pipeline.history()) == 3
        assert all(each.noted == () for each in pipeline.replay())
