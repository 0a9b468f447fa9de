"""The target table: refused before anything is written, or it holds every value exactly."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.postgres.server import Server
from tests.postgres.tables import Tables, tables_on

from strandline.connectors import postgres_table
from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import SinkError, SinkStoppedError
from strandline.testing.conformance_sink import CHANGES, WHAT, changes, expected, founded, has

KINDS = {
    "truth": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "small": (pa.uint16(), [0, 65_535]),
    "whole": (pa.int64(), [-(2**63), 2**63 - 1]),
    "huge": (pa.uint64(), [0, 2**64 - 1]),
    "half": (pa.float16(), [0.0999755859375, float("inf")]),
    "real": (pa.float32(), [0.10000000149011612, float("-inf")]),
    "double": (pa.float64(), [5e-324, float("nan")]),
    "money": (pa.decimal128(38, 10), [Decimal("0.0000000001"), Decimal("-1234567890.5")]),
    "thousands": (pa.decimal128(5, -3), [Decimal("12E+3"), Decimal(0)]),
    "words": (pa.string(), ["tab\t, line\n, \\. and \\N, é ☂ 𝄞", ""]),
    "lines": (pa.large_string(), ["\\.", "a\n\\.\nb\r\n"]),
    "bytes": (pa.binary(), [b"\x00\\x\xff", b""]),
    "fixed": (pa.binary(3), [b"abc", b"\x00\x00\x00"]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "hour": (pa.time64("us"), [dt.time(23, 59, 59, 999_999), dt.time(0)]),
    "local": (pa.timestamp("us"), [-999_999, -62_135_596_800_000_000]),
    "moment": (
        pa.timestamp("ms", "Europe/Berlin"),
        [dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)],
    ),
    "span": (pa.duration("us"), [dt.timedelta(days=-400, microseconds=1), dt.timedelta(0)]),
    "list": (pa.list_(pa.float64()), [[1.5, None, 1e300], []]),
    "struct": (
        pa.struct([("a", pa.decimal128(5, 2)), ("b", pa.list_(pa.string()))]),
        [{"a": Decimal("1.50"), "b": ["x", None]}, {"a": None, "b": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], []]),
}


@pytest.fixture
def tables(postgres: Server) -> Iterator[Tables]:
    with tables_on(postgres) as made:
        yield made


@pytest.mark.parametrize("key", ["id", ""])
def test_every_type_comes_back_exactly_and_goes_again(tables: Tables, key: str) -> None:
    columns = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in KINDS.items())])
    what = replace(WHAT, columns=columns)
    schema = pa.schema([*columns, CHANGES.field("_diff")])
    values = [pa.array([1, 2, 3])]
    values += [pa.array([*found, None], kind) for kind, found in KINDS.values()]
    rows = pa.RecordBatch.from_arrays([*values, pa.array([1, 1, 1])], schema=schema)
    sink = tables.sink(what, key=key)
    sink.prepare()
    sink.found(Progress(NOTHING_YET, 1))
    sink.deliver(0, 1, [rows])
    found = tables.sink(what, key=key).read_back()
    assert found is not None
    back = pa.Table.from_batches(found.rows, schema=schema).sort_by("id")
    for name in schema.names:
        assert str(back[name].to_pylist()) == str(rows[name].to_pylist()), name
    gone = rows.set_column(rows.num_columns - 1, schema.field("_diff"), pa.array([-1, -1, -1]))
    sink.deliver(1, 1, [gone])
    assert tables.rows() == []


@pytest.mark.parametrize(
    ("made", "reasons"),
    [
        ("CREATE TABLE {t} (id bigint PRIMARY KEY)", ["'name' (text) is missing"]),
        ('CREATE TABLE {t} (id bigint PRIMARY KEY, "Name" text)', ["'name' (text) is missing"]),
        (
            "CREATE TABLE {t} (id text PRIMARY KEY, name integer, due date NOT NULL)",
            [
                "'id' is text and would have to be bigint",
                "'name' is integer and would have to be text",
                "'due' may not be null",
            ],
        ),
        ("CREATE TABLE {t} (id bigint, name text)", ["no unique index is on 'id'"]),
        ("CREATE TABLE {t} (id bigint, name text, PRIMARY KEY (id, name))", ["no unique index"]),
        (
            "CREATE TABLE {t} (id bigint PRIMARY KEY, name varchar(10))",
            ["'name' is character varying(10)"],
        ),
        (
            "CREATE TABLE {t} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",
            ["'id' is generated"],
        ),
        ("CREATE VIEW {t} AS SELECT 1::bigint AS id, ''::text AS name", ["is no plain table"]),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(
    tables: Tables, made: str, reasons: list[str]
) -> None:
    tables.run(made)
    before = tables.rows()
    with pytest.raises(SinkStoppedError) as told:
        tables.sink(replace(WHAT, key=("id",))).prepare()
    for each in reasons:
        assert each in str(told.value)
    assert tables.rows() == before
    there = f"SELECT to_regclass('{tables.schema}.strandline_progress')"
    assert tables.run(there) == [(None,)]


def test_a_table_that_fits_is_used_as_it_is(tables: Tables) -> None:
    tables.run(
        "CREATE TABLE {t} (due date NOT NULL DEFAULT '2024-01-01', name varchar, note text,"
        " id bigint NOT NULL UNIQUE)"
    )
    stand = tables.stand(("id",))
    founded(stand, 0, 1)
    assert has(stand, expected(0, 1))
    tables.run("UPDATE {t} SET note = 'mine'")
    founded(stand, 2)
    assert has(stand, expected(0, 1, 2))


def test_a_table_that_is_not_there_is_made_only_if_it_may_be(tables: Tables) -> None:
    with pytest.raises(SinkStoppedError, match="there is no table"):
        tables.sink(WHAT, create="false").prepare()
    founded(tables.stand(create="true"))
    tables.sink(WHAT, create="false").prepare()
    assert tables.rows() == []


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "multiset"])
def test_many_changes_are_applied_by_the_same_way(tables: Tables, key: tuple[str, ...]) -> None:
    count = postgres_table.ANALYZED_FROM + 500
    stand = tables.stand(key)
    sink = founded(stand)
    sink.deliver(0, 1, [row for t in range(count) for row in changes(t)])
    gone = [{"id": n * 10, "name": "row 0", "_diff": -1} for n in range(count)]
    new = [{"id": n * 10, "name": "new", "_diff": 1} for n in range(0, count, 2)]
    sink.deliver(1, 1, [pa.RecordBatch.from_pylist([*gone, *new], CHANGES)])
    rows = tables.run("SELECT count(*), count(DISTINCT id) FROM {t} WHERE name = 'new'")
    assert rows == [(len(new), len(new))]
    assert tables.run("SELECT count(*) FROM {t}") == [(count + len(new),)]


def test_without_a_key_a_row_is_found_by_an_index_of_hashes(tables: Tables) -> None:
    sink = founded(tables.stand())
    sink.deliver(0, 1, [row for t in range(500) for row in changes(t)])
    tables.run("ANALYZE {t}")
    told = tables.run(
        "EXPLAIN SELECT ctid FROM {t} WHERE"
        " hash_record_extended(ROW(id, name), 0)"
        " = hash_record_extended(ROW(1::bigint, 'x'::text), 0)"
    )
    assert any("Index" in str(line) for line in told)


def sleepy(tables: Tables, event: str) -> None:
    """Every such statement on the table takes more than a second."""
    function = f"{tables.schema}.sleepy"
    with tables.login() as login:
        login.execute(
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(1.6); RETURN NULL; END'"
        )
    tables.run(f"CREATE TRIGGER s BEFORE {event} ON {{t}} EXECUTE FUNCTION {function}()")


def many(rows: int) -> list[pa.RecordBatch]:
    found = [{"id": 100 + n, "name": "x", "_diff": 1} for n in range(rows)]
    return [pa.RecordBatch.from_pylist(found, CHANGES)]


def test_a_statement_about_many_changes_may_take_longer(tables: Tables) -> None:
    stand = tables.stand(("id",), timeoutMs="800")
    sink = founded(stand, 0)
    sleepy(tables, "INSERT")
    sink.deliver(1, 1, many(2_000))
    with pytest.raises(SinkError, match="no answer for 0"):
        sink.deliver(2, 1, changes(2, 0))


def test_a_statement_that_may_read_a_large_table_may_take_longer(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = tables.stand(timeoutMs="800")
    sink = founded(stand, 0)
    sleepy(tables, "DELETE")
    with pytest.raises(SinkError, match="no answer for 0"):
        sink.deliver(1, 1, changes(1, 0))
    monkeypatch.setattr(postgres_table, "READ_BYTES_PER_MS", 1)
    founded(stand, 1)
    assert has(stand, expected(0, 1))
