"""The processes of a chaos run: started, killed, paused and started again.

A process keeps its leases alive by helper processes, in sessions of their own. Four things can
be taken away: the process (its helper notices and ends its leases), the process together with
its helpers (nobody does, so the leases run out), a helper alone (the process starts another),
and the processor for a while, with or without the helpers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.journal import JournalReader, Line, now

ROOT = Path(__file__).resolve().parents[2]
WORKER = [sys.executable, "-m", "tests.chaos.worker"]


@dataclass(slots=True)
class Member:
    """One life of one process."""

    name: str
    role: str
    number: int
    started: subprocess.Popen[bytes]
    reader: JournalReader
    errors: Path
    lines: list[Line] = field(default_factory=list)
    moved_ns: int = 0
    """When its journal was last seen to grow."""
    paused: list[int] = field(default_factory=list)
    resume_ns: int = 0
    robbed: bool = False
    """Whether it lost a helper or was paused: only then may it lose leases."""
    killed: bool = False
    told: bool = False
    """Whether it was asked to stop."""

    @property
    def pid(self) -> int:
        return self.started.pid

    def alive(self) -> bool:
        return self.started.poll() is None

    def helpers(self) -> list[int]:
        """The processes that it started and that still run."""
        found: list[int] = []
        with suppress(OSError):
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return found

    def look(self) -> list[Line]:
        """What it has written since the last look."""
        new = self.reader.read()
        if new:
            self.moved_ns = now()
            self.lines += new
        return new


class Crew:
    """All processes of a run, dead and alive."""

    def __init__(self, store: str, folder: Path, seed: int, lease_ms: int) -> None:
        self._store = store
        self._folder = folder
        self._seed = seed
        self._env = {**os.environ, "STRANDLINE_LEASE_MS": str(lease_ms)}
        self.lives: list[Member] = []
        self.current: dict[str, Member] = {}
        self.died_ns: dict[int, int] = {}

    def start(self, role: str, name: str) -> Member:
        number = len(self.lives) + 1
        journal = self._folder / f"{number:04}-{name}.journal"
        errors = journal.with_suffix(".stderr")
        seed = str(self._seed * 100_003 + number)
        with errors.open("wb") as stderr:
            started = subprocess.Popen(
                [*WORKER, role, self._store, str(journal), str(number), seed],
                cwd=ROOT,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
            )
        member = Member(name, role, number, started, JournalReader(journal), errors)
        member.moved_ns = now()
        self.lives.append(member)
        self.current[name] = member
        return member

    def restart_dead(self) -> list[Member]:
        """Start again whatever has ended; returns the lives that are over."""
        ended = [member for member in self.current.values() if not member.alive()]
        for member in ended:
            self.died_ns.setdefault(member.pid, now())
            self.start(member.role, member.name)
        return ended

    def kill(self, member: Member, *, helpers: bool, helpers_first: bool = True) -> None:
        victims = member.helpers() if helpers else []
        order = [*victims, member.pid] if helpers_first else [member.pid, *victims]
        for pid in order:
            _send(pid, signal.SIGKILL)
        # Helpers that were paused with it go on, and notice that they are alone.
        for pid in member.paused:
            _send(pid, signal.SIGCONT)
        member.killed = True
        member.paused.clear()
        member.started.wait()
        self.died_ns[member.pid] = now()

    def kill_helpers(self, member: Member) -> int:
        victims = member.helpers()
        for pid in victims:
            _send(pid, signal.SIGKILL)
        member.robbed = True
        return len(victims)

    def pause(self, member: Member, duration_ms: float, *, helpers: bool) -> None:
        pids = [*(member.helpers() if helpers else []), member.pid]
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        member.paused = pids
        member.robbed = True
        member.resume_ns = now() + int(duration_ms * 1e6)

    def resume(self, *, everybody: bool = False) -> None:
        for member in self.lives:
            if member.paused and (everybody or now() >= member.resume_ns):
                for pid in member.paused:
                    _send(pid, signal.SIGCONT)
                member.paused = []
                member.moved_ns = now()

    def look(self) -> None:
        for member in self.lives:
            member.look()

    def stop(self, deadline_s: float) -> list[Member]:
        """Ask all to stop; returns those that did not."""
        self.resume(everybody=True)
        for member in self.current.values():
            member.told = True
            _send(member.pid, signal.SIGTERM)
        end = now() + int(deadline_s * 1e9)
        late: list[Member] = []
        for member in self.current.values():
            try:
                member.started.wait(max(0.01, (end - now()) / 1e9))
            except subprocess.TimeoutExpired:
                self.show_stack(member)
                late.append(member)
                self.kill(member, helpers=True)
        return late

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.resume(everybody=True)
        for member in self.lives:
            if member.alive():
                self.kill(member, helpers=True)

    @staticmethod
    def show_stack(member: Member) -> None:
        """Have it write where it is, for whoever looks at its errors."""
        _send(member.pid, signal.SIGUSR1)
        with suppress(subprocess.TimeoutExpired):
            member.started.wait(0.5)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
