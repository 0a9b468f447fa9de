"""Java is found where Spark's launcher looks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.errors import NotInstalledError
from strandline.spark.java import find_java, require_java


def pretend(folder: Path, script: str) -> Path:
    """A program `java` that does what the script says."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def test_java_home_goes_before_the_path(monkeypatch, tmp_path):
    on_path = pretend(tmp_path / "path", """echo 'openjdk version "11"' >&2""")
    at_home = pretend(tmp_path / "home", """echo 'openjdk version "21.0.1"' >&2""")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    found = find_java()
    assert (found.home, found.program) == (str(tmp_path / "home"), str(at_home))
    require_java()
    monkeypatch.delenv("JAVA_HOME")
    assert find_java().program == str(on_path)
    with pytest.raises(NotInstalledError, match="is Java 11"):
        require_java()


def test_a_machine_without_java_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(NotInstalledError, match="apt-get install openjdk-17-jre-headless"):
        require_java()


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$", "printf '\\377\\376' >&2"])
def test_a_program_that_says_nothing_useful_is_refused_by_name(monkeypatch, tmp_path, script):
    program = pretend(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotInstalledError, match=f"{program} does not say which Java it is"):
        require_java()


def test_a_program_that_cannot_be_run_is_refused(monkeypatch, tmp_path):
    pretend(tmp_path, "").write_bytes(b"\x7fELF and nothing more")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotInstalledError):
        require_java()
