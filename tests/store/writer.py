"""A process that is in the middle of a write, for as long as a test wants."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.store.holder import Holder, holder_of
from strandline.system import SystemTasks

HOLDS = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def somebody_writes(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-c", HOLDS, str(path)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def until_stopped(path: Path) -> Holder:
    while (found := holder_of(path)) is None or not found.stopped:
        SystemTasks().sleep(5)
    return found
