"""S78 and S79 with real processes: two replicas publish files, and are killed at any moment."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import strandline
from strandline.connectors.files_sink import read_published
from strandline.errors import NotFoundError
from strandline.system import SystemClock, SystemTasks

pytestmark = pytest.mark.process

KILLS = 4
TRANSACTIONS = 40
PATIENCE_MS = 90_000
"""Of the test, for what is not promised; this machine may be busy."""

REPLICA = '''
import sys
from strandline.connectors.sink import SinkPorts
from strandline.connectors.source import Ports
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import rigged
from strandline.pipeline.runner import Runner
from strandline.pipeline.settings import PipelineSettings
from strandline.pipeline.sinks import targets
from strandline.pipeline.sources import open_sources
from strandline.system import SystemClock, SystemRandom
from strandline.testing.computing import ArrowComputer
from strandline.views.parse import parse
import strandline

text = f"""
CREATE TABLE orders (id BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '3', keys '20', deletes '0.2', rows '200', rowsPerSecond '0');
CREATE MATERIALIZED VIEW large AS SELECT id, amount * 2 AS twice FROM orders WHERE amount > 10;
CREATE SINK out FROM large USING files OPTIONS (path '{sys.argv[2]}');
"""
program = parse(text)
with strandline.open(sys.argv[1]) as store:
    settings = PipelineSettings(rows_max=5, delay_ms=0, poll_ms=5, claim_lease_ms=400)
    rig = rigged(store, "shop", program, text,
        sources=open_sources(program, Ports(SystemClock(), str)), computer=ArrowComputer(store),
        settings=settings, sinks=targets(program, SinkPorts(str, SystemRandom().token)))
    runner = Runner(Replica(rig), store.env, settings, Publishing(rig, sys.argv[3]))
    print(runner.run(until_idle=True), flush=True)
'''


def start(store: Path, folder: Path, name: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", REPLICA, str(store), str(folder), name]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_s79_two_replicas_are_killed_at_any_moment_and_each_transaction_is_published_once(
    tmp_path: Path,
) -> None:
    lake, folder = tmp_path / "lake", tmp_path / "out"
    tasks, clock, chance = SystemTasks(), SystemClock(), random.Random(7)
    replicas = [start(lake, folder, name) for name in "ab"]
    try:
        for kill in range(KILLS):
            seen = len(list(read_published(folder)))
            deadline = clock.monotonic_ms() + PATIENCE_MS
            # Every life gets somewhere before it ends, or nothing would be tested.
            while len(list(read_published(folder))) < min(seen + 3, TRANSACTIONS // 2):
                assert clock.monotonic_ms() < deadline, "nothing was published"
                tasks.sleep(10)
            tasks.sleep(chance.uniform(0, 200))
            victim = kill % 2
            replicas[victim].kill()
            replicas[victim].communicate()
            replicas[victim] = start(lake, folder, "ab"[victim])
        told = [each.communicate(timeout=PATIENCE_MS / 1_000)[0] for each in replicas]
    finally:
        for each in replicas:
            each.kill()
            each.communicate()
    assert all("STOPPED: 'stopped'" in each for each in told), told
    assert wrong(lake, folder) == []


def wrong(lake: Path, folder: Path) -> list[str]:
    """Where what is published is not what the view held, at any time."""
    found, total = [], Counter[tuple[object, ...]]()
    with strandline.open(str(lake), upkeep=False) as store:
        name = next(each for each in store.shards() if ".large.p" in each and "_errors" not in each)
        shard = store.shard(name)
        published = {each.t: each for each in read_published(folder)}
        assert list(published) == sorted(published)
        upper = shard.upper.time
        if upper is None:
            raise NotFoundError(name)
        for t in range(upper):
            for row in published[t].to_arrow().to_pylist() if t in published else []:
                total[row["id"], row["twice"]] += row["_diff"]
            with shard.snapshot(as_of=t) as snapshot:
                rows: pa.Table = snapshot.to_arrow()
            held = Counter((row["id"], row["twice"]) for row in rows.to_pylist())
            if +total != held or min(total.values(), default=0) < 0:
                found.append(f"at {t} {+total} is published and {held} is right")
    return found
