"""The functions of Spark that are allowed, and why others are not."""

from __future__ import annotations

import pytest

from strandline.views import functions


def test_no_list_allows_what_another_one_refuses():
    assert not functions.LISTED & functions.REASONS.keys()
    assert not functions.LISTED & functions.QUERY_ONLY
    assert not functions.QUERY_ONLY - functions.REASONS.keys()


def test_names_are_in_lower_case():
    for name in functions.LISTED | functions.REASONS.keys():
        assert name == name.casefold()


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("reflect", "run code"),
        ("CURRENT_USER", "session"),
        ("rand", "computed again"),
        ("first", "order of the rows"),
        ("stddev", "floats"),
        ("localtime", "BEGIN"),
        ("frobnicate", "not on the list"),
    ],
)
def test_a_refusal_has_a_reason(name, phrase):
    assert phrase in functions.refusal(name)
