"""A table of a real PostgreSQL, kept equal: rows and progress together, whatever dies."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import psycopg
import pyarrow as pa
import pytest
from tests.postgres.proxy import Proxy
from tests.postgres.server import CONNECTIONS, PASSWORD, Server
from tests.postgres.tables import Tables, ports, tables_on

from strandline.connectors.postgres_sink import PostgresSink, open_sink
from strandline.connectors.sink import NOTHING_YET, Progress, Sink
from strandline.errors import (
    NotInstalledError,
    SinkError,
    SinkFencedError,
    SinkStoppedError,
    UsageError,
)
from strandline.testing.conformance_sink import (
    CHANGES,
    WHAT,
    SinkStand,
    changes,
    check_sink,
    expected,
    founded,
    has,
    no_step,
    opened,
)

KEYED = replace(WHAT, key=("id",))
NEWER = replace(WHAT, address=replace(WHAT.address, lineage="newer"))


@pytest.fixture
def tables(postgres: Server) -> Iterator[Tables]:
    postgres.ensure()
    with tables_on(postgres) as made:
        yield made
        postgres.ensure()


@pytest.fixture
def proxy(postgres: Server) -> Iterator[Proxy]:
    with closing(Proxy(postgres.port)) as made:
        yield made


def batch(*rows: tuple[int | None, str | None, int]) -> list[pa.RecordBatch]:
    found = [dict(zip(CHANGES.names, row, strict=True)) for row in rows]
    return [pa.RecordBatch.from_pylist(found, CHANGES)]


def fails(sink: PostgresSink, t: int) -> bool:
    """Whether a delivery fails; it must be in a way that passes."""
    try:
        sink.deliver(t, 1, changes(t, t - 1))
    except SinkStoppedError as error:
        raise AssertionError(f"it stopped: {error}") from error
    except SinkError:
        return True
    return False


def rises(stand: SinkStand) -> tuple[Sink, Progress | None]:
    """A handle as soon as there is one; whatever the server says on its way up, it passes."""
    until = time.monotonic() + 60
    while True:
        try:
            return opened(stand)
        except SinkStoppedError as error:
            raise AssertionError(f"it stopped: {error}") from error
        except SinkError:
            assert time.monotonic() < until, "it does not come back"


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "multiset"])
def test_s79_it_keeps_the_contract_with_a_death_at_every_step(
    postgres: Server, key: tuple[str, ...]
) -> None:
    with ExitStack() as last:

        def stand() -> SinkStand:
            last.close()
            return last.enter_context(tables_on(postgres)).stand(key)

        check_sink(stand)


@pytest.mark.parametrize("fatal", ["batch", "commit", "reply"])
def test_s79_the_server_is_killed_in_the_middle_of_a_delivery(
    postgres: Server, tables: Tables, fatal: str
) -> None:
    def step(name: str) -> None:
        if name == fatal:
            postgres.kill()

    stand = tables.stand(("id",))
    founded(stand, 0)
    sink = tables.sink(KEYED, step)
    sink.prepare()
    assert sink.progress() == Progress(0, 1)
    assert fails(sink, 1) is (fatal != "reply")
    # Refused, or taken by a socket whose process was just killed and closed.
    with pytest.raises(SinkError, match="connection failed") as away:
        opened(stand)
    assert not isinstance(away.value, SinkStoppedError)
    postgres.start()
    sink, progress = opened(stand)
    assert progress == Progress(1 if fatal == "reply" else 0, 1)
    if progress == Progress(0, 1):
        sink.deliver(1, 1, changes(1, 0))
    assert has(stand, expected(0, 1))


def test_s80_the_answer_to_a_commit_is_lost_and_progress_tells_that_it_counts(
    tables: Tables, proxy: Proxy
) -> None:
    founded(tables.stand(("id",)), 0)
    tables.port = proxy.port
    sink = tables.sink(KEYED)
    sink.prepare()
    assert sink.progress() == Progress(0, 1)
    proxy.lose_answer_to(b"COMMIT")
    assert fails(sink, 1)
    assert proxy.caught.wait(60)
    assert opened(tables.stand(("id",)))[1] == Progress(1, 1)
    assert has(tables.stand(), expected(0, 1))


def test_s80_a_commit_that_is_late_is_ended_before_anybody_else_is_prepared(
    tables: Tables, proxy: Proxy
) -> None:
    """The session that waits for it holds the lock; who takes over ends it and goes on."""
    founded(tables.stand(("id",)), 0)
    tables.port = proxy.port
    sink = tables.sink(KEYED)
    sink.prepare()
    sink.progress()
    proxy.hold(b"COMMIT")
    assert fails(sink, 1)
    assert proxy.caught.wait(60)
    tables.port = tables.server.port
    began = time.monotonic()
    other, progress = opened(tables.stand(("id",)))
    assert progress == Progress(0, 1)
    assert time.monotonic() - began < 9, "a publisher takes over within 10 seconds"
    proxy.release()
    other.deliver(1, 1, changes(1, 0))
    other.deliver(2, 1, changes(2, 1))
    assert has(tables.stand(), expected(0, 1, 2))


@pytest.mark.parametrize("count", [0, 200, 400, 800, 1600])
def test_a_link_that_is_cut_anywhere_leaves_all_or_nothing(
    tables: Tables, proxy: Proxy, count: int
) -> None:
    founded(tables.stand(("id",)), 0)
    tables.port = proxy.port
    stand = tables.stand(("id",))
    sink, _ = opened(stand)
    proxy.cut_after(count)
    fails(sink, 1)
    proxy.mend()
    sink, progress = opened(stand)
    assert progress is not None
    if progress.t == 0:
        sink.deliver(1, 1, changes(1, 0))
    assert has(stand, expected(0, 1))


def test_s81_a_zombie_that_hangs_in_its_transaction_is_ended_and_told(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    others: list[Progress | None] = []

    def step(name: str) -> None:
        """Somebody else takes over while this one is in the middle of its delivery."""
        if name == "commit":
            successor, progress = opened(stand)
            others.append(progress)
            successor.deliver(1, 1, changes(1, 0))

    zombie = tables.sink(KEYED, step)
    zombie.prepare()
    zombie.progress()
    with pytest.raises(SinkError):
        zombie.deliver(1, 1, changes(1, 0))
    assert others == [Progress(0, 1)]
    assert has(stand, expected(0, 1))
    with pytest.raises(SinkError, match="no connection"):
        zombie.deliver(1, 1, changes(1, 0))


def test_an_epoch_never_falls(tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand).deliver(0, 3, changes(0))
    sink, progress = opened(stand)
    assert progress == Progress(0, 3)
    with pytest.raises(SinkFencedError, match="e3"):
        sink.deliver(1, 2, changes(1, 0))


def test_s88_rows_that_no_sink_wrote_are_refused_unless_they_may_go(tables: Tables) -> None:
    tables.run("CREATE TABLE {t} (id bigint PRIMARY KEY, name text)")
    tables.run("INSERT INTO {t} VALUES (1, 'mine'), (0, 'row 0')")
    sink, _ = opened(tables.stand(("id",)))
    with pytest.raises(SinkStoppedError, match=r"rows that no sink wrote.*existing 'replace'"):
        sink.found(Progress(NOTHING_YET, 1))
    assert sorted(tables.rows()) == [(0, "row 0"), (1, "mine")]
    stand = tables.stand(("id",), existing="replace")
    sink = founded(stand)
    assert sorted(tables.rows()) == [(0, "row 0"), (1, "mine")]
    sink.deliver(0, 1, changes(0))
    assert has(stand, expected(0))


def test_s88_rows_that_come_before_the_first_delivery_are_refused_too(tables: Tables) -> None:
    sink = founded(tables.stand(("id",)))
    tables.run("INSERT INTO {t} VALUES (1, 'mine')")
    with pytest.raises(SinkStoppedError, match="rows that no sink wrote"):
        sink.deliver(0, 1, batch((2, "ours", 1)))
    assert tables.rows() == [(1, "mine")]


def test_s88_a_restart_never_clears_what_was_delivered(tables: Tables) -> None:
    stand = tables.stand(("id",), existing="replace")
    founded(stand, 0, 1)
    tables.run("INSERT INTO {t} VALUES (77, 'somebody added this later')")
    for t in (2, 3):
        founded(stand, t)
        assert (77, "somebody added this later") in tables.rows()


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "multiset"])
def test_a_new_lineage_writes_only_what_is_different(tables: Tables, key: tuple[str, ...]) -> None:
    stand = tables.stand(key)
    founded(stand).deliver(0, 1, batch((1, "same", 1), (2, "old", 1), (3, None, 1)))
    written = dict(tables.run("SELECT id, xmin::text FROM {t}"))  # type: ignore[arg-type]
    sink = founded(stand, what=NEWER)
    assert len(tables.rows()) == 3, "founding a lineage changes no row"
    sink.deliver(0, 1, batch((1, "same", 1), (2, "new", 1), (4, "came", 1), (3, None, 1)))
    assert sorted(tables.rows(), key=str) == [(1, "same"), (2, "new"), (3, None), (4, "came")]
    again = dict(tables.run("SELECT id, xmin::text FROM {t}"))  # type: ignore[arg-type]
    assert {each for each in (1, 3) if written[each] == again[each]} == {1, 3}


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "multiset"])
def test_rows_of_an_older_lineage_are_not_read_back_as_none(
    tables: Tables, key: tuple[str, ...]
) -> None:
    stand = tables.stand(key)
    founded(stand, 0)
    sink = founded(stand, what=NEWER)
    with pytest.raises(SinkStoppedError, match="has the rows of another lineage"):
        stand.new(NEWER, no_step).read_back()
    sink.deliver(0, 1, [])
    assert tables.rows() == []
    found = stand.new(NEWER, no_step).read_back()
    assert found is not None
    assert (found.at, list(found.rows)) == (Progress(0, 1), [])


def test_without_a_key_a_row_is_there_as_often_as_it_occurs(tables: Tables) -> None:
    stand = tables.stand()
    sink = founded(stand)
    sink.deliver(0, 1, batch((1, "a", 3), (None, None, 2), (2, "b", 1)))
    sink.deliver(1, 1, batch((1, "a", -2), (None, None, -1), (2, "b", 2)))
    found = sorted(tables.rows(), key=str)
    assert found == [(1, "a"), (2, "b"), (2, "b"), (2, "b"), (None, None)]
    newer = founded(stand, what=NEWER)
    newer.deliver(0, 1, batch((1, "a", 2), (2, "b", 1), (None, None, 1)))
    assert sorted(tables.rows(), key=str) == [(1, "a"), (1, "a"), (2, "b"), (None, None)]


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "multiset"])
@pytest.mark.parametrize(
    "meddling",
    [
        "DELETE FROM {t} WHERE id = 0",
        "UPDATE {t} SET name = 'x' WHERE id = 1",
        "DELETE FROM {t}",
    ],
)
def test_a_row_that_is_to_go_and_is_not_there_stops_it(
    tables: Tables, key: tuple[str, ...], meddling: str
) -> None:
    stand = tables.stand(key)
    sink = founded(stand, 0)
    tables.run(meddling)
    before = tables.rows()
    with pytest.raises(SinkStoppedError, match="somebody else changed it"):
        sink.deliver(1, 1, changes(1, 0))
    assert tables.rows() == before, "nothing of it was written"
    assert tables.state(WHAT)[0] == Progress(0, 1)


def test_a_row_that_is_there_already_stops_it(tables: Tables) -> None:
    sink = founded(tables.stand(("id",)), 0)
    tables.run("INSERT INTO {t} VALUES (10, 'mine')")
    with pytest.raises(SinkStoppedError, match="duplicate key"):
        sink.deliver(1, 1, changes(1, 0))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (((None, "a", 1),), "'id' is part of the key .* and null"),
        (((1, "a", 2),), "'id' is no key"),
        (((1, "a", 1), (1, "b", 1)), "duplicate key"),
        (((1, "a\x00b", 1),), "'name' has a text with a NUL"),
    ],
)
def test_what_the_table_can_t_hold_stops_it_by_name(
    tables: Tables, rows: tuple[tuple[int | None, str | None, int], ...], reason: str
) -> None:
    sink = founded(tables.stand(("id",)))
    with pytest.raises(SinkStoppedError, match=reason):
        sink.deliver(0, 1, batch(*rows))
    assert tables.rows() == []


def test_two_rows_of_one_key_that_replace_another_stop_it(tables: Tables) -> None:
    sink = founded(tables.stand(("id",)))
    sink.deliver(0, 1, batch((1, "a", 1)))
    with pytest.raises(SinkStoppedError, match="'id' is no key"):
        sink.deliver(1, 1, batch((1, "a", -1), (1, "b", 1), (1, "c", 1)))


def test_progress_that_goes_while_a_handle_is_open_is_asked_for_again(tables: Tables) -> None:
    sink = founded(tables.stand(("id",)), 0)
    tables.lose(WHAT)
    with pytest.raises(SinkError, match="is gone: it is asked for again"):
        sink.deliver(1, 1, changes(1, 0))


def test_what_is_read_back_is_one_moment_while_a_publisher_goes_on(tables: Tables) -> None:
    stand = tables.stand(("id",))
    sink = founded(stand, 0)
    found = stand.new(WHAT, no_step).read_back()
    assert found is not None
    sink.deliver(1, 1, changes(1, 0))
    rows = pa.Table.from_batches(found.rows, schema=CHANGES).to_pylist()
    assert sorted((row["id"], row["name"], row["_diff"]) for row in rows) == [
        (0, "row 0", 1),
        (1, None, 1),
    ]
    founded(stand, 5, what=NEWER)
    with pytest.raises(SinkStoppedError, match="rows of another lineage"):
        stand.new(WHAT, no_step).read_back()


def test_names_are_quoted_whatever_they_are(postgres: Server) -> None:
    columns = pa.schema([('sel"ect', pa.int64()), ("drop table", pa.string()), ("n", pa.int64())])
    what = replace(WHAT, columns=columns)
    schema = pa.schema([*columns, CHANGES.field("_diff")])
    with tables_on(postgres, 'or"ders; --') as tables:
        for key in ('sel"ect', ""):
            tables.run("DROP TABLE IF EXISTS {t}")
            sink = tables.sink(replace(what, address=replace(what.address, lineage=key)), key=key)
            sink.prepare()
            sink.found(Progress(NOTHING_YET, 1))
            for t, row in enumerate([(1, "a", 7, 1), (1, "a", 7, -1)]):
                found = dict(zip(schema.names, row, strict=True))
                sink.deliver(t, 1, [pa.RecordBatch.from_pylist([found], schema)])
            assert tables.rows() == []


# ---- S89


def test_s89_a_wrong_password_stops_it_and_is_never_told(tables: Tables) -> None:
    sink = tables.sink(KEYED, password="sesame-open")
    with pytest.raises(SinkStoppedError, match="password authentication failed") as told:
        sink.prepare()
    assert "sesame" not in str(told.value)
    assert told.value.__cause__ is None


def test_s89_a_database_that_is_not_there_stops_it(tables: Tables) -> None:
    url = tables.server.url_at(tables.port, database="nowhere")
    with pytest.raises(SinkStoppedError, match=r"nowhere.* does not exist"):
        tables.sink(KEYED, url=url).prepare()


def test_s89_a_right_that_is_missing_stops_it(tables: Tables) -> None:
    with pytest.raises(SinkStoppedError, match="permission denied"):
        tables.sink(KEYED, table="pg_catalog.orders").prepare()


def test_s89_a_schema_that_is_not_there_stops_it(tables: Tables) -> None:
    with pytest.raises(SinkStoppedError, match=r"nowhere.* does not exist"):
        tables.sink(KEYED, table="nowhere.orders").prepare()


def test_s89_a_server_that_is_away_or_starting_passes(postgres: Server, tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0)
    postgres.kill()
    with pytest.raises(SinkError, match="refused") as told:
        opened(stand)
    assert not isinstance(told.value, SinkStoppedError)
    postgres.spawn()
    sink, progress = rises(stand)
    assert progress == Progress(0, 1)
    sink.deliver(1, 1, changes(1, 0))
    assert has(stand, expected(0, 1))


def test_s89_too_many_connections_pass(postgres: Server, tables: Tables) -> None:
    stand = tables.stand(("id",))
    founded(stand, 0).close()
    with ExitStack() as held:
        with suppress(psycopg.OperationalError):
            for _ in range(CONNECTIONS):
                held.enter_context(closing(tables.login()))
        with pytest.raises(SinkError, match=r"too many|slots") as told:
            opened(stand)
        assert not isinstance(told.value, SinkStoppedError)
    founded(stand, 1)
    assert has(stand, expected(0, 1))


def test_s89_a_session_that_an_administrator_ends_passes(tables: Tables) -> None:
    stand = tables.stand(("id",))

    def step(name: str) -> None:
        if name == "insert":
            with tables.server.superuser() as login:
                login.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'strandline %'"
                )

    founded(stand, 0)
    sink = tables.sink(KEYED, step)
    sink.prepare()
    sink.progress()
    assert fails(sink, 1)
    founded(stand, 1)
    assert has(stand, expected(0, 1))


# ---- options


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "postgresql://h/d"}, "needs the option table"),
        ({"table": "t"}, "needs the option url"),
        ({"url": "postgresql://h/d", "table": "a.b.c"}, "schema.name"),
        ({"url": "postgresql://h/d", "table": "x" * 64}, "63 bytes"),
        ({"url": "postgresql://h/d", "table": "t", "key": "nope"}, "key has 'nope'"),
        ({"url": "postgresql://h/d", "table": "t", "create": "maybe"}, "create is 'maybe'"),
        ({"url": "postgresql://h/d", "table": "t", "existing": "drop"}, "refuse or replace"),
        ({"url": "postgresql://h/d", "table": "t", "mode": "append"}, "mode"),
        ({"url": "postgresql://h/d", "table": "t", "timeoutMs": "0"}, "timeoutMs is '0'"),
        ({"url": "postgresql://u:sesame@h/d", "table": "t"}, "holds a password"),
        ({"url": "postgresql://u@h/d?password=sesame", "table": "t"}, "holds a password"),
        ({"url": "postgresql://u@h/d?service=sesame", "table": "t"}, "parameter 'service'"),
        ({"url": "postgresql://u:sesame@h:nope/d", "table": "t"}, "no address|holds a password"),
        ({"url": "host=h user=u sesame", "table": "t"}, "no address"),
    ],
)
def test_options_that_are_wrong_are_refused_by_name(options: dict[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as told:
        open_sink(options, WHAT, ports())
    assert "sesame" not in str(told.value).replace("'service'", "")


def test_an_address_that_is_a_reference_may_hold_its_password(tables: Tables) -> None:
    secret = tables.server.url.replace("@", f":{PASSWORD}@")
    options = {"url": "env:TARGET", "table": f"{tables.schema}.orders"}
    sink = open_sink(options, KEYED, ports(secret))
    sink.prepare()
    assert sink.progress() is None
    sink.close()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("strandline.connectors.postgres")]:
        if name.rpartition("_")[2] in {"progress", "session", "table"}:
            monkeypatch.delitem(sys.modules, name)
            monkeypatch.delattr("strandline.connectors." + name.rpartition(".")[2])
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(NotInstalledError, match=r"strandline\[postgres\]"):
        open_sink({"url": "postgresql://h/d", "table": "t"}, WHAT, ports())
