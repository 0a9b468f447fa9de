"""Text to tokens and trees and back."""

from __future__ import annotations

import pytest

from strandline.views.sqltext import TEXT_MAX, line_of, parse_query, rewritten, tokenize, write
from strandline.views.troubles import Refused


def query(text):
    return parse_query(tokenize(text), text)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("select a from t", "SELECT `a` FROM `t`"),
        ("select/*x*/a--y\nfrom t", "SELECT `a` FROM `t`"),
        ("select `a``b` from t", "SELECT `a``b` FROM `t`"),
        (r"select 'it\'s' as x from t", r"SELECT 'it\'s' AS `x` FROM `t`"),
        (r"select 'a\\b\n' as x from t", r"SELECT 'a\\b\n' AS `x` FROM `t`"),
        ("select 3.25BD as x from t", "SELECT CAST('3.25' AS DECIMAL(3, 2)) AS `x` FROM `t`"),
    ],
)
def test_there_is_one_way_to_write_a_query(text, written):
    tree, found = rewritten(query(text))
    assert found == written
    assert rewritten(tree)[1] == written


@pytest.mark.parametrize(
    ("text", "phrase", "line"),
    [
        ("SELECT\n'a", "has no end", 2),
        ("SELECT a\n\x00", "NUL", 2),
        ("SELECT\n'a' 'b'", "side by side", 2),
        ("SELECT\n\n'\\x41'", "an escape", 3),
        ("SELECT a\nFROM t WHERE", "can't be read", 2),
        ("SELECT" + "(" * 100, "nested too deeply", 1),
        ("\nTABLE t", "starts no query", 2),
        ("SELECT /*+ x */ a", "a hint", 1),
        ("a" * (TEXT_MAX + 1), "characters", 1),
    ],
)
def test_what_cant_be_read_is_refused_with_its_line(text, phrase, line):
    with pytest.raises(Refused, match=phrase) as refused:
        query(text)
    assert refused.value.line == line


@pytest.mark.parametrize(
    "text", ["SELECT '${x}' AS a", "SELECT 1 AS `${x}`", "SELECT '$\\u007Bx' AS a"]
)
def test_nothing_is_written_that_spark_would_replace(text):
    with pytest.raises(Refused, match="substitution"):
        write(query(text))


def test_a_node_is_on_the_line_of_the_nearest_name():
    tree = query("SELECT\na,\n1 +\nb FROM t")
    assert [line_of(each) for each in tree.expressions] == [2, 3]
