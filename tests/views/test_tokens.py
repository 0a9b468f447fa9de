"""A cursor over the tokens of one statement."""

from __future__ import annotations

import pytest

from strandline.views.sqltext import tokenize
from strandline.views.tokens import Cursor
from strandline.views.troubles import Refused


def cursor(text):
    return Cursor(tokenize(text))


def test_words_are_taken_together_or_not_at_all():
    at = cursor("primary KEY not null")
    assert not at.accept("primary", "value")
    assert at.accept("PRIMARY", "KEY")
    assert not at.accept("not", "null", "really")
    assert at.accept("not", "null")
    assert at.ended()


def test_quoted_names_and_strings_are_no_words():
    assert not cursor("`table`").accept("table")
    assert not cursor("'table'").accept("table")
    assert cursor("`table`").name("a name") == "table"
    with pytest.raises(Refused, match="a word is missing before 'table'"):
        cursor("`table`").word("a word")


def test_dotted_keys_are_put_together():
    at = cursor("kafka.bootstrap.servers 'x' 'a.b' 'y'")
    assert [at.dotted("k"), at.text("v"), at.dotted("k"), at.text("v")] == [
        "kafka.bootstrap.servers",
        "x",
        "a.b",
        "y",
    ]


@pytest.mark.parametrize(
    ("text", "read", "phrase"),
    [
        ("a\n\n1", lambda at: (at.name("x"), at.name("a name")), "a name is missing before '1'"),
        ("a\n", lambda at: (at.name("x"), at.name("a name")), "a name is missing at the end"),
        ("a", lambda at: at.text("the path"), "the path as 'text' is missing"),
        ("a", lambda at: at.number(), "a whole number is missing"),
        ("a b", lambda at: (at.name("x"), at.end("the table")), "'b' after the table"),
        ("(", lambda at: at.expect(")"), r"\) is missing before '\('"),
    ],
)
def test_what_is_missing_is_named(text, read, phrase):
    with pytest.raises(Refused, match=phrase) as refused:
        read(cursor(text))
    assert refused.value.line == text.strip().count("\n") + 1


def test_a_number_of_any_length_is_a_number_out_of_range():
    assert cursor("12").number() == 12
    assert cursor("9" * 5000).number() == -1
