"""A small store that holds at least one object of each kind, and all that can be read of it.

For tests of damage, of tampering and of old formats: fill a store, do something to what it
keeps, and see whether `read_all` still gives the same or a named error, never something else.

    kind      kept in      where
    --------  -----------  -----------------------------------------------------------
    mark      Consensus    store
    record    Consensus    shard/<name>: parts and chunks (orders), inline rows (notes)
    tick      Consensus    timeline/shop
    members   Consensus    timeline-members/shop
    pulse     Consensus    pulse/<slot>
    part      Blob         .parquet
    chunk     Blob         .parts
    stats     Blob         .stats
    times     Blob         .times
    manifest  Blob         .manifest
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.handles.store import Store
from strandline.journal.timeline import timeline_of
from strandline.shard.env import Env
from strandline.shard.metrics import Metrics
from strandline.shard.pulses import TaskHeart
from strandline.shard.settings import Settings
from strandline.system import SystemClock, SystemRandom, SystemTasks

if TYPE_CHECKING:
    from strandline.store.blob import Blob
    from strandline.store.consensus import Consensus

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
SETTINGS = Settings(
    inline_max_bytes=700,
    part_target_rows=3,
    listed_parts=3,
    moments_loose=4,
    manifest_every=4,
    fanout=100,
    commit_deadline_ms=500,
    read_deadline_ms=200,
)
"""Limits that a few rows reach, and little patience with a store that fails."""

BLOB_KINDS = {
    ".parquet": "part",
    ".parts": "chunk",
    ".stats": "stats",
    ".times": "times",
    ".manifest": "manifest",
}
CONSENSUS_KINDS = {
    "store": "mark",
    "shard": "record",
    "timeline": "tick",
    "timeline-members": "members",
    "pulse": "pulse",
}
KINDS = frozenset({*BLOB_KINDS.values(), *CONSENSUS_KINDS.values()})

Content = dict[str, list[tuple[object, ...]]]
"""What was read, by what was asked."""

_APPENDS = 7


def kind_of(key: str) -> str:
    """The kind of object that a key of either port stands for."""
    head, _, name = key.partition("/")
    if head in CONSENSUS_KINDS:
        return CONSENSUS_KINDS[head]
    return BLOB_KINDS["." + name.rpartition(".")[2]]


def open_ports(blob: Blob, consensus: Consensus, settings: Settings = SETTINGS) -> Store:
    """A store on two ports, as `assembly` opens it, with a heart that is a task."""
    clock, tasks, random = SystemClock(), SystemTasks(), SystemRandom()
    env = Env(
        blob=blob,
        consensus=consensus,
        clock=clock,
        tasks=tasks,
        random=random,
        metrics=Metrics(),
        settings=settings,
        timelines=lambda name: timeline_of(env, name),
    )

    def heart(lease_ms: int) -> TaskHeart:
        return TaskHeart(consensus, tasks, random, lease_ms=lease_ms, owner="a specimen")

    return Store(env, heart, url="specimen://")


def numbered(first: int, count: int) -> pa.Table:
    """Rows that are easy to tell apart."""
    ids = list(range(first, first + count))
    return pa.table({"id": ids, "name": [f"row {each}" for each in ids]}, schema=COLUMNS)


def fill(store: Store) -> None:
    """Write the specimen."""
    _fill_orders(store)
    notes = store.shard("notes", COLUMNS)
    with notes.writer() as writer:
        for each in range(3):
            writer.append(numbered(each, 1))
    store.shard("stock", COLUMNS, ["id"])
    timeline = store.timeline("shop")
    timeline.attach(store.shard("stock"))
    with timeline.own() as owner:
        for each in range(2):
            owner.stage("stock", numbered(10 * each, 2))
            owner.commit()


def _fill_orders(store: Store) -> None:
    orders = store.shard("orders", COLUMNS, ["id"])
    with orders.writer() as writer:
        for each in range(_APPENDS):
            writer.append(numbered(100 * each, 3 if each else 20))
        # However old the store gets, all of its times stay readable.
        orders.hold("specimen", 0)
        store.upkeep.run_once(orders.machine)
        writer.append(numbered(1000, 20))
        row = {"id": 1000, "name": "row 1000", "_diff": -1}
        writer.append([row, {**row, "name": "changed", "_diff": 1}])


def read_all(store: Store) -> Content:
    """All that a reader can see: every time, by number and by instant, with and without filter."""
    found: Content = {"shards": [tuple(store.shards())], "timelines": [tuple(store.timelines())]}
    for name in ("orders", "notes", "stock"):
        shard = store.shard(name)
        upper, since = shard.upper, shard.since
        found[f"{name} from to"] = [(since.time, upper.time)]
        for time in range(since.time or 0, upper.time or 0):
            found[f"{name} as of {time}"] = _rows(shard.snapshot(time).to_arrow())
        found[f"{name} filtered"] = _rows(shard.snapshot(filter=[("id", ">", 999)]).to_arrow())
    orders = store.shard("orders")
    state = orders.state()
    for instant_ms in (state.moment_chunks[0].first_instant_ms, state.moments[0].instant_ms):
        instant = datetime.fromtimestamp(instant_ms / 1000, UTC)
        found[f"orders at {instant_ms}"] = [(orders.snapshot(instant).as_of,)]
    found["members"] = [store.timeline("shop").shards]
    return found


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())
