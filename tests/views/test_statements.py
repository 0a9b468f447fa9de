"""One CREATE statement at a time; test_parse has the table of what is refused."""

from __future__ import annotations

import pytest

from strandline.views.sqltext import tokenize
from strandline.views.statements import meant_name, read_statement


def read(text):
    return read_statement(tokenize(text), text)


def test_names_of_columns_may_be_anything_in_quotes_and_keys_have_no_case():
    table = read("CREATE TABLE t (`a ``b` INT, Id INT, PRIMARY KEY (ID)) USING http")
    assert table.columns.names == ["a `b", "Id"]
    assert table.key == ("Id",)


def test_a_key_may_stand_at_its_column():
    assert read("create table t (a int not null primary key, b int) using http").key == ("a",)


def test_options_may_be_quoted_and_end_with_a_comma():
    table = read("CREATE TABLE t (a INT) USING HTTP OPTIONS ('x.y' = '1', z \"2\",)")
    assert (table.connector, table.options) == ("http", {"x.y": "1", "z": "2"})


def test_the_query_of_a_view_keeps_its_lines():
    view = read("CREATE MATERIALIZED VIEW v REFRESH FULL AS\n\nSELECT a -- why\nFROM t")
    assert view.sql == "\n\nSELECT a -- why\nFROM t"
    assert (view.refresh_full, view.line) == (True, 1)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("CREATE TABLE t (", ["t"]),
        ("CREATE MATERIALIZED VIEW v SELECT", ["v"]),
        ("CREATE SINK s", []),
        ("DROP TABLE t", []),
        ("CREATE TABLE", []),
    ],
)
def test_what_a_broken_statement_meant_to_declare_is_known(text, name):
    assert meant_name(tokenize(text)) == name
