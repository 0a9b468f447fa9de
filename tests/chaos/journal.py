"""What one process of a chaos run did and was told, written line by line as it happens.

A line is a JSON list: what it is about, then its facts. A line that a kill cut off is no line.
Whoever writes says first what it is about to do, and afterwards what came of it; both lines are
synced, so that an acknowledgement that anybody saw is in the journal for good.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

Line = list


class Journal:
    """Written by one process."""

    def __init__(self, path: Path) -> None:
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)

    def note(self, what: str, *facts: object) -> None:
        os.write(self._file, json.dumps([what, *facts]).encode() + b"\n")

    def swear(self, what: str, *facts: object) -> None:
        """The same, and not before it is on disk."""
        self.note(what, *facts)
        os.fdatasync(self._file)


class JournalReader:
    """Read while it is being written; each `read` gives what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> list[Line]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                found = file.read()
        except FileNotFoundError:
            return []
        whole = found[: found.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def now() -> int:
    """Nanoseconds by the machine's one clock that all processes share and that never jumps."""
    return time.monotonic_ns()
