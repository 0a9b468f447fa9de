"""Stands beside a runner: says how it is, and tells it what was asked of it, through the store.

It is a task of its own, so a transaction that takes minutes does not look like a dead process.
Whatever the store says or does not say, the runner goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from strandline.errors import StrandlineError
from strandline.pipeline.presence import BEAT_MS, Presence, Said
from strandline.pipeline.requests import Requests

if TYPE_CHECKING:
    from strandline.pipeline.requests import Asked
    from strandline.pipeline.runner import Runner
    from strandline.shard.env import Env

_JOIN_MS = 10_000


class Attendant:
    """Use it with `with`, around `runner.run()`."""

    def __init__(
        self, env: Env, pipeline: str, runner: Runner, *, name: str | None, said: Said
    ) -> None:
        self._env = env
        self._presence = Presence(env, pipeline)
        self._requests = Requests(env, pipeline)
        self._runner = runner
        self._said = said
        self._done = env.tasks.event()
        self.name = self._presence.claim(name, said)
        self._asked = self._requests.read()
        if self._asked.paused:
            runner.pause()
        self._task = env.tasks.start(f"attendant of {pipeline} {self.name}", self._attend)

    def close(self) -> None:
        """Say the last word; what it says is never `running`."""
        self._done.set()
        self._task.join(_JOIN_MS)
        self._turn()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _attend(self) -> None:
        while not self._done.wait(BEAT_MS):
            self._turn()

    def _turn(self) -> None:
        try:
            self._obey(self._requests.read())
            said = self._now()
            if not self._presence.say(self.name, said):
                # This process stood still for so long that another one has its name.
                self.name = self._presence.claim(None, said)
        except StrandlineError:
            # The next beat is a second away; until then the last one stands, and grows old.
            self._env.metrics.add("attendant_errors")

    def _obey(self, asked: Asked) -> None:
        before, self._asked = self._asked, asked
        if asked.paused != before.paused:
            (self._runner.pause if asked.paused else self._runner.resume)()
        if asked.checkpoints > before.checkpoints:
            self._runner.checkpoint()
        if asked.stops_of(self.name) > before.stops_of(self.name):
            self._runner.stop()

    def _now(self) -> Said:
        status = self._runner.status()
        standing = self._runner.standing
        return msgspec.structs.replace(
            self._said,
            at_ms=self._env.patient(self._env.consensus.now_ms),
            state=str(status.state),
            cause=status.cause,
            committed=status.committed.time or 0,
            sealed=status.sealed,
            epoch=standing.epoch,
            program=standing.program,
            transactions=status.transactions,
            still_ms=int(status.still_ms),
            audit=status.audit,
        )
