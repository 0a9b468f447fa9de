"""Whose rows a table of PostgreSQL has: one sink's, of one store, and all that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.postgres.server import Server
from tests.postgres.tables import Tables, tables_on

from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress
from strandline.errors import SinkStoppedError
from strandline.model.schema import DIFF_COLUMN
from strandline.testing.conformance_sink import (
    CHANGES,
    COLUMNS,
    WHAT,
    changes,
    expected,
    founded,
    has,
    opened,
)

NEWER = replace(WHAT, address=replace(WHAT.address, lineage="newer"))
ELSEWHERE = replace(WHAT, address=replace(WHAT.address, store="l1"))


@pytest.fixture
def tables(postgres: Server) -> Iterator[Tables]:
    with tables_on(postgres) as made:
        yield made


def test_a_table_belongs_to_one_sink(tables: Tables) -> None:
    founded(tables.stand(("id",)), 0)
    other = Delivered(Address("l0", "shop", "another", "first"), COLUMNS, ("id",))
    with pytest.raises(SinkStoppedError, match="published to by sink 'out' of pipeline 'shop'"):
        tables.sink(other).prepare()


def test_a_table_that_is_gone_stops_its_lineage_and_is_made_for_another(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    tables.run("DROP TABLE {t}")
    with pytest.raises(SinkStoppedError, match="is gone, and its progress says"):
        opened(stand)
    tables.lose(WHAT)
    for _ in range(3):
        sink, _ = opened(stand)
        with pytest.raises(SinkStoppedError, match="is gone, and everything up to 0"):
            sink.found(Progress(0, 1))
    founded(stand, 5, what=NEWER)
    assert has(stand, expected(5), NEWER)


def test_a_database_that_was_replaced_is_refused_by_every_handle(tables: Tables) -> None:
    stand = tables.stand(("id",), existing="replace")
    founded(stand, 0)
    tables.run("DROP TABLE {t}, {p}")
    for _ in range(3):
        sink, progress = opened(stand)
        assert progress is None
        with pytest.raises(SinkStoppedError, match="is gone, and everything up to 0"):
            sink.found(Progress(0, 1))
    assert tables.run("SELECT t FROM {p}") == [(None,)]


@pytest.mark.parametrize("meddling", ["DELETE FROM {t}", "DROP TABLE {t}"])
def test_a_table_that_was_made_anew_by_somebody_else_is_refused_by_every_handle(
    tables: Tables, meddling: str
) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    tables.run(meddling)
    tables.run("CREATE TABLE IF NOT EXISTS {t} (id bigint PRIMARY KEY, name text)")
    tables.lose(WHAT)
    for _ in range(2):
        sink, _ = opened(stand)
        with pytest.raises(SinkStoppedError, match=r"made anew\. Bring it back with its rows"):
            sink.found(Progress(0, 1))
    tables.run("INSERT INTO {t} VALUES (0, 'row 0'), (1, NULL)")
    sink, _ = opened(stand)
    sink.found(Progress(0, 1))
    sink.deliver(1, 1, changes(1, 0))
    assert has(stand, expected(0, 1))


CUT = ["TRUNCATE {t}", "DROP TABLE {t}; CREATE TABLE {t} (id bigint PRIMARY KEY, name text)"]


@pytest.mark.parametrize("meddling", [*CUT, "DELETE FROM {t}"])
def test_a_table_that_was_emptied_is_refused_by_every_handle_though_progress_is_there(
    tables: Tables, meddling: str
) -> None:
    stand = tables.stand(("id",))
    first = founded(stand, 0)
    tables.run(meddling)
    for _ in range(3):
        with pytest.raises(SinkStoppedError, match=r"is empty, and everything up to 0 .* anew\."):
            opened(stand)
    assert tables.rows() == []
    tables.run("INSERT INTO {t} VALUES (0, 'row 0'), (1, NULL)")
    first.deliver(1, 1, changes(1, 0))
    assert has(stand, expected(0, 1)), "who was refused got in the way"


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "multiset"])
@pytest.mark.parametrize("meddling", CUT)
def test_a_table_that_is_emptied_between_two_deliveries_stops_the_second(
    tables: Tables, key: tuple[str, ...], meddling: str
) -> None:
    """It takes nothing away, so nothing that is to go is missing."""
    stand = tables.stand(key)
    sink = founded(stand, 0)
    tables.run(meddling)
    with pytest.raises(SinkStoppedError, match="is empty, and everything up to 0"):
        sink.deliver(1, 1, changes(1))
    assert tables.rows() == []
    founded(stand, 5, what=NEWER)
    assert has(stand, expected(5), NEWER)


def test_a_partitioned_table_that_was_cut_stops_it_too(tables: Tables) -> None:
    tables.run("CREATE TABLE {t} (id bigint PRIMARY KEY, name text) PARTITION BY RANGE (id)")
    tables.run(f"CREATE TABLE {tables.schema}.low PARTITION OF {{t}} DEFAULT")
    sink = founded(tables.stand(("id",)), 0, 1)
    tables.run("TRUNCATE {t}")
    with pytest.raises(SinkStoppedError, match="is empty, and everything up to 1"):
        sink.deliver(2, 1, changes(2))


def test_a_partition_that_somebody_is_busy_with_holds_up_nobody_else(tables: Tables) -> None:
    tables.run("CREATE TABLE {t} (id bigint PRIMARY KEY, name text) PARTITION BY RANGE (id)")
    tables.run(f"CREATE TABLE {tables.schema}.low PARTITION OF {{t}} DEFAULT")
    tables.run(
        f"CREATE TABLE {tables.schema}.far PARTITION OF {{t}} FOR VALUES FROM (900) TO (999)"
    )
    sink = founded(tables.stand(("id",)), 0)
    with tables.server.superuser() as login:
        login.execute("BEGIN")
        login.execute(f"LOCK TABLE {tables.schema}.far IN SHARE MODE")
        sink.deliver(1, 1, changes(1))
    assert len(tables.rows()) == 4


def test_who_may_write_some_columns_only_delivers(tables: Tables) -> None:
    tables.run("CREATE TABLE {t} (id bigint PRIMARY KEY, name text, note text)")
    place = f"{tables.schema}.{tables.table}"
    sink = founded(tables.stand(("id",)), 0)
    with tables.server.superuser() as login:
        login.execute(f"ALTER TABLE {place} OWNER TO postgres")
        login.execute(f"REVOKE ALL ON {place} FROM strand")
        login.execute(f"GRANT SELECT, INSERT (id, name) ON {place} TO strand")
    sink.deliver(1, 1, changes(1))
    assert len(tables.rows()) == 4


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "multiset"])
def test_a_table_that_is_empty_as_its_view_is_goes_on(tables: Tables, key: tuple[str, ...]) -> None:
    stand = tables.stand(key)
    sink = founded(stand, 0)
    gone = changes(0)[0].to_pylist()
    for each in gone:
        each[DIFF_COLUMN] = -1
    sink.deliver(1, 1, [pa.RecordBatch.from_pylist(gone, schema=CHANGES)])
    assert tables.run("SELECT t, rows FROM {p}") == [(1, 0)]
    tables.run("TRUNCATE {t}")
    sink, _ = opened(stand)
    sink.deliver(2, 1, changes(2))
    assert len(tables.rows()) == 2


def test_progress_is_not_left_again_over_the_rows_of_another_lineage(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    founded(stand, 5, what=NEWER)
    tables.lose(WHAT)
    sink, _ = opened(stand)
    with pytest.raises(SinkStoppedError, match="has the rows of another lineage"):
        sink.found(Progress(0, 1))
    assert has(stand, expected(5), NEWER)


def test_the_table_is_made_with_the_first_mark_and_not_before(tables: Tables) -> None:
    stand = tables.stand(("id",))
    there = f"SELECT to_regclass('{tables.schema}.orders') IS NOT NULL"
    sink, _ = opened(stand)
    assert tables.run(there) == [(False,)]
    sink.found(Progress(NOTHING_YET, 1))
    assert tables.run(there) == [(True,)]
    tables.run("DROP TABLE {t}")
    founded(stand, 0)
    assert has(stand, expected(0))


def test_the_rows_of_another_store_are_refused_unless_they_may_go(tables: Tables) -> None:
    stand = tables.stand(("id",))
    first = founded(stand, 0)
    for _ in range(2):
        with pytest.raises(SinkStoppedError, match=r"another store, 'l0'.*existing 'replace'"):
            opened(stand, ELSEWHERE)
    first.deliver(1, 1, changes(1, 0))
    assert has(stand, expected(0, 1)), "who was refused got in the way"
    founded(tables.stand(("id",), existing="replace"), 5, what=ELSEWHERE)
    founded(stand, 6, what=ELSEWHERE)
    assert has(stand, expected(5, 6), ELSEWHERE)
    with pytest.raises(SinkStoppedError, match="another store, 'l1'"):
        opened(stand)


def test_rows_of_another_store_that_come_after_preparing_are_refused_too(tables: Tables) -> None:
    """Between the check and the ownership the other one delivers."""
    stand = tables.stand(("id",))
    first = founded(stand)
    founded(stand, what=ELSEWHERE)
    first, _ = opened(stand)

    def step(name: str) -> None:
        if name == "own":
            first.deliver(0, 1, changes(0))

    late, progress = opened(stand, ELSEWHERE, step)
    assert progress == Progress(NOTHING_YET, 1)
    with pytest.raises(SinkStoppedError, match="another store, 'l0'"):
        late.deliver(5, 1, changes(5))
    assert has(stand, expected(0))
