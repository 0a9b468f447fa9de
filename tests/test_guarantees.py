"""Every promise names a test, and every test that is named exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


def test_every_promise_names_a_test() -> None:
    rows = [
        line
        for line in PAGE.splitlines()
        if line.startswith("| ") and not re.match(r"\| (---|promise)", line)
    ]
    assert rows
    for row in rows:
        assert "`tests/" in row, f"name the test that backs: {row}"


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text()
    assert not name or f"def {name}(" in text, f"{path} has no test {name}"
