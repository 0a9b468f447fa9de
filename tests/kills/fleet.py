"""Replicas of one pipeline in processes of their own: started, killed, stopped, let go on.

A replica is `strandline run` on a store and a program. With the reference engine most are forked
by a nursery, which takes a twentieth of a second, and some start from nothing, each with another
seed of Python's hashes; with Spark all of them do, each with another number of cores.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LEASE_MS = 2_000
TOKEN = "a-token-for-tests-only"


def patience_s(engine: str) -> float:
    """Of the judges, for what is not promised: the machine may be busy, and Spark starts slowly."""
    return 100.0 if engine.startswith("arrow") else 300.0


@dataclass(slots=True)
class Life:
    """One process from its start to its end."""

    number: int
    engine: str
    pid: int
    out: Path
    handle: int | None
    """The kernel's handle on the process, which no later process of that number gets."""
    child: subprocess.Popen[bytes] | None = None
    killed: bool = False
    _read: int = 0
    _events: list[dict[str, Any]] = field(default_factory=list)
    _left: list[int] = field(default_factory=list)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def alive(self) -> bool:
        if self.handle is None:
            return False
        if not select.select([self.handle], [], [], 0)[0]:
            return True
        self._bury()
        return False

    def signal(self, number: signal.Signals, *, group: bool = True) -> None:
        """Signal the process, or all that it has started; nobody, once it is gone."""
        if self.alive():
            with suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(self.pid, number)

    def kill(self, *, group: bool = True) -> None:
        """`kill -9`; returns when it is gone. Alone, it leaves what it started to end by itself."""
        self.killed = True
        if not group:
            self._left = [each for each in map(_opened, _members(self.pid)) if each is not None]
        self.signal(signal.SIGKILL, group=group)
        if self.handle is not None:
            select.select([self.handle], [], [])
            self._bury()

    def events(self) -> list[dict[str, Any]]:
        """What it said so far, one document for each line. May be called from any thread."""
        with self._turn:
            if self.out.exists():
                with self.out.open("rb") as file:
                    file.seek(self._read)
                    whole = file.read().rpartition(b"\n")[0]
                self._read += len(whole) + 1 if whole else 0
                lines = [line for line in whole.splitlines() if line[:1] == b"{"]
                self._events += [json.loads(line) for line in lines]
            return list(self._events)

    def ran(self) -> bool:
        """Whether it has said that it runs, or serves."""
        return any(
            each.get("state") == "running" or each["kind"] == "serving" for each in self.events()
        )

    def url(self) -> str | None:
        """Where it serves, once it does."""
        return next((each["url"] for each in self.events() if each["kind"] == "serving"), None)

    def ended_well(self) -> bool:
        """Whether it stopped because it was told to, and without an error."""
        return self.events()[-1:] == [{"kind": "exit", "code": 0}]

    def last_words(self) -> str:
        errors = Path(f"{self.out}.errors")
        said = errors.read_text(errors="replace")[-3000:] if errors.exists() else ""
        return f"replica {self.number}: {self.events()[-2:]}\n{said}"

    def sweep(self) -> None:
        """End what has outlived it, by handles that mean no other process."""
        for each in self._left:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(each, signal.SIGKILL)
            os.close(each)
        self._left = []

    def _bury(self) -> None:
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None
        if self.child is not None:
            self.child.wait()


class Fleet:
    """The replicas of one run, in a folder of its own. Close it."""

    def __init__(self, folder: Path, *, prefix: Sequence[str] = ()) -> None:
        """`prefix` goes before the command: to run it in a network of its own, for example."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._prefix = list(prefix)
        self._nursery: subprocess.Popen[bytes] | None = None
        self.lives: list[Life] = []

    def start(self, engine: str, words: Sequence[str], *, fresh: bool = False) -> Life:
        number = len(self.lives)
        out = self._folder / f"{number:04d}"
        forked = not engine.startswith("spark") and not fresh and not self._prefix
        life = (self._forked if forked else self._started)(number, out, [engine, *words])
        self.lives.append(life)
        return life

    def close(self) -> None:
        """Kill what is left, and wait for it."""
        for life in self.lives:
            if life.alive():
                life.kill()
            life.sweep()
        if self._nursery is not None:
            self._nursery.kill()
            self._nursery.communicate()
            self._nursery = None

    def _forked(self, number: int, out: Path, words: list[str]) -> Life:
        if self._nursery is None:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.kills.nursery"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_env(number),
                cwd=ROOT,
            )
        asked = {"words": words, "out": str(out), "env": {}}
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(asked).encode() + b"\n")
        self._nursery.stdin.flush()
        pid = int(self._nursery.stdout.readline())
        return Life(number, words[0], pid, out, _opened(pid))

    def _started(self, number: int, out: Path, words: list[str]) -> Life:
        with out.open("ab") as said, Path(f"{out}.errors").open("ab") as errors:
            child = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", "tests.kills.nursery", *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                env=_env(number),
                cwd=ROOT,
                start_new_session=True,
            )
        return Life(number, words[0], child.pid, out, _opened(child.pid), child)


def _opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _members(group: int) -> list[int]:
    """The other processes of a group."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            facts = each.read_text(errors="replace").rpartition(")")[2].split()
            if int(facts[2]) == group and int(each.parent.name) != group:
                found.append(int(each.parent.name))
    return found


def _env(number: int) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONHASHSEED": str(number % 5 + 1),
        "STRANDLINE_LEASE_MS": str(LEASE_MS),
        "STRANDLINE_TOKEN": TOKEN,
    }
