"""What is wrong with a program, by line, with what to do about it."""

from __future__ import annotations

import pytest

from strandline.errors import ProgramError
from strandline.views.troubles import SHOWN_MAX, Refused, Troubles, named


def test_nothing_is_raised_if_nothing_is_wrong():
    assert Troubles().raise_any() is None


def test_troubles_are_listed_by_line_each_once():
    troubles = Troubles()
    troubles.add(7, "b", "fix b")
    troubles.add(2, "a", "fix a")
    troubles.add(7, "b", "fix b")
    with pytest.raises(ProgramError) as raised:
        troubles.raise_any()
    assert str(raised.value) == "the program has 2 errors:\n  line 2: a: fix a\n  line 7: b: fix b"
    assert raised.value.troubles == ((2, "a", "fix a"), (7, "b", "fix b"))


def test_a_refusal_without_a_line_gets_that_of_its_statement():
    troubles = Troubles()
    troubles.take(Refused("a", "fix a"), line=3)
    troubles.take(Refused("b", "fix b", line=4), line=3)
    assert [each.line for each in troubles.found] == [3, 4]


def test_a_program_from_python_has_no_lines():
    troubles = Troubles()
    troubles.add(0, "a", "fix a")
    with pytest.raises(ProgramError, match=r"has 1 error:\n  a: fix a$"):
        troubles.raise_any()


def test_a_flood_of_troubles_is_cut_and_counted():
    troubles = Troubles()
    for line in range(1, SHOWN_MAX + 11):
        troubles.add(line, "a", "fix a")
    with pytest.raises(ProgramError, match="and 10 more") as raised:
        troubles.raise_any()
    assert len(raised.value.troubles) == SHOWN_MAX + 10


def test_names_are_printed_in_one_short_line():
    assert named("a\n\x1b[31m") == "'a\\n\\x1b[31m'"
    assert len(named("x" * 1000)) <= 60
