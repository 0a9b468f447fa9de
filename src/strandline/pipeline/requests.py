"""What is asked of the replicas of a pipeline, from any process, through the store.

    pause, resume   of all replicas, also those that start later: a state of the pipeline
    stop            of those that run now, or of one of them
    checkpoint      of whoever takes it first

A replica looks about once a second and does what is new to it, as its table of states allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.journal.entries import valid_pipeline
from strandline.model.ids import valid_name
from strandline.pipeline.register import Register

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.shard.env import Env

EVERYBODY = ""


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """All that was ever asked; numbers only grow, so nobody misses one."""

    paused: bool = False
    stops: dict[str, int] = {}
    """By replica, how often it was asked to stop."""
    checkpoints: int = 0

    def stops_of(self, replica: str) -> int:
        return self.stops.get(EVERYBODY, 0) + self.stops.get(replica, 0)


class Requests:
    """Asks the replicas of one pipeline."""

    def __init__(self, env: Env, pipeline: str) -> None:
        key = f"control/{valid_pipeline(pipeline)}"
        self._register = Register(env, key, "control", Asked)

    def read(self) -> Asked:
        return self._register.read() or Asked()

    def pause(self) -> None:
        self._change(lambda old: msgspec.structs.replace(old, paused=True))

    def resume(self) -> None:
        self._change(lambda old: msgspec.structs.replace(old, paused=False))

    def stop(self, replica: str | None = None) -> None:
        name = EVERYBODY if replica is None else valid_name(replica, "replica")

        def stopped(old: Asked) -> Asked:
            stops = {**old.stops, name: old.stops.get(name, 0) + 1}
            return msgspec.structs.replace(old, stops=stops)

        self._change(stopped)

    def checkpoint(self) -> None:
        self._change(lambda old: msgspec.structs.replace(old, checkpoints=old.checkpoints + 1))

    def _change(self, change: Callable[[Asked], Asked]) -> None:
        self._register.change(lambda old: change(old or Asked()))
