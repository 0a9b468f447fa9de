"""What is asked of the replicas of a pipeline, from any process, through the store.

    pause, resume   of all replicas, also those that start later: a state of the pipeline;
                    or of one sink, by whoever publishes it: one that has stopped goes on, too
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
    sinks: tuple[str, ...] = ()
    """Those that are paused, whatever the pipeline is."""
    resumes: dict[str, int] = {}
    """By sink, how often it was resumed: one that has stopped goes on with the next."""

    def stops_of(self, replica: str) -> int:
        return self.stops.get(EVERYBODY, 0) + self.stops.get(replica, 0)


class Requests:
    """Asks the replicas of one pipeline."""

    def __init__(self, env: Env, pipeline: str) -> None:
        key = f"control/{valid_pipeline(pipeline)}"
        self._register = Register(env, key, "control", Asked)

    def read(self) -> Asked:
        return self._register.read() or Asked()

    def pause(self, sink: str | None = None) -> None:
        """All replicas, or one sink of theirs."""
        if sink is None:
            self._change(lambda old: msgspec.structs.replace(old, paused=True))
        else:
            self._change(lambda old: _paused(old, valid_name(sink, "sink")))

    def resume(self, sink: str | None = None) -> None:
        """The opposite of `pause`; of a sink that the program no longer has, too. A sink that has
        stopped goes on."""
        if sink is None:
            self._change(lambda old: msgspec.structs.replace(old, paused=False))
        else:
            self._change(lambda old: _resumed(old, sink))

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


def _paused(old: Asked, sink: str) -> Asked:
    return msgspec.structs.replace(old, sinks=tuple(sorted({*old.sinks, sink})))


def _resumed(old: Asked, sink: str) -> Asked:
    return msgspec.structs.replace(
        old,
        sinks=tuple(each for each in old.sinks if each != sink),
        resumes={**old.resumes, sink: old.resumes.get(sink, 0) + 1},
    )


class Hearing:
    """What is asked of one sink, as its publisher has heard it last."""

    def __init__(self, env: Env, pipeline: str, sink: str) -> None:
        self._requests = Requests(env, pipeline)
        self._sink = sink
        self.paused: bool | None = None
        """`None` until that was looked up."""
        self.resumes = 0

    def hear(self) -> bool:
        """Look it up; whether it is paused."""
        asked = self._requests.read()
        self.resumes = asked.resumes.get(self._sink, 0)
        self.paused = paused = self._sink in asked.sinks
        return paused
