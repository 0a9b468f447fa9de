"""Finds the Java that Spark would run, before Spark does: its own failure names no remedy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from strandline.config import java_home
from strandline.errors import NotInstalledError
from strandline.spark.runtime import Java, java_trouble

_PATIENCE_S = 60


def find_java() -> Java:
    """Look where Spark's own launcher looks, in its order; nothing is judged here."""
    home = java_home()
    program = shutil.which("java") if home is None else shutil.which(str(Path(home, "bin", "java")))
    return Java(home, program, "" if program is None else _ask(program))


def require_java() -> None:
    """Stop with what to do unless there is a Java that Spark can run with."""
    if trouble := java_trouble(find_java()):
        raise NotInstalledError(trouble)


def _ask(program: str) -> str:
    try:
        answer = subprocess.run(  # noqa: S603 - the program is Spark's own choice
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode("utf-8", "replace")
