"""The progress table: readable, one owner for a target, rows held by one lineage."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from psycopg import sql
from tests.postgres.server import Server
from tests.postgres.tables import Tables, tables_on

from strandline.connectors.postgres_progress import NAME
from strandline.connectors.sink import Progress
from strandline.errors import SinkStoppedError
from strandline.testing.conformance_sink import (
    WHAT,
    changes,
    expected,
    founded,
    has,
    no_step,
    opened,
)

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


def test_rows_are_counted_as_they_come_and_go(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0, 1, 2)
    asked = "SELECT rows, (SELECT count(*) FROM {t}) FROM {p} WHERE holds"
    assert tables.run(asked) == [(4, 4)]
    founded(stand, 5, what=NEWER)
    assert tables.run(asked) == [(2, 2)]


def test_an_older_table_without_a_number_of_rows_gets_one_and_counts_what_comes(
    tables: Tables,
) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    tables.run("ALTER TABLE {p} DROP COLUMN rows, DROP COLUMN rows_t")
    found = stand.new(WHAT, no_step).read_back()
    assert found is not None
    assert sum(each.num_rows for each in found.rows) == 2
    sink, progress = opened(stand)
    assert progress == Progress(0, 1)
    assert tables.run("SELECT rows FROM {p}") == [(0,)], "nobody knows yet"
    sink.deliver(1, 1, changes(1, 0))
    assert tables.run("SELECT rows FROM {p}") == [(1,)], "one more than before"
    tables.run("TRUNCATE {t}")
    with pytest.raises(SinkStoppedError, match="is empty"):
        opened(stand)


def test_more_may_go_than_was_counted(tables: Tables) -> None:
    stand = tables.stand(("id",))
    sink = founded(stand, 0)
    tables.run("UPDATE {p} SET rows = 0")
    sink.deliver(1, 1, changes(1, 0, rows=0))
    assert (tables.run("SELECT rows FROM {p}"), len(tables.rows())) == ([(0,)], 1)


def test_an_older_table_of_another_role_is_used_as_it_is(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    tables.run("ALTER TABLE {p} DROP COLUMN rows, DROP COLUMN rows_t")
    with tables.server.superuser() as login:
        login.execute(f"ALTER TABLE {tables.schema}.{NAME} OWNER TO postgres")
        login.execute(f"GRANT SELECT, INSERT, UPDATE ON {tables.schema}.{NAME} TO strand")
    founded(stand, 1)
    founded(stand, 5, what=NEWER)
    assert has(stand, expected(5), NEWER)


def test_a_count_that_an_older_version_has_left_behind_is_not_believed(tables: Tables) -> None:
    """It moved on without counting, and by right the table is empty by now."""
    stand = tables.stand(("id",))
    founded(stand, 0)
    tables.run("UPDATE {p} SET t = 1")
    tables.run("DELETE FROM {t}")
    sink, progress = opened(stand)
    assert progress == Progress(1, 1)
    sink.deliver(2, 1, changes(2))
    assert tables.run("SELECT rows, rows_t FROM {p}") == [(2, 2)]


def test_an_older_table_that_somebody_reads_is_used_as_it_is(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    tables.run("ALTER TABLE {p} DROP COLUMN rows, DROP COLUMN rows_t")
    with tables.server.superuser() as login:
        login.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        login.execute(f"SELECT t FROM {tables.schema}.{NAME}")
        sink, progress = opened(stand)
        assert progress == Progress(0, 1)
        sink.deliver(1, 1, changes(1, 0))
    opened(stand)[0].deliver(2, 1, changes(2, 1))
    assert tables.run("SELECT rows_t FROM {p}") == [(2,)]


def test_a_schema_may_have_any_name(tables: Tables) -> None:
    name = f'{tables.schema}%s5" off'
    with tables.login() as login:
        words = sql.Identifier(tables.schema), sql.Identifier(name)
        login.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(*words))
    tables.schema = name
    founded(replace(tables.stand(), state=None), 0, 7)
    back = tables.sink(WHAT).read_back()
    assert back is not None
    assert (back.at, sum(each.num_rows for each in back.rows)) == (Progress(7, 1), 3)
