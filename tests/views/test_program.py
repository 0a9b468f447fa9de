"""A checked program: the same from SQL and from Python."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import ProgramError
from strandline.views.declared import Sink, Table, ViewQuery
from strandline.views.parse import parse
from strandline.views.program import Program

SQL = """
CREATE TABLE orders (id BIGINT, amount DECIMAL(12, 2), note STRING, PRIMARY KEY (id))
  USING files OPTIONS (path 'in', format 'json', sequenceBy 'id');
CREATE MATERIALIZED VIEW large AS SELECT id, amount FROM orders WHERE amount > 100;
CREATE MATERIALIZED VIEW total REFRESH FULL AS SELECT SUM(amount) AS total FROM large;
CREATE SINK out FROM total USING files OPTIONS (path 'out');
"""


def built(**changes):
    columns = pa.schema(
        [("id", pa.int64()), ("amount", pa.decimal128(12, 2)), ("note", pa.string())]
    )
    options = {"format": "json", "path": "in"}
    return Program.of(
        [Table("orders", columns, "files", ("id",), options, sequence_by=("id",), **changes)],
        [
            ViewQuery("total", "select sum(AMOUNT) as total from Large", refresh_full=True),
            ViewQuery("large", "SELECT id, amount FROM orders WHERE amount > 100"),
        ],
        [Sink("out", "TOTAL", "files", {"path": "out"})],
    )


def test_python_and_sql_give_the_same_linear_program():
    sql, python = parse(SQL), built()
    assert python.tables == sql.tables
    assert python.view("large") == sql.view("large")
    assert python.sinks == sql.sinks


def test_python_and_sql_give_the_same_hash():
    same = SQL.replace(
        "SUM(amount) AS total FROM large", "sum(AMOUNT) as total from LARGE as Large"
    )
    assert built().hash == parse(same).hash


def test_the_hash_has_no_opinion_on_formatting_order_and_settings():
    first = parse(SQL).hash
    statements = [each for each in SQL.split(";") if each.strip()]
    assert parse(";".join(reversed(statements))).hash == first
    assert parse("-- a comment\n" + SQL.replace(" ", "\n "), {"retain": "1"}).hash == first
    lowered = SQL.replace("SELECT", "select").replace("CREATE", "create").replace("FROM", "From")
    assert parse(lowered).hash == first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BIGINT", "INT"),
        ("note STRING", "note STRING NOT NULL"),
        ("'in'", "'elsewhere'"),
        ("> 100", "> 101"),
        ("sequenceBy 'id'", "sequenceBy 'note'"),
        ("format 'json'", "format 'json', onError 'fail'"),
        ("SINK out", "SINK away"),
        ("FROM total", "FROM large"),
    ],
)
def test_the_hash_changes_with_the_meaning(old, new):
    assert parse(SQL.replace(old, new)).hash != parse(SQL).hash


def test_collections_come_after_what_they_read():
    program = built()
    assert program.collections == ("orders", "large", "total")
    assert program.readers("orders") == ("large",)
    assert program.table("ORDERS") is program.tables[0]
    assert program.view("nowhere") is None


def test_a_program_from_python_is_checked_as_well():
    with pytest.raises(ProgramError, match="no connector 'carrier'"):
        Program.of([Table("t", pa.schema([("k", pa.int64())]), "carrier")])
    with pytest.raises(ProgramError, match="onError 'shrug'"):
        built(on_error="shrug")
