"""Who keeps everybody from writing to a SQLite file, as far as the kernel tells.

A process that is stopped (SIGSTOP, a debugger, a frozen container) while it holds the write lock
keeps it until it goes on or ends: a lock of a file can't be taken away. So whoever waits in vain
says who it is, and what to do. Linux lists the locks; elsewhere nobody is named. The file itself is
never opened for this: closing it again would drop the locks of this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from strandline.model.ids import printable

# Where SQLite locks the file `-shm` to write, with a write-ahead log: see its `os_unix.c`.
_WRITE_LOCK = 120
_LOCKS = Path("/proc/locks")
_STOPPED = {"T", "t"}


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds the write lock."""

    pid: int
    program: str
    stopped: bool

    def __str__(self) -> str:
        who = f"process {self.pid} ({self.program}) holds the write lock"
        if not self.stopped:
            return who
        return (
            f"{who} and is stopped: let it go on (kill -CONT {self.pid}), or end it "
            f"(kill -9 {self.pid})"
        )


def holder_of(path: Path) -> Holder | None:
    """Who holds the write lock of this file now; `None` if nobody does, or nobody can tell."""
    try:
        inode = Path(f"{path}-shm").stat().st_ino
        locks = _LOCKS.read_text("ascii")
    except OSError:
        return None
    pid = lock_holder(locks, inode)
    return None if pid is None else _described(pid)


def lock_holder(locks: str, inode: int) -> int | None:
    """The process that the kernel's list names for the write lock of that file.

    >>> lock_holder("1: POSIX  ADVISORY  WRITE 42 fe:00:77 120 120", 77)
    42
    """
    for line in locks.splitlines():
        match line.split():
            case [_, "POSIX", _, "WRITE", pid, place, first, last] if last.isdigit():
                mine = place.rpartition(":")[2] == str(inode)
                if mine and int(first) <= _WRITE_LOCK <= int(last) and int(pid) > 0:
                    return int(pid)
            case _:
                pass
    return None


def _described(pid: int) -> Holder | None:
    try:
        said = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        # It has ended, and its lock with it.
        return None
    name, _, facts = said.partition("(")[2].rpartition(")")
    return Holder(pid, printable(name), facts.split()[0] in _STOPPED)
