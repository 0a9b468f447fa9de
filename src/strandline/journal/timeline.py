"""A pipeline's journal as the timeline of its shards.

One COMMIT settles all shards of a pipeline, touched or not, and an idle one costs nothing. A
shard belongs to the timeline for good and takes appends only through it; one that was not
committed is invisible. Replicas of one epoch race for a shard's appends as equals, so a shard is
attached, and fenced against older epochs, once per epoch: when the pipeline is founded and when
one is promoted, before anything is appended in it. To do it again is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import NotFoundError
from strandline.journal.entries import Entries
from strandline.model.frontier import Frontier, Time
from strandline.model.ids import SeqNo
from strandline.model.timeline import PIPELINE
from strandline.shard import command as c
from strandline.shard.machine import raise_refusal
from strandline.shard.timeline import PlainTimeline

if TYPE_CHECKING:
    from strandline.model.timeline import Timeline
    from strandline.shard.env import Env
    from strandline.shard.machine import Machine


def timeline_name(pipeline: str) -> str:
    """The name of a pipeline's timeline."""
    return f"{PIPELINE}{pipeline}"


def timeline_of(env: Env, name: str) -> Timeline:
    """The timeline of that name: a pipeline's, or a plain one."""
    return JournalTimeline(env, name) if name.startswith(PIPELINE) else PlainTimeline(env, name)


class JournalTimeline:
    """The committed frontier of a pipeline. Anybody may read it; its replicas move it."""

    def __init__(self, env: Env, name: str) -> None:
        self.name = name
        self._entries = Entries(env, name.removeprefix(PIPELINE))

    def committed(self) -> Frontier:
        """One read of the newest entry, never of anything that is remembered."""
        newest = self._entries.newest()
        return Frontier(0) if newest is None else Frontier(newest.committed)

    def time_at(self, instant_ms: int) -> Time | None:
        later = self._entries.earliest(lambda entry: entry.instant_ms > instant_ms)
        if later is None:
            return self.committed().last()
        if later[0].number == 0:
            return None
        before = self._entries.at(SeqNo(later[0].number - 1))
        # Where the one before was cut, nobody knows when its times were committed.
        if before is None or before[0] == later[0]:
            return None
        return Frontier(before[1].committed).last()

    def instant_of(self, time: Time) -> int | None:
        found = self._entries.earliest(lambda entry: entry.committed > time)
        # A later one means that the entry which committed it was cut.
        return found[1].instant_ms if found is not None and found[1].committed == time + 1 else None

    def attach(self, machine: Machine) -> None:
        """Put a shard on this timeline for good, and fence it against epochs before this one.

        The journal's epoch is read, not given: whoever attaches late, for an epoch that is over,
        fences for the one that came.
        """
        while True:
            entry = self._entries.newest()
            if entry is None:
                raise NotFoundError(f"pipeline {self._entries.pipeline} has no journal yet")
            command = c.Attach(self.name, Frontier(entry.committed), entry.epoch)
            outcome, state = machine.commit(command)
            if not (isinstance(outcome, c.Fenced) and state.timeline == self.name):
                raise_refusal(machine.name, outcome)
                return
            newest = self._entries.newest()
            if newest is None or newest.epoch <= entry.epoch:
                raise_refusal(machine.name, outcome)
