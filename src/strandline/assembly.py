"""The composition root: the only place where ports meet their implementations.

import strandline

with strandline.open("./lake") as store:
    orders = store.shard("orders", schema=schema, key=["id"])
    with orders.writer() as writer:
        writer.append(rows)
    orders.snapshot().to_arrow()
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.config import from_environment, resolve_secret
from strandline.connectors.addresses import Reach
from strandline.connectors.hosts import addresses_of
from strandline.connectors.source import Ports
from strandline.errors import UsageError
from strandline.handles.store import Store
from strandline.heart import OutsideHeart
from strandline.journal.timeline import timeline_of
from strandline.model.equality import leave_threads_behind
from strandline.shard.env import Env, Home
from strandline.shard.metrics import Metrics
from strandline.shard.pulses import TaskHeart
from strandline.shard.settings import Settings
from strandline.store.locate import Kind, locate, open_folder
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.system import SystemClock, SystemRandom, SystemTasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.handles.store import PipelineOptions
    from strandline.pipeline.engine import PipelineEngine
    from strandline.pipeline.pipeline import Pipeline
    from strandline.shard.lease import Heart
    from strandline.spark.table import Table
    from strandline.store.blob import Blob
    from strandline.store.consensus import Consensus

os.register_at_fork(after_in_child=leave_threads_behind)


def open_store(
    url: str,
    blob: str | None = None,
    *,
    create: bool = True,
    settings: Settings | None = None,
    upkeep: bool | None = None,
) -> Store:
    """Open a store, and create it if it does not exist.

    `url` is a folder (`./lake`, `file:///data/lake`) or `memory://`. `blob` names another
    place for the objects; a folder keeps its own. `upkeep=False` leaves compaction and
    collection to other processes.
    """
    location = locate(url)
    if blob is not None:
        raise UsageError(f"store {location} keeps its own objects: leave out blob=")
    config = from_environment()
    settings = settings or Settings()
    if config.lease_ms is not None:
        settings = replace(settings, lease_ms=config.lease_ms)
    clock, tasks, random = SystemClock(), SystemTasks(), SystemRandom()
    pid = os.getpid()
    objects: Blob
    consensus: Consensus
    if location.kind is Kind.MEMORY:
        objects, consensus = MemoryBlob(), MemoryConsensus(clock.wall_ms)
    else:
        objects, consensus = open_folder(location.path, create=create)
    env = Env(
        blob=objects,
        consensus=consensus,
        clock=clock,
        tasks=tasks,
        random=random,
        metrics=Metrics(),
        settings=settings,
        timelines=lambda name: timeline_of(env, name),
        home=Home(str(location), lambda: os.getpid() == pid),
    )
    owner = f"{socket.gethostname()} {pid}"

    def new_heart(lease_ms: int) -> Heart:
        if location.kind is Kind.MEMORY:
            return TaskHeart(consensus, tasks, random, lease_ms=lease_ms, owner=owner)
        return OutsideHeart(consensus, random, url=str(location), lease_ms=lease_ms, owner=owner)

    store = Store(
        env,
        new_heart,
        url=str(location),
        new_table=_open_table,
        new_pipeline=_open_pipeline,
    )
    if config.upkeep if upkeep is None else upkeep:
        store.upkeep.start()
    return store


def _open_table(store: Store, name: str, schema: object, key: Sequence[str]) -> Table:
    # Only who asks for a table needs Spark, and its packages take a second to load.
    from strandline.spark.opening import open_table  # noqa: PLC0415

    return open_table(store, name, schema, key)


def _open_pipeline(store: Store, name: str, options: PipelineOptions) -> Pipeline:
    # Whoever only reads and writes shards needs none of this, and SQL takes a while to load.
    from strandline.pipeline.means import Means  # noqa: PLC0415
    from strandline.pipeline.pipeline import Pipeline  # noqa: PLC0415
    from strandline.pipeline.settings import PipelineSettings  # noqa: PLC0415

    hosts = from_environment().hosts
    only = options.confined or hosts is not None
    reach = Reach(hosts or (), only=only, lookup=addresses_of)
    means = Means(
        engine=options.engine or _spark_engine,
        ports=lambda _: Ports(SystemClock(), resolve_secret, reach=reach),
        host=socket.gethostname(),
        pid=os.getpid(),
        settings=options.settings or PipelineSettings(),
        replica=options.replica,
        read_only=options.read_only,
    )
    return Pipeline(store, name, means, text=options.sql, program=options.program)


def _spark_engine(store: Store) -> PipelineEngine:
    # Only who runs a pipeline or asks it needs Spark.
    from strandline.spark.engines import spark_engine  # noqa: PLC0415

    return spark_engine()(store)


open = open_store  # noqa: A001 - the public name, `strandline.open`
