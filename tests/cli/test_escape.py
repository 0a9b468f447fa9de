"""Whatever a row or a name holds, a terminal only ever shows it (X21)."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math

import pytest
from hypothesis import given, strategies as st

from strandline.cli.escape import cell, plain, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("größer, 大きい, 😀", "größer, 大きい, 😀"),
        ("back\\slash", "back\\slash"),
        ("a\tb\nc\rd", "a\\tb\\nc\\rd"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("pay\u202e001", "pay\\u202e001"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("line\u2028end", "line\\u2028end"),
        ("\ud800", "\\ud800"),
        ("\x00\x7f", "\\x00\\x7f"),
    ],
)
def test_what_can_not_be_seen_is_shown_as_its_escape(text, shown):
    assert visible(text) == shown


@given(st.text(st.characters(codec=None)))
def test_no_text_leaves_a_character_that_a_terminal_obeys(text):
    shown = visible(text)
    assert shown.isprintable() or all(c.isprintable() or c.isspace() for c in shown)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    shown.encode("utf-8")


def test_a_long_text_is_cut_before_it_is_escaped():
    assert visible("\x1b" * 10, limit=3) == "\\x1b\\x1b…"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (b"\x00\xff", "0x00ff"),
        (dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-01-02 03:04:00+00:00"),
        ([1, None], "[1, None]"),
        ("x" * 100, "x" * 9 + "…"),
    ],
)
def test_a_value_has_one_text(value, text):
    assert cell(value, 10 if value == "x" * 100 else None) == text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (1.5, 1.5),
        (b"\x01", "01"),
        (decimal.Decimal("1.10"), "1.10"),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.timedelta(seconds=1), "0:00:01"),
        ({"a": (b"\x01", None)}, {"a": ["01", None]}),
    ],
)
def test_every_value_can_be_said_in_json(value, said):
    assert plain(value) == said
    json.dumps(plain(value), allow_nan=False)
