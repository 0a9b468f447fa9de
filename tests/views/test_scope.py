"""Which collections a query reads, and what its columns are called."""

from __future__ import annotations

import pytest

from strandline.views.scope import check_tables, output_names
from strandline.views.sqltext import parse_query, tokenize
from strandline.views.troubles import Refused

COLUMNS = {"T": ("a", "b"), "u": ("b", "c")}


def query(text):
    return parse_query(tokenize(text), text)


@pytest.mark.parametrize(
    ("text", "reads", "names"),
    [
        ("SELECT * FROM t", ("T",), ("a", "b")),
        ("SELECT u.*, a FROM t JOIN u ON a = c", ("T", "u"), ("b", "c", "a")),
        ("SELECT * EXCEPT (A) FROM t", ("T",), ("b",)),
        ("SELECT a AS x, b FROM t UNION ALL SELECT * FROM u", ("T", "u"), ("x", "b")),
        ("WITH w AS (SELECT c FROM u) SELECT * FROM w", ("u",), ("c",)),
        ("WITH w (z) AS (SELECT c FROM u) SELECT * FROM w", ("u",), ("z",)),
        ("SELECT * FROM (SELECT a FROM t) AS s (k)", ("T",), ("k",)),
        ("SELECT * FROM t LEFT SEMI JOIN u ON a = c", ("T", "u"), ("a", "b")),
        ("SELECT * FROM t LATERAL VIEW EXPLODE(ARRAY(1)) x AS e", ("T",), ("a", "b", "e")),
        ("SELECT a FROM t WHERE a IN (SELECT c FROM u)", ("T", "u"), ("a",)),
        ("SELECT s.x.y FROM t", ("T",), ("y",)),
    ],
)
def test_reads_and_names(text, reads, names):
    assert check_tables(query(text), COLUMNS) == reads
    assert output_names(query(text), COLUMNS) == names


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("SELECT * FROM x", "no table or view 'x'"),
        ("SELECT * FROM d.t", "by their plain names"),
        ("SELECT * FROM f(1)", "by their plain names"),
        ("WITH t AS (SELECT 1 AS a) SELECT * FROM t", "the name is taken"),
        ("WITH w AS (SELECT * FROM w) SELECT * FROM w", "read before it is defined"),
        ("SELECT * FROM (WITH w AS (SELECT a FROM t) SELECT * FROM w)", "WITH inside"),
        ("SELECT a + 1 FROM t", "has no name"),
        ("SELECT x.* FROM t", "no table 'x'"),
        ("SELECT * FROM t JOIN u USING (b)", "over JOIN"),
        ("SELECT a FROM t UNION ALL SELECT * FROM u", "1 columns and the other 2"),
        ("SELECT * FROM t AS x (k)", "names 1 columns of 2"),
    ],
)
def test_what_has_no_names_or_collections_is_refused(text, phrase):
    with pytest.raises(Refused, match=phrase):
        assert check_tables(query(text), COLUMNS) == output_names(query(text), COLUMNS)
