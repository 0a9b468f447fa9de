"""A small program, and replicas of it on a store in memory."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pyarrow as pa

from strandline.connectors.sink import SinkPorts
from strandline.connectors.source import Ports, Source
from strandline.handles.store import Store
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig, rigged
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.sinks import targets
from strandline.pipeline.sources import open_sources
from strandline.system import SystemClock, SystemRandom
from strandline.testing.computing import ArrowComputer
from strandline.testing.scripted_source import ScriptedSource, ScriptedTopic
from strandline.views.parse import parse
from strandline.views.program import Program

ROWS = 100
TEXT = f"""
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '20', deletes '0.1', rows '{ROWS}', rowsPerSecond '0');
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
"""
SETTINGS = PipelineSettings(rows_max=10, delay_ms=0, poll_ms=1)


def rig_of(store: Store, text: str = TEXT, **settings: int) -> Rig:
    program = parse(text)
    return rigged(
        store,
        "shop",
        program,
        text,
        sources=open_sources(program, Ports(SystemClock(), str)),
        computer=ArrowComputer(store),
        settings=replace(SETTINGS, **settings),
        sinks=targets(program, SinkPorts(str, SystemRandom().token)),
    )


def reopened(program: Program, names: frozenset[str]) -> dict[str, Source]:
    """How a rig opens sources of an earlier program."""
    return open_sources(program, Ports(SystemClock(), str), names)


def run(*replicas: Replica) -> None:
    """Take turns until nobody has anything left to do."""
    idle = 0
    while idle < len(replicas):
        idle = sum(replica.step() > 0 for replica in replicas)


def rows(store: Store, name: str, at: int) -> list[dict[str, object]]:
    """What a table or a view held at a time, sorted."""
    names = [each for each in store.shards() if not each.endswith("_errors")]
    shard = next(each for each in names if each.split(".")[1] == name)
    table: pa.Table = store.shard(shard).snapshot(as_of=at).to_arrow()
    return sorted(table.to_pylist(), key=str)


WIDER = "CREATE TABLE t (id BIGINT, n BIGINT, PRIMARY KEY (id)) USING generator {};"
"""A table for topics that a test writes."""
ADDING = WIDER.format("OPTIONS (newColumns 'add')")


def topic_of(*values: dict[str, object]) -> ScriptedTopic:
    """A topic with these rows."""
    topic = ScriptedTopic(["0"])
    for value in values:
        topic.send("0", None, msgspec.json.encode(value))
    return topic


def topic_rig(
    store: Store, topic: ScriptedTopic, text: str = ADDING, *, staged: bool = False, **more: int
) -> Rig:
    """A rig of one table that a topic feeds, two rows at a time."""
    return rigged(
        store,
        "shop",
        parse(text),
        text,
        sources={"t": ScriptedSource(topic, replayable=not staged)},
        computer=ArrowComputer(store, fetch=topic.fetch),
        settings=replace(SETTINGS, rows_max=2, **more),
        fetch=topic.fetch,
    )
