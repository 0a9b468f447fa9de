"""The Engine port: what happens to the rows of shards, whoever computes it.

Two engines given the same calls must answer the same, row for row and digest for digest: the one
that is fast, and the one that is obviously right (`testing.reference`). A frame is whatever an
engine keeps rows in; its columns are those of the shard, and beside them

    `_time`              when; every row of a frame has it or none, and then it is the next time
    `_diff`              how often, of updates
    `_delete`            of rows to upsert: whether the key goes; none means no
    `_order0` and so on  of rows to upsert: which of several rows of a key is the last

Rows compare as the row hash sees them: null equals null, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from strandline.model.digest import Digest
    from strandline.model.frontier import Time
    from strandline.model.schema import Schema

Frame = TypeVar("Frame")

DELETE_COLUMN = "_delete"
ORDER_COLUMN = "_order"
"""How the names of order columns begin; a number from 0 on follows, the first decides first."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an upsert has to know beside the rows."""

    compare_stored: tuple[str, ...] = ()
    """The shard's columns that `_order0` and so on were taken from, if a stored row is to stay
    when a row of lower order comes; none if what comes later in time always wins. Further order
    columns tell apart rows of one key and time only."""
    bury: bool = False
    """Whether keys that are gone keep their order as well, in tombstones."""
    buried_at: int | None = None
    """What new tombstones say of when that was; the time of their deletion if it is not given."""


@dataclass(frozen=True, slots=True)
class Written:
    """What an append or an upsert made of the rows that it was given."""

    upper: Time
    """Every time below it is settled now."""
    updates: int
    digest: Digest
    """Of the updates, whatever their times."""
    superseded: int = 0
    """Rows that were not the last of their key and time."""
    late: int = 0
    """Rows of lower order than the row that was there."""
    unchanged: int = 0
    """Rows that were there already, and deletions of keys that were not."""


class Engine(Protocol[Frame]):
    """Shards by name, and what can be done with their rows. Frames are never changed."""

    def create(self, shard: str, schema: Schema) -> None:
        """Begin an empty shard, whose upper is 0."""
        ...

    def write(self, shard: str, updates: Frame, upper: Time) -> Written:
        """Append updates within [the shard's upper, `upper`), which then are settled."""
        ...

    def upsert(self, shard: str, rows: Frame, upper: Time, rules: Rules) -> Written:
        """Append the updates by which each key gets the last of its rows at every time."""
        ...

    def read(self, shard: str, as_of: Time) -> Frame:
        """The rows at a settled time, in no order, each as often as it occurs."""
        ...

    def changes(self, shard: str, start: Time, end: Time) -> Frame:
        """The consolidated updates at the times in [`start`, `end`), in no order."""
        ...

    def lookup(self, shard: str, keys: Frame, as_of: Time) -> Frame:
        """The rows whose key occurs in `keys`, at a settled time, in no order."""
        ...

    def consolidate(self, updates: Frame) -> Frame:
        """One update for each row and time, with the sum of its diffs, none of them zero."""
        ...

    def digest(self, shard: str, as_of: Time) -> Digest:
        """Of the rows at a settled time."""
        ...
