"""Tests of settings from the environment."""

from __future__ import annotations

import os

import pytest

from strandline.config import (
    Config,
    from_environment,
    java_home,
    name_worker_python,
    spark_is_chosen,
)
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


@pytest.mark.parametrize(("text", "home"), [(None, None), ("", None), ("/opt/java", "/opt/java")])
def test_an_empty_java_home_is_none(
    monkeypatch: pytest.MonkeyPatch, text: str | None, home: str | None
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    if text is not None:
        monkeypatch.setenv("JAVA_HOME", text)
    assert java_home() == home


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("SPARK_REMOTE", True),
        ("PYSPARK_GATEWAY_PORT", True),
        ("PYSPARK_SUBMIT_ARGS", True),
        ("SPARK_CONF_DIR", True),
        ("SPARK_HOME", False),
    ],
)
def test_a_launcher_of_spark_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, *, chosen: bool
) -> None:
    for each in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_REMOTE"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, "x")
    assert spark_is_chosen() == chosen


def test_an_interpreter_that_the_user_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "theirs")
    name_worker_python("ours")
    assert os.environ["PYSPARK_PYTHON"] == "theirs"
    monkeypatch.delenv("PYSPARK_PYTHON")
    name_worker_python("ours")
    assert os.environ["PYSPARK_PYTHON"] == "ours"
