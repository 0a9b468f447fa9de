"""Tests of settings from the environment."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from strandline.config import (
    Config,
    cache_folder,
    from_environment,
    java_home,
    name_worker_python,
    prefer_python_of,
    resolve_secret,
    spark_defaults,
    spark_is_chosen,
)
from strandline.errors import UsageError


def test_an_empty_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEASE_MS", "UPKEEP", "CACHE_DIR", "CACHE_BYTES"):
        monkeypatch.delenv(f"STRANDLINE_{name}", raising=False)
    assert from_environment() == Config()


def test_values_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LEASE_MS", "2000")
    monkeypatch.setenv("STRANDLINE_UPKEEP", "off")
    monkeypatch.setenv("STRANDLINE_CACHE_DIR", "cache")
    monkeypatch.setenv("STRANDLINE_CACHE_BYTES", "0")
    assert from_environment() == Config(
        lease_ms=2000, upkeep=False, cache_dir="cache", cache_bytes=0
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("STRANDLINE_LEASE_MS", "soon"),
        ("STRANDLINE_LEASE_MS", "5"),
        ("STRANDLINE_UPKEEP", "no"),
        ("STRANDLINE_CACHE_BYTES", "8G"),
        ("STRANDLINE_CACHE_BYTES", "-1"),
        ("STRANDLINE_CACHE_BYTES", "²"),
    ],
)
def test_a_bad_value_is_named(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError, match=name):
        from_environment()


@pytest.mark.parametrize(
    ("cache_dir", "local", "expected"),
    [
        ("/fast", "/a", "/fast"),
        (None, "/a,/b", "/a"),
        (None, "/var/spark/blockmgr-12-34,/b", "/var/spark"),
        (None, "", None),
        (None, "not/absolute", None),
    ],
)
def test_blocks_lie_where_spark_may_fill_the_disk(
    monkeypatch: pytest.MonkeyPatch, cache_dir: str | None, local: str, expected: str | None
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", local)
    base = Path(expected or tempfile.gettempdir())
    assert cache_folder(cache_dir) == base / f"strandline-cache-{os.getuid()}"


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


def test_python3_is_this_interpreter_unless_the_user_named_one(monkeypatch, tmp_path) -> None:
    (tmp_path / "python3").touch()
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYSPARK_PYTHON", "theirs")
    prefer_python_of(str(tmp_path / "python"))
    assert (os.environ["PATH"], os.environ["PYSPARK_PYTHON"]) == ("/usr/bin", "theirs")
    monkeypatch.delenv("PYSPARK_PYTHON")
    prefer_python_of("/nowhere/python")
    assert os.environ["PATH"] == "/usr/bin"
    for _ in range(2):
        prefer_python_of(str(tmp_path / "python"))
        assert os.environ["PATH"] == f"{tmp_path}{os.pathsep}/usr/bin"


def test_what_a_session_of_this_machine_was_told_is_not_told_to_a_cluster(monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    name_worker_python("ours")
    prefer_python_of("/nowhere/python")
    assert "PYSPARK_PYTHON" not in os.environ


def test_x12_hosts_that_may_be_reached_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_ALLOW_HOSTS", raising=False)
    assert from_environment().hosts is None
    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", "")
    assert from_environment().hosts == ()
    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", "a.example.com:1,10.0.0.0/8")
    assert [each.host for each in from_environment().hosts] == ["a.example.com", "10.0.0.0/8"]
    monkeypatch.setenv("STRANDLINE_ALLOW_HOSTS", "*")
    with pytest.raises(UsageError, match="STRANDLINE_ALLOW_HOSTS"):
        from_environment()


def test_s90_secrets_come_from_the_environment_or_from_files(monkeypatch, tmp_path):
    monkeypatch.setenv("A_PASSWORD", "from the environment")
    (tmp_path / "secret").write_text("from a file\n")
    assert resolve_secret("env:A_PASSWORD") == "from the environment"
    assert resolve_secret(f"file:{tmp_path}/secret") == "from a file"
    assert resolve_secret("plain") == "plain"
    for missing in ("env:NOT_SET_ANYWHERE", f"file:{tmp_path}/none", f"file:{tmp_path}"):
        with pytest.raises(UsageError, match="which holds a secret"):
            resolve_secret(missing)


def test_the_settings_of_sparks_launchers_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert spark_defaults() is None
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert spark_defaults() is None
    for folder in ("conf", "mine"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "spark-defaults.conf").write_text(folder)
    assert spark_defaults() == "conf"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "mine"))
    assert spark_defaults() == "mine"
