"""S80 where a database is connected and says nothing: no publisher waits for it for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from psycopg import sql
from tests.pipeline.shop import TEXT, rig_of, rows
from tests.postgres.proxy import Proxy
from tests.postgres.server import Server
from tests.postgres.tables import Tables, tables_on

from strandline.handles.store import Store
from strandline.pipeline.publish import Publisher
from strandline.pipeline.replica import Replica
from strandline.pipeline.states import SinkState
from strandline.system import SystemClock, SystemTasks
from strandline.testing.lab import Lab, new_store

TIMEOUT_MS = 1_000
CONNECT_MS = 2_000
SLACK_MS = 10_000
"""What a busy machine may take beside."""
SINK = """
CREATE SINK out FROM orders USING postgresql
  OPTIONS (url '{url}?connect_timeout={connect_s}', table '{table}', timeoutMs '{timeout_ms}');
"""


class Shop:
    """Two replicas, of which one has committed five transactions and the rest later."""

    def __init__(self, one: Store, two: Store, tables: Tables, port: int) -> None:
        sink = SINK.format(
            url=tables.server.url_at(port, "postgres"),
            connect_s=CONNECT_MS // 1_000,
            table=f"{tables.schema}.{tables.table}",
            timeout_ms=TIMEOUT_MS,
        )
        self.one, self.tables = one, tables
        self.rigs = [rig_of(store, TEXT + sink, claim_lease_ms=400) for store in (one, two)]
        self.replica = Replica(self.rigs[0])
        self.publishers = [
            Publisher(rig.store, rig.journal, rig.sinks[0], rig.settings, name)
            for rig, name in zip(self.rigs, "ab", strict=True)
        ]
        self.clock, self.tasks = SystemClock(), SystemTasks()

    def commit(self, last: int) -> None:
        journal = self.rigs[0].journal
        while (journal.standing.committed.last() or 0) < last:
            self.replica.step()
        for rig in self.rigs:
            rig.journal.refresh()

    def until(self, holds: Callable[[], bool], within_ms: int = 60_000) -> None:
        deadline = self.clock.monotonic_ms() + within_ms
        while not holds():
            assert self.clock.monotonic_ms() < deadline, [each.status() for each in self.publishers]
            self.tasks.sleep(10)

    def is_equal(self) -> bool:
        view = [tuple(each.values()) for each in rows(self.one, "orders", 9)]
        with self.tables.server.superuser() as login:
            table = sql.Identifier(self.tables.schema, self.tables.table)
            found = login.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchall()
        return sorted(found) == sorted(view)

    def close(self) -> None:
        for each in self.publishers:
            each.stop()
        self.replica.close()


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    with closing(Proxy(postgres.port)) as made:
        yield made


@pytest.fixture
def shop(postgres: Server, proxy: Proxy) -> Iterator[Shop]:
    with (
        closing(Lab()) as lab,
        tables_on(postgres) as tables,
        new_store(lab) as one,
        new_store(lab) as two,
        closing(Shop(one, two, tables, proxy.port)) as made,
    ):
        made.commit(4)
        made.publishers[0].start()
        made.until(lambda: made.publishers[0].status().reached == 4)
        yield made


@pytest.mark.parametrize("statement", [b"COPY", b"COMMIT"])
def test_s80_a_silent_database_is_told_within_the_limit_and_its_publisher_goes_on_when_it_answers(
    shop: Shop, proxy: Proxy, statement: bytes
) -> None:
    publisher = shop.publishers[0]
    proxy.swallow_from(statement)
    shop.commit(9)
    assert proxy.caught.wait(60)
    shop.until(
        lambda: (
            publisher.status().state is SinkState.RETRYING
            and "no answer for 1" in publisher.status().cause
        ),
        TIMEOUT_MS + SLACK_MS,
    )
    proxy.mend()
    shop.until(lambda: publisher.status().reached == 9)
    assert publisher.status().state is SinkState.PUBLISHING
    assert shop.is_equal()


def test_s80_who_is_stopped_while_its_database_is_silent_ends_and_another_takes_over(
    shop: Shop, proxy: Proxy
) -> None:
    first, second = shop.publishers
    second.start()
    shop.until(lambda: second.status().state is SinkState.WAITING)
    proxy.swallow_from(b"COMMIT")
    shop.commit(9)
    assert proxy.caught.wait(60)
    began = shop.clock.monotonic_ms()
    first.stop()
    assert shop.clock.monotonic_ms() - began < TIMEOUT_MS + SLACK_MS
    shop.until(lambda: second.status().state is SinkState.RETRYING, CONNECT_MS + SLACK_MS)
    proxy.mend()
    shop.until(lambda: second.status().reached == 9)
    assert shop.is_equal()
