"""The replicas of a pipeline, as they say themselves, and when they said it.

Each has a key of its own, `replicas/<pipeline>/<name>`, and writes to it about once a second. Who
has not written for `SILENT_MS`, by the store's clock, may be dead: nobody says of it that it runs.
A name is used again once its replica ended or fell silent, so there are as many keys as replicas
were ever there at once. Whoever starts a replica again that was killed asks for its name at once:
it waits until the dead one is silent.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from strandline.errors import ConflictError
from strandline.journal.entries import valid_pipeline
from strandline.model.ids import valid_name
from strandline.pipeline.register import Register
from strandline.pipeline.said import BEAT_MS, SILENT_MS, Said, Seen, seen

if TYPE_CHECKING:
    from strandline.shard.env import Env


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
