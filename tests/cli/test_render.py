"""Numbers and spans read as people read them, and tables obey no text."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from strandline.cli.render import (
    Column,
    counted,
    frontier,
    number,
    pairs,
    shown,
    signed,
    size,
    span,
    table,
)


def printed(renderable, width=200):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (100_000, "100 kB"),
        (1_500_000_000, "1.5 GB"),
        (10**19, "10000 PB"),
        (None, ""),
    ],
)
def test_a_size_has_a_unit_that_fits(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0 s"), (9.94, "9.9 s"), (119, "119 s"), (120, "2.0 min"), (86_400, "24.0 h")],
)
def test_a_span_has_a_unit_that_fits(seconds, text):
    assert span(seconds) == text


def test_small_words():
    assert [signed(3), signed(-2000), signed(0), signed(None)] == ["+3", "-2,000", "0", "0"]
    assert [frontier(7), frontier(None)] == ["{7}", "{}"]
    assert [counted(1, "part"), counted(2, "part"), counted(0, "batch", "batches")] == [
        "1 part",
        "2 parts",
        "0 batches",
    ]
    assert number(True) == "1"


def test_markup_and_control_sequences_in_text_are_shown_not_obeyed():
    text = "[red]x[/red]\x1b[31m:smile:"
    for renderable in (
        table([Column("[bold]c")], [[text]]),
        pairs([("[bold]c", text)]),
    ):
        out = printed(renderable)
        assert "[red]x[/red]\\x1b[31m:smile:" in out
        assert "[bold]c" in out
        assert "\x1b" not in out


def test_raw_text_is_left_alone():
    assert shown("\x1b[31m", raw=True).plain == "\x1b[31m"


def test_a_column_that_folds_keeps_its_neighbours_whole():
    made = table([Column("name", fold=True), Column("n", right=True)], [["x" * 30, "123456789"]])
    out = printed(made, width=25)
    assert "123456789" in out
    assert out.count("x") == 30
