"""S78, S79, S81, S88 and S89 with a real PostgreSQL behind whole pipelines, some in processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from tests.pipeline.shop import SETTINGS
from tests.postgres.server import PASSWORD, Server
from tests.postgres.tables import Tables, tables_on

import strandline
from strandline.errors import NotFoundError
from strandline.handles.store import Store
from strandline.pipeline.pipeline import Pipeline
from strandline.pipeline.states import State
from strandline.system import SystemClock, SystemTasks
from strandline.testing.engines import arrow_engine

KILLS = 4
PATIENCE_MS = 90_000
"""Of the test, for what is not promised; this machine may be busy."""

TEXT = """
CREATE TABLE orders (id BIGINT, customer BIGINT, amount BIGINT, PRIMARY KEY (id))
  USING generator OPTIONS (seed '7', keys '20', deletes '0.1', rows '{rows}', rowsPerSecond '0');
CREATE MATERIALIZED VIEW amounts AS SELECT amount % {modulus} AS m FROM orders;
CREATE MATERIALIZED VIEW totals REFRESH FULL AS
  SELECT COUNT(*) AS orders, SUM(amount) AS amount FROM orders;
CREATE SINK all_orders FROM orders USING postgresql OPTIONS ({options} table '{schema}.orders');
CREATE SINK some FROM amounts USING postgresql OPTIONS ({options} table '{schema}.amounts');
CREATE SINK sums FROM totals USING postgresql OPTIONS ({options} table '{schema}.totals');
"""
VIEWS = ("orders", "amounts", "totals")


@pytest.fixture
def tables(postgres: Server) -> Iterator[Tables]:
    postgres.ensure()
    with tables_on(postgres) as made:
        yield made
        postgres.ensure()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)


def text_for(tables: Tables, rows: int = 100, modulus: int = 5) -> str:
    options = f"url '{tables.server.url}', password 'env:SHOP_PASSWORD',"
    return TEXT.format(options=options, schema=tables.schema, rows=rows, modulus=modulus)


def held(tables: Tables, name: str) -> tuple[int | None, Counter[tuple[object, ...]]]:
    """A table and the time that it is as of, as one moment has them."""
    with tables.login() as login, login.transaction():
        login.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        there = login.execute("SELECT to_regclass(%s)", (f"{tables.schema}.{name}",)).fetchone()
        if there == (None,):
            return None, Counter()
        marks = sql.Identifier(tables.schema, "strandline_progress")
        asked = sql.SQL("SELECT t FROM {} WHERE target = %s AND holds").format(marks)
        found = login.execute(asked, (f"{tables.schema}.{name}",)).fetchone()
        table = sql.Identifier(tables.schema, name)
        rows = login.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchall()
    return None if found is None else found[0], Counter(rows)


def wrong(tables: Tables, store: Store, name: str) -> str | None:
    """What a table has that its view, at the time that the table says, has not, or the reverse."""
    t, rows = held(tables, name)
    shard = next(
        store.shard(each)
        for each in store.shards()
        if each.split(".")[1] == name and not each.endswith("_errors")
    )
    upper = shard.upper.time
    if upper is None:
        raise NotFoundError(name)
    if t is None:
        return f"nothing was delivered to {name}"
    with shard.snapshot(as_of=t) as snapshot:
        view = snapshot.to_arrow()
    right = Counter(tuple(row.values()) for row in view.to_pylist())
    return None if rows == right else f"{name} at {t} is {rows} and should be {right}"


@pytest.mark.usefixtures("environment")
def test_s78_the_tables_are_the_views_with_a_key_without_one_and_with_one_row(
    tables: Tables, tmp_path: Path
) -> None:
    with strandline.open(str(tmp_path / "lake")) as store:
        with shop(store, text_for(tables)) as pipeline:
            assert pipeline.run(until_idle=True).state is State.STOPPED
            for sink in ("all_orders", "some", "sums"):
                assert pipeline.verify_sink(sink).equal
            tables.run("UPDATE {t} SET amount = amount + 1 WHERE id = (SELECT min(id) FROM {t})")
            assert not pipeline.verify_sink("all_orders").equal
            tables.run("UPDATE {t} SET amount = amount - 1 WHERE id = (SELECT min(id) FROM {t})")
        for name in VIEWS:
            assert wrong(tables, store, name) is None
        t, rows = held(tables, "amounts")
        assert t == 9
        assert max(rows.values()) > 1, "a row that occurs more than once was delivered"


@pytest.mark.usefixtures("environment")
def test_s88_a_view_that_changed_replaces_its_table_and_a_restart_does_not(
    tables: Tables, tmp_path: Path
) -> None:
    mine = (77, 7, 7)
    with strandline.open(str(tmp_path / "lake")) as store:
        with shop(store, text_for(tables)) as first:
            until_published(first, tables)
        tables.run("INSERT INTO {t} VALUES (77, 7, 7)")
        with shop(store, text_for(tables)) as again:
            again.run(until_idle=True)
        assert mine in held(tables, "orders")[1], "a restart leaves the table as it is"
        tables.run("DELETE FROM {t} WHERE id = 77")
        with shop(store, text_for(tables, modulus=3)) as changed:
            changed.promote()
            changed.run(until_idle=True)
        assert set(held(tables, "amounts")[1]) <= {(0,), (1,), (2,), (-1,), (-2,)}
        assert wrong(tables, store, "orders") is None
        assert wrong(tables, store, "totals") is None


@pytest.mark.usefixtures("environment")
def test_s89_a_pipeline_goes_on_when_its_database_is_back(
    postgres: Server, tables: Tables, tmp_path: Path
) -> None:
    with strandline.open(str(tmp_path / "lake")) as store:
        with shop(store, text_for(tables)) as first:
            first.run(transactions=3)
        postgres.kill()
        with shop(store, text_for(tables)) as again:
            # The server ends with the thread that starts it, so the pipeline has one of its own.
            running = store.env.tasks.start("pipeline", lambda: again.run(until_idle=True))
            store.env.tasks.sleep(1_000)
            postgres.start()
            running.join()
        for name in VIEWS:
            assert wrong(tables, store, name) is None


def until_published(pipeline: Pipeline, tables: Tables) -> None:
    """A transaction at a time: what is published follows what is committed, sooner or later."""
    for _ in range(20):
        pipeline.run(transactions=1)
        with suppress(psycopg.errors.UndefinedTable):
            if tables.run("SELECT 1 FROM {t} LIMIT 1"):
                return
    raise AssertionError("nothing was published")


def shop(store: Store, text: str) -> Pipeline:
    return store.pipeline("shop", text, settings=SETTINGS, engine=arrow_engine)


REPLICA = """
import os, sys
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

text = sys.argv[2]
program = parse(text)
ports = SinkPorts(
    lambda value: os.environ[value[4:]] if value.startswith("env:") else value,
    SystemRandom().token,
)
with strandline.open(sys.argv[1]) as store:
    settings = PipelineSettings(rows_max=5, delay_ms=0, poll_ms=5, claim_lease_ms=400)
    rig = rigged(store, "shop", program, text,
        sources=open_sources(program, Ports(SystemClock(), str)), computer=ArrowComputer(store),
        settings=settings, sinks=targets(program, ports))
    runner = Runner(Replica(rig), store.env, settings, Publishing(rig, sys.argv[3]))
    print(runner.run(until_idle=True), flush=True)
"""


class Fleet:
    """Two replicas of a pipeline, and somebody who looks at the tables all the time."""

    def __init__(self, tables: Tables, lake: Path, rows: int = 200) -> None:
        self.tables = tables
        self.lake = lake
        self.text = text_for(tables, rows)
        self.tasks, self.clock = SystemTasks(), SystemClock()
        self.replicas = [self.start(name) for name in "ab"]
        self.seen: set[int] = set()

    def start(self, name: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", REPLICA, str(self.lake), self.text, name]
        told = {**os.environ, "SHOP_PASSWORD": PASSWORD}
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=told)

    def look(self) -> None:
        with suppress(psycopg.OperationalError):
            t, _ = held(self.tables, "orders")
            self.seen |= set() if t is None else {t}

    def until_further(self, count: int, patience_ms: int | None = None) -> None:
        """Every life gets somewhere before it ends, or nothing would be tested."""
        wanted = len(self.seen) + count
        deadline = self.clock.monotonic_ms() + (patience_ms or PATIENCE_MS)
        while len(self.seen) < wanted and any(each.poll() is None for each in self.replicas):
            if self.clock.monotonic_ms() >= deadline:
                assert patience_ms is not None, "nothing was published"
                return
            self.look()
            self.tasks.sleep(10)

    def kill(self, victim: int) -> None:
        self.replicas[victim].kill()
        self.replicas[victim].communicate()
        self.replicas[victim] = self.start("ab"[victim])

    def ended(self) -> list[str]:
        return [each.communicate(timeout=PATIENCE_MS / 250)[0] for each in self.replicas]

    def close(self) -> None:
        for each in self.replicas:
            each.kill()
            each.communicate()


@pytest.fixture
def fleet(tables: Tables, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tables, tmp_path / "lake")
    yield made
    made.close()


@pytest.mark.process
def test_s79_replicas_and_the_server_are_killed_at_any_moment_and_the_tables_are_the_views(
    postgres: Server, fleet: Fleet
) -> None:
    killed(fleet, postgres, KILLS, 7)


@pytest.mark.process
@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_s79_replicas_and_the_server_are_killed_as_often_as_it_is_told_to(
    postgres: Server, tables: Tables, tmp_path: Path, cycles: int, seed: int | None
) -> None:
    fleet = Fleet(tables, tmp_path / "lake", rows=50 * cycles)
    try:
        killed(fleet, postgres, cycles, 7 if seed is None else seed)
    finally:
        fleet.close()


def killed(fleet: Fleet, postgres: Server, kills: int, seed: int) -> None:
    """Kill replicas in turns, and the server every other time; the tables are right in the end."""
    chance = random.Random(seed)
    for kill in range(kills):
        fleet.until_further(2)
        fleet.tasks.sleep(chance.uniform(0, 200))
        if kill % 2:
            postgres.kill()
            fleet.tasks.sleep(chance.uniform(0, 300))
            postgres.start()
        fleet.kill(kill // 2 % 2)
    ended_well(fleet)


def ended_well(fleet: Fleet) -> None:
    told = fleet.ended()
    assert all("STOPPED: 'stopped'" in each for each in told), told
    with strandline.open(str(fleet.lake), upkeep=False) as store:
        for name in VIEWS:
            assert wrong(fleet.tables, store, name) is None


@pytest.mark.process
def test_s81_a_replica_that_was_paused_comes_back_and_nothing_of_it_appears(
    fleet: Fleet,
) -> None:
    fleet.until_further(2)
    for zombie in fleet.replicas:
        zombie.send_signal(signal.SIGSTOP)
        # Longer than its claim lasts: the other one takes over, unless the zombie stopped within
        # a write to the store, for which all wait.
        fleet.until_further(2, patience_ms=3_000)
        zombie.send_signal(signal.SIGCONT)
        fleet.until_further(2)
    ended_well(fleet)
