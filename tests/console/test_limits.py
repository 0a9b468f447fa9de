"""What is sent has limits, in every direction."""

from __future__ import annotations

import pytest

from strandline.console import limits
from strandline.errors import TooLargeError


def test_a_body_ends_at_its_limit():
    body = limits.Body(10)
    body.add(b"12345")
    body.add(b"67890")
    assert body.whole() == b"1234567890"
    with pytest.raises(TooLargeError, match="more than 10 bytes"):
        body.add(b"1")


@pytest.mark.parametrize("length", ["11", "99999999999999999999999", "-1", "1e3", "x"])
def test_a_header_that_says_too_much_is_refused_unread(length):
    with pytest.raises(TooLargeError):
        limits.declared(length, 10)


@pytest.mark.parametrize("length", [None, "0", "10"])
def test_a_header_that_says_enough_is_taken(length):
    limits.declared(length, 10)


def test_rows_are_lines_and_empty_lines_are_none():
    assert limits.lines_of(b'{"a": 1}\n\n  \n{"a": 2}\r\n') == [b'{"a": 1}', b'{"a": 2}\r']


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"1\n" * (limits.LINES_MAX + 1), "rows at once"),
        (b"1\n" + b"x" * (limits.LINE_MAX + 1), "row 2 has"),
        (b"[" * 65 + b"]" * 65, "row 1 is nested"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested"),
    ],
    ids=["many", "long", "lists", "objects"],
)
def test_too_many_too_long_and_too_deep_are_named(body, words):
    with pytest.raises(TooLargeError, match=words):
        limits.lines_of(body)


@pytest.mark.parametrize(
    "line",
    [b"[" * 64 + b"]" * 64, b'"' + b"[" * 99 + b'"', b'"\\"' + b"{" * 99 + b'"', b"[1]," * 99],
)
def test_brackets_in_text_and_beside_each_other_are_not_deep(line):
    assert not limits.is_deep(line)
