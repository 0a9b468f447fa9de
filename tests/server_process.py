"""What the real servers of the tests have in common: one process on loopback, tied to ours.

It ends with the process that started it, by the kernel if need be. What it says goes to a file
beside its data, of which the end is told when it does not do as it should.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, Signals

LOOPBACK = "127.0.0.1"
# Gives up root before the program runs, and lets the kernel signal it when its parent dies,
# however that dies (PR_SET_PDEATHSIG): in this order, since the first undoes the second.
_TIED = """\
import ctypes, os, sys
last, user, group, *words = sys.argv[1:]
if int(user):
    os.setgroups([]); os.setgid(int(group)); os.setuid(int(user))
ctypes.CDLL(None).prctl(1, int(last))
os.execvp(words[0], words)
"""


class ServerError(RuntimeError):
    """A server did not do as it was told; what it said is part of the message."""


class ServerProcess:
    """The process of one server, which may be started again."""

    def __init__(self, what: str, folder: Path) -> None:
        """`what` it is called in errors; `folder` has to be there when it is started."""
        self._what = what
        self._said = folder / "said.log"
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        """Whether it was started and not yet ended by us."""
        return self._running is not None

    @property
    def pid(self) -> int:
        if self._running is None:
            raise ServerError(f"the {self._what} does not run")
        return self._running.pid

    def start(self, words: Sequence[str]) -> None:
        """Start it and return at once; it has a group of its own."""
        if self._running is not None:
            raise ServerError(f"the {self._what} runs already")
        with self._said.open("ab") as said:
            self._running = subprocess.Popen(
                words,
                cwd=self._said.parent,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, answers: Callable[[], bool], patience_s: float) -> None:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if self._running is None or self._running.poll() is not None:
                raise ServerError(f"the {self._what} ended at once: {self._last_words()}")
            if answers():
                return
            time.sleep(0.05)
        raise ServerError(
            f"no answer from the {self._what} in {patience_s} s: {self._last_words()}"
        )

    def wait(self, patience_s: float) -> None:
        """Until it has ended by itself, or not much longer than this."""
        if self._running is not None:
            with suppress(subprocess.TimeoutExpired):
                self._running.wait(patience_s)

    def kill(self) -> None:
        """`kill -9`, and nothing of it is left here."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()
            self._running = None

    def _last_words(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")[-4000:]


def tied(last: Signals = SIGKILL, user: int = 0, group: int = 0) -> list[str]:
    """What to put before a program that gets this signal when we die; 0 for our own user.

    Another user may not be let into the folder in which we are: give it one of its own.
    """
    return [sys.executable, "-c", _TIED, str(int(last)), str(user), str(group)]


def run(words: Sequence[str], folder: Path, what: str, patience_s: float) -> None:
    """Run a program in a folder to its end, which must be a good one."""
    done = subprocess.run(
        words,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=patience_s,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"{what} failed: {done.stdout.decode('utf-8', 'replace')}")


def free_ports(count: int, host: str = LOOPBACK) -> tuple[int, ...]:
    """Ports that nobody listens on; somebody may before we do."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind((host, 0))
        return tuple(each.getsockname()[1] for each in held)
    finally:
        for each in held:
            each.close()


def listens(port: int, host: str = LOOPBACK) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
