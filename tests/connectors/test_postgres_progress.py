"""The progress table: readable, one owner for a target, rows held by one lineage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.postgres.server import Server
from tests.postgres.tables import Tables, tables_on

from strandline.testing.conformance_sink import WHAT, founded, opened

NEWER = replace(WHAT, address=replace(WHAT.address, lineage="newer"))


@pytest.fixture
def tables(postgres: Server) -> Iterator[Tables]:
    with tables_on(postgres) as made:
        yield made


def test_progress_can_be_read_by_anybody(tables: Tables) -> None:
    founded(tables.stand(("id",)), 0, 7)
    asked = "SELECT address, store, pipeline, sink, lineage, target, t, epoch, holds FROM {p}"
    address = WHAT.address
    target = f"{tables.schema}.orders"
    assert tables.run(asked) == [(address.digest, "l0", "shop", "out", "first", target, 7, 1, True)]


def test_a_target_has_one_owner_and_holds_the_rows_of_one_lineage(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    opened(stand, NEWER)
    assert len(tables.run("SELECT DISTINCT owner FROM {p}")) == 1
    asked = "SELECT lineage, t, holds FROM {p} ORDER BY lineage"
    assert tables.run(asked) == [("first", 0, True), ("newer", None, False)]
    founded(stand, 5, what=NEWER)
    assert tables.run(asked) == [("first", 0, False), ("newer", 5, True)]


def test_tables_of_one_schema_share_it_and_do_not_disturb_each_other(tables: Tables) -> None:
    first = founded(tables.stand(("id",)), 0)
    tables.table = "others"
    other = replace(WHAT, address=replace(WHAT.address, sink="another"))
    founded(tables.stand(("id",)), 0, what=other)
    tables.table = "orders"
    first.found(first.progress())  # type: ignore[arg-type]
    assert tables.run("SELECT target LIKE '%.orders', t FROM {p} ORDER BY target") == [
        (True, 0),
        (False, 0),
    ]


def test_sinks_that_begin_at_the_same_time_wait_for_each_other(tables: Tables) -> None:
    """A progress table that is being made is seen by nobody, and can't be made twice."""
    others: list[threading.Thread] = []
    done: list[str] = []

    def step(name: str) -> None:
        if name == "prepared":
            tables.table = "others"
            other = tables.sink(replace(WHAT, address=replace(WHAT.address, sink="another")))

            def prepare() -> None:
                other.prepare()
                done.append("other")

            others.append(threading.Thread(target=prepare))
            others[0].start()
            others[0].join(0.5)
            assert not done
            done.append("first")

    tables.sink(WHAT, step).prepare()
    others[0].join(60)
    assert done == ["first", "other"]


def test_who_may_not_create_tables_uses_one_that_is_there(tables: Tables) -> None:
    founded(tables.stand(("id",)), 0)
    with tables.server.superuser() as login:
        login.execute(f"ALTER SCHEMA {tables.schema} OWNER TO postgres")
        login.execute(f"GRANT USAGE ON SCHEMA {tables.schema} TO strand")
    founded(tables.stand(("id",)), 1)
    assert tables.run("SELECT t FROM {p}") == [(1,)]
