"""The replicas of a pipeline, as they say themselves, and when they said it.

Each has a key of its own, `replicas/<pipeline>/<name>`, and writes to it about once a second. Who
has not written for `SILENT_MS`, by the store's clock, may be dead: nobody says of it that it runs.
A name is used again once its replica ended or fell silent, so there are as many keys as replicas
were ever there at once. Whoever starts a replica again that was killed asks for its name at once:
it waits until the dead one is silent.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import ConflictError
from strandline.journal.entries import valid_pipeline
from strandline.model.ids import valid_name
from strandline.pipeline.register import Register
from strandline.pipeline.states import LIVING, State

if TYPE_CHECKING:
    from strandline.shard.env import Env

BEAT_MS = 1_000
SILENT_MS = 5_000
"""Five beats: fewer are missed on any machine that is merely busy."""
SILENT = "silent"


class Audit(msgspec.Struct, frozen=True, array_like=True):
    """What a read-only replica made of the transactions that were committed while it looked on."""

    verified: int = 0
    """How many it computed and found as they are on record."""
    differed: int = 0
    """How many other versions answered otherwise."""
    skipped: int = 0
    """How many it did not compute."""
    told: tuple[str, ...] = ()
    """The last of those that differed or were skipped, with the reason."""
    inputs: int = 0
    """Of how many it compared the inputs alone, because it has another program: not verified."""


class Said(msgspec.Struct, frozen=True, array_like=True):
    """What a replica last said of itself."""

    token: str
    """Of one process's one replica; whoever uses its name later has another."""
    host: str
    pid: int
    read_only: bool
    started_ms: int
    at_ms: int
    state: str = State.STARTING
    cause: str = ""
    committed: int = 0
    sealed: int | None = None
    epoch: int = 0
    program: str = ""
    transactions: int = 0
    still_ms: int = 0
    audit: Audit | None = None
    """Of a read-only one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica as anybody sees it."""

    name: str
    state: str
    """What it said, or `silent` if that is too long ago."""
    silent_ms: int
    said: Said

    @property
    def alive(self) -> bool:
        return self.state in LIVING


class Presence:
    """The replicas of one pipeline."""

    def __init__(self, env: Env, pipeline: str) -> None:
        self._env = env
        self.pipeline = valid_pipeline(pipeline)
        self._prefix = f"replicas/{pipeline}/"

    def all(self) -> list[Seen]:
        """Every replica that is, or was once, by name."""
        keys = self._env.patient(lambda: self._env.consensus.keys(self._prefix))
        found = []
        for name in (key.removeprefix(self._prefix) for key in keys):
            said = self._register(name).read()
            # Asked after what was said was read: nothing said can be of the future.
            now_ms = self._env.patient(self._env.consensus.now_ms)
            if said is not None:
                found.append(seen(name, said, now_ms))
        return found

    def claim(self, name: str | None, said: Said) -> str:
        """Take a name, or the first one that is free; refused while its replica is there."""
        if name is not None:
            self._take(valid_name(name, "replica"), said)
            return name
        for number in count(1):
            try:
                self._take(f"r{number}", said)
            except ConflictError:
                continue
            return f"r{number}"
        raise ConflictError(f"pipeline {self.pipeline}: no name is left for a replica")

    def wait_for(self, name: str) -> None:
        """Return when a name is free, or its replica was seen to live: `claim` refuses it then."""
        register = self._register(valid_name(name, "replica"))
        deadline = self._env.clock.monotonic_ms() + SILENT_MS + BEAT_MS
        before = now = register.read()
        while now is not None and now == before and self._env.clock.monotonic_ms() < deadline:
            if not seen(name, now, self._env.patient(self._env.consensus.now_ms)).alive:
                return
            self._env.tasks.sleep(BEAT_MS // 10)
            now = register.read()

    def say(self, name: str, said: Said) -> bool:
        """Say something under a name that was claimed; `False` if another one has it by now."""
        after = self._register(name).change(
            lambda old: old if old is not None and old.token != said.token else said
        )
        return after.token == said.token

    def _take(self, name: str, mine: Said) -> None:
        now_ms = self._env.patient(self._env.consensus.now_ms)

        def taken(old: Said | None) -> Said:
            if old is not None and old.token != mine.token and seen(name, old, now_ms).alive:
                raise ConflictError(
                    f"pipeline {self.pipeline} has a replica {name} already, in process {old.pid} "
                    f"on {old.host}: give this one another name"
                )
            return mine

        self._register(name).change(taken)

    def _register(self, name: str) -> Register[Said]:
        return Register(self._env, f"{self._prefix}{name}", "replica", Said)


def seen(name: str, said: Said, now_ms: int) -> Seen:
    """What may be said of a replica now.

    >>> said = Said("r0", "host", 7, False, 0, 1_000, state="running")
    >>> seen("a", said, 2_000).state, seen("a", said, 9_000).state
    ('running', 'silent')
    """
    silent_ms = max(0, now_ms - said.at_ms)
    silent = said.state in LIVING and silent_ms > SILENT_MS
    return Seen(name, SILENT if silent else said.state, silent_ms, said)
