"""What a replica says of itself, and what may be said of it: values alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from strandline.connectors.sink import NOTHING_YET
from strandline.pipeline.states import LIVING, State

if TYPE_CHECKING:
    from strandline.model.frontier import Time
    from strandline.pipeline.states import SinkState

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


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """How a sink is, as this replica sees it."""

    name: str
    state: SinkState
    reached: Time
    """Every transaction up to here is delivered, or has no changes; -1 before the first."""
    delivered: int
    """How many transactions this replica has delivered."""
    retries: int
    """How often in a row it was tried in vain."""
    still_ms: int
    """For how long there is something to deliver and nothing was."""
    cause: str
    """Why it is retrying, blocked or stopped; empty while all is well."""
    lineage: str = ""
    """Which history it publishes; empty until it knows."""
    owner: str = ""
    """The token under which it has the claim, if it has it."""
    since: Time = 0
    """From which time on its collection means what it means now."""
    replaced: bool = False
    """Whether another program runs: then it is not for this one to say anything of it."""
    resumes: int = 0
    """How often it was resumed, as far as that was heard and done."""
    begins: Time = 0
    """From when on history is held for it; the next transaction, if none is yet."""
    raises: Time = NOTHING_YET
    """Up to here it was looked, by whoever publishes it, and its view can't be read there; -1 if it
    can."""
    left: bool = False
    """Whether nobody publishes it: this process can't, and nobody who lives has the claim."""

    @property
    def has(self) -> Time:
        """Up to here nothing is left to deliver: what was before its collection is not for it."""
        return max(self.reached, self.since - 1)

    @property
    def freed(self) -> Time:
        """Up to here nothing is held for it. One that has nothing yet begins with all that there
        is as one delivery: how many transactions led to that is nothing to it."""
        return self.has if self.reached > NOTHING_YET else max(self.has, self.begins - 1)


class SinkSaid(msgspec.Struct, frozen=True, array_like=True):
    """What a replica last said of its publisher of one sink."""

    name: str
    state: str = ""
    lineage: str = ""
    """Which history it publishes; empty until it knows."""
    owner: str = ""
    """The token under which it has the claim, if it has it."""
    reached: int = NOTHING_YET
    delivered: int = 0
    """How many transactions it has delivered since it started."""
    retries: int = 0
    still_ms: int = 0
    cause: str = ""
    resumes: int = 0
    """How often it was resumed, as far as that was heard and done."""


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
    sinks: tuple[SinkSaid, ...] = ()
    """Of one that publishes."""


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


def seen(name: str, said: Said, now_ms: int) -> Seen:
    """What may be said of a replica now.

    >>> said = Said("r0", "host", 7, False, 0, 1_000, state="running")
    >>> seen("a", said, 2_000).state, seen("a", said, 9_000).state
    ('running', 'silent')
    """
    silent_ms = max(0, now_ms - said.at_ms)
    silent = said.state in LIVING and silent_ms > SILENT_MS
    return Seen(name, SILENT if silent else said.state, silent_ms, said)
