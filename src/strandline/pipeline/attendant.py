"""Stands beside a runner: says how it is, and tells it what was asked of it, through the store.

It is a task of its own, so a transaction that takes minutes does not look like a dead process.
Whatever the store says or does not say, the runner goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec

from strandline.errors import StrandlineError
from strandline.pipeline.presence import Presence
from strandline.pipeline.requests import Requests
from strandline.pipeline.said import BEAT_MS, Said, SinkSaid
from strandline.pipeline.states import State

if TYPE_CHECKING:
    from strandline.pipeline.requests import Asked
    from strandline.pipeline.runner import Runner
    from strandline.pipeline.said import SinkStatus
    from strandline.shard.env import Env

_JOIN_MS = 10_000
_CAUSE_MAX = 500
"""Every beat writes what replicas say: a long error is cut."""


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
        self._stalled = False
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
        self._watch()
        try:
            self._obey(self._requests.read())
            said = self._now()
            if not self._presence.say(self.name, said):
                # This process stood still for so long that another one has its name.
                self.name = self._presence.claim(None, said)
        except StrandlineError:
            # The next beat is a second away; until then the last one stands, and grows old.
            self._env.metrics.add("attendant_errors")

    def _watch(self) -> None:
        """Count a stall once, also one of the store, which can't be told there."""
        before, self._stalled = self._stalled, self._runner.status().state is State.STALLED
        if self._stalled and not before:
            self._env.metrics.add("replica_stalls")

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
            cause=status.cause[:_CAUSE_MAX],
            committed=status.committed.time or 0,
            sealed=status.sealed,
            epoch=standing.epoch,
            program=standing.program,
            transactions=status.transactions,
            still_ms=int(status.still_ms),
            audit=status.audit,
            sinks=tuple(_sink_said(each) for each in status.sinks),
        )


def _sink_said(sink: SinkStatus) -> SinkSaid:
    return SinkSaid(
        sink.name,
        state=str(sink.state),
        lineage=sink.lineage,
        owner=sink.owner,
        reached=sink.reached,
        delivered=sink.delivered,
        retries=sink.retries,
        still_ms=int(sink.still_ms),
        cause=sink.cause[:_CAUSE_MAX],
        resumes=sink.resumes,
    )
