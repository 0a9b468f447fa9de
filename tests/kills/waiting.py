"""How long a process waited for a processor, while others had it.

A promise in seconds is about a replica, and not about a machine on which it does not get a turn:
what it waited for a turn is known to the kernel, and is taken off.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class Waiting:
    """What one process waits from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = _waited(pid)

    def seconds(self) -> float:
        """Of the thread that waited longest; 0 where the kernel does not say."""
        now = _waited(self._pid)
        return max((now[each] - self._before.get(each, 0) for each in now), default=0) / 1e9


def _waited(pid: int) -> dict[str, int]:
    """By thread, how many ns it was ready to run and did not."""
    found = {}
    for each in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            found[each.parent.name] = int(each.read_text().split()[1])
    return found
