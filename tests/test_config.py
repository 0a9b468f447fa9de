"""Tests of settings from the environment."""

from __future__ import annotations

import pytest

from strandline.config import Config, from_environment
from strandline.errors import UsageError


def test_an_empty_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_LEASE_MS", raising=False)
    monkeypatch.delenv("STRANDLINE_UPKEEP", raising=False)
    assert from_environment() == Config()


def test_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LEASE_MS", "2000")
    monkeypatch.setenv("STRANDLINE_UPKEEP", "off")
    assert from_environment() == Config(lease_ms=2000, upkeep=False)


@pytest.mark.parametrize(
    ("name", "text"),
    [("STRANDLINE_LEASE_MS", "soon"), ("STRANDLINE_LEASE_MS", "5"), ("STRANDLINE_UPKEEP", "no")],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match=name):
        from_environment()
