"""Whose rows a table of PostgreSQL has: one sink's, of one store, and all that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.postgres.server import Server
from tests.postgres.tables import Tables, tables_on

from strandline.connectors.sink import NOTHING_YET, Address, Delivered, Progress
from strandline.errors import SinkStoppedError
from strandline.testing.conformance_sink import (
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
