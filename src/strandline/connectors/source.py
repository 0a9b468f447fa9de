"""The Source port: what a source offers, and how anybody reads what was taken from it.

    offer     `plan` says which range there is beyond a position, within limits
    take      whoever journals the range has taken it, from then on it may be read by anybody
    read      `splits` cuts it into pieces; `fetch` of the same connector reads a piece, in any
              process, and gives the same rows every time until they are acknowledged
    forget    `acknowledge` says that nobody will ask for rows before a position again

Offsets are half-open. What a source is asked does not change what it offers: it holds no
position of its own, so that replicas may ask in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec
import pyarrow as pa

from strandline.connectors.addresses import Reach
from strandline.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.connectors.position import Position, Range
    from strandline.model.clock import Clock


class Limits(msgspec.Struct, frozen=True):
    """How much may be taken at once, at most; a single row or file that is larger is taken."""

    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, limit in (("rows", self.rows), ("bytes", self.bytes)):
            if limit is not None and limit < 1:
                raise UsageError(f"a transaction of at most {limit} {name} takes nothing: allow 1")


class Split(msgspec.Struct, frozen=True):
    """A piece of a range that one task reads. It goes over the wire: no secrets, only references
    to them (`secret`)."""

    connector: str
    options: dict[str, str]
    partition: str
    start: int
    stop: int


class Source(Protocol):
    """A place that rows come from."""

    @property
    def replayable(self) -> bool:
        """Whether a range has the same rows until it is acknowledged. The rows of other sources
        are staged before they are sealed."""
        ...

    def latest(self) -> Position:
        """The end of what there is now; of a source that starts at its end, when it was opened,
        so that nothing that comes after is missed (S87)."""
        ...

    def plan(self, start: Position, limits: Limits) -> Range | None:
        """What is offered beyond `start`; `None` if that is nothing."""
        ...

    def splits(self, taken: Range) -> list[Split]:
        """The pieces of a range: each offset is in exactly one of them."""
        ...

    def check(self, taken: Range) -> None:
        """Raise `SourceGoneError`, naming what can't be read exactly any more."""
        ...

    def acknowledge(self, upto: Position) -> None:
        """Nobody will ask for anything before it again."""
        ...

    def close(self) -> None: ...


ResolveSecret = Callable[[str], str]
"""The value that a reference (`env:NAME`, `file:/path`) stands for, or an option's own value."""

Fetch = Callable[[Split, ResolveSecret], Iterator[pa.RecordBatch]]
"""The rows of a split, in the layout of `raw`."""


@runtime_checkable
class Initiating(Protocol):
    """A source that may say itself where a transaction ends."""

    initiates: bool
    """Whether what it plans is a transaction, whole and no more: nothing waits to join it."""


@runtime_checkable
class Holding(Protocol):
    """A source whose rows go unless somebody holds them, and that can be told to."""

    def secure(self, taken: Range) -> None:
        """See to it that what is about to be sealed stays until it is acknowledged.

        `ConflictError`: something of it went since it was planned; plan again.
        """
        ...


class Changes(Protocol):
    """What the shard source needs of a shard; `connectors` knows none."""

    def schema(self) -> pa.Schema:
        """The shard's columns."""
        ...

    def key(self) -> tuple[str, ...]:
        """The shard's key, if it has one."""
        ...

    def identity(self) -> int:
        """A number that stands for the shard's id."""
        ...

    def since(self) -> int:
        """The earliest time as of which the shard can still be read. Changes at a later time can
        be told apart from those before it; changes up to this time are one."""
        ...

    def upper(self) -> int:
        """Every time below it is settled."""
        ...

    def filled(self) -> int:
        """The same, but no further than there is something."""
        ...

    def given_up(self) -> str:
        """Why nothing will come any more, although the shard goes on; empty while it may."""
        ...

    def admit(self, start: int, stop: int, rows: int) -> int:
        """How far from `start` towards `stop` there are about so many updates: one time at
        least."""
        ...

    def changes(self, start: int, stop: int) -> Iterator[pa.Table]:
        """The consolidated updates at times in `[start, stop)`: columns, `_time` and `_diff`;
        from 0 on, what there is as of `stop - 1`."""
        ...

    def hold(self, since: int) -> None:
        """Keep history from `since` on, durably, whoever else lets it go; once this is done, it
        only moves by `move_hold`. `SinceError` if it is too late."""
        ...

    def move_hold(self, since: int) -> None:
        """Let history before `since` go; does nothing where none is held."""
        ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What sources need beside their options."""

    clock: Clock
    resolve: ResolveSecret
    changes: Callable[[str], Changes] | None = None
    """Shards by name, where there are any."""
    reach: Reach = field(default_factory=Reach)
    """Where options may lead."""


Open = Callable[["Mapping[str, str]", Ports], Source]
"""How a connector makes a source from a table's options; errors name the option."""
