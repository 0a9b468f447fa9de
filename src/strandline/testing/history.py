"""What clients did and were told, in simulation time: the only thing that checkers look at. Pure.

Rows are text, so that a violation can be read. Frontiers are plain numbers here; a closed one is
`CLOSED`. A call that never returned, because its process died or the store did not answer, has
the result UNKNOWN: it may have happened, once, at any later moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Update = tuple[str, int, int]
"""A row as text, its time, its diff."""

CLOSED = 2**63
NO_TIME = -1
"""The time of a row whose append was never answered."""


class Result(Enum):
    """What a client was told about its append."""

    APPLIED = "it counted"
    MISMATCH = "the upper was another one"
    REPEATED = "it had counted before"
    UNKNOWN = "no answer"
    REFUSED = "an error that says it did not happen"


@dataclass(frozen=True, slots=True)
class Append:
    """An append of rows at `[lower, upper)`, or an owner's commit on its timeline."""

    shard: str
    by: str
    start: int
    end: int
    result: Result
    lower: int | None = None
    """`None` if the writer took the next time and never heard which it was."""
    upper: int | None = None
    updates: tuple[Update, ...] = ()
    seen: int | None = None
    """The upper that a mismatch reported."""
    group: str = ""
    """Appends of one group become visible together, or none of them does."""
    batch: str = ""
    """The batch of an application that it is: however often it is tried, it counts once."""


@dataclass(frozen=True, slots=True)
class Read:
    """A snapshot that was served."""

    shard: str
    by: str
    start: int
    end: int
    as_of: int
    content: Mapping[str, int]
    """Each row, and how often it occurs."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A frontier or version that somebody was shown."""

    shard: str
    by: str
    what: str
    """`upper`, `since` or `seqno`."""
    start: int
    end: int
    value: int


@dataclass(slots=True)
class Stream:
    """What one subscription delivered, in order: updates, and frontiers between them."""

    shard: str
    by: str
    as_of: int
    snapshot: bool = True
    until: int | None = None
    told: list[tuple[Update, ...] | int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a shard as the store holds it."""

    shard: str
    at: int
    seqno: int
    upper: int
    since: int
    epoch: int
    holds: Mapping[str, int] = field(default_factory=dict)
    """What each reader and each critical hold keeps readable."""
    attached: bool = False
    allowed: int | None = None
    """If since was moved: how far retention allowed it to be."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The rows of one append as they were stored when it was committed."""

    shard: str
    at: int
    lower: int
    updates: tuple[Update, ...]
    gone: bool = False
    """Taken back by the next owner, before anybody could see it."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object that was deleted, and why it should not have been."""

    shard: str
    key: str
    at: int
    held_by: tuple[str, ...] = ()


@dataclass(slots=True)
class Term:
    """A reader for a fixed time, as whoever took it was told."""

    shard: str
    reader: str
    since: int
    until_ms: int
    keys: tuple[str, ...] = ()
    """Objects of a version that it holds."""
    given_back: bool = False
    """Whether somebody may have given it back."""
    ended_ms: int | None = None
    """The most that anybody had seen on the store's clock when it was dropped."""


@dataclass(slots=True)
class History:
    """Everything that was recorded, each kind in the order in which it ended."""

    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    terms: dict[str, Term] = field(default_factory=dict)
    """By the ids of their readers."""
    tiled: set[str] = field(default_factory=set)
    """Shards and timelines whose every append is recorded, so that none may be missing."""

    def shards(self) -> list[str]:
        named = {each.shard for each in self.appends} | {each.shard for each in self.reads}
        return sorted(named | {each.shard for each in self.streams})
