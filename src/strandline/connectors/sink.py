"""The Sink port: where changes leave, exactly once.

    prepare     reach the target, shut out whoever was there before, clear what is half-written
    progress    the last transaction that is durably there under this address, told by the target
    found       leave a first progress mark, or one again after the target has lost it
    deliver     a transaction's changes and the progress past it, both or neither
    read_back   what the target holds, for whoever wants it compared; needs no `prepare`

A publisher calls them in this order, and after any error it does not guess: it closes the sink,
opens a new one and asks for its progress. Progress belongs to an `Address` and holds the last
time and the epoch beside it; the epoch is no part of the key, so a promotion publishes nothing
twice, and it never falls.

Errors: `SinkError` (may pass: try again, after reading progress), `SinkFencedError` (another
publisher has the target), `SinkStoppedError` (somebody has to look), and no other.
`strandline.testing.check_sink` checks what a publisher can observe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from strandline.connectors.addresses import Reach
from strandline.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from strandline.connectors.source import ResolveSecret

NOTHING_YET = -1
"""The time of a progress mark before the first delivery."""
BATCH_ROWS = 65_536
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
"""What a connector promises (`LEVEL`); the first, unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What is durably in the target: everything up to `t`, published under `epoch`."""

    t: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Address:
    """Whose progress it is. Another lineage is another history: it never continues this one."""

    store: str
    pipeline: str
    sink: str
    lineage: str

    @property
    def digest(self) -> str:
        """One word for all four, for names that a target can take."""
        whole = "\x00".join((self.store, self.pipeline, self.sink, self.lineage))
        return blake2b(whole.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What a target holds, whole transactions only."""

    at: Progress
    rows: Iterator[pa.RecordBatch]
    """The columns and `_diff`, in any order; they add up to the collection as of `at.t`."""


class Sink(Protocol):
    """A publisher's handle on one target. Used by one task at a time."""

    def prepare(self) -> None:
        """Initialise. Of two handles that deliver one transaction from here on, one is told that
        it is fenced: the one that was prepared first, or the one that comes second."""
        ...

    def progress(self) -> Progress | None:
        """Read from the target, to its end; `None` if there is none under this address."""
        ...

    def found(self, at: Progress) -> None:
        """Make `at` the progress where there is none. Repeating it is harmless."""
        ...

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        """Publish one transaction; it is durable, with its progress, when this returns.

        `changes` come lazily and once, in batches of up to `BATCH_ROWS` rows: the columns and
        `_diff`. They are consolidated, and those of one key come next to each other, what goes
        before what comes. There is at least one row: a transaction without changes never comes
        here, but for the first one of a lineage that follows another one of the same sink. Then
        the collection is empty, and so is the target afterwards: what the older one left is gone.
        """
        ...

    def read_back(self) -> ReadBack | None:
        """What the target holds; `None` if there is no progress under this address.

        Only reads, and shuts nobody out: a publisher may be at work meanwhile.
        """
        ...

    def close(self) -> None:
        """Let go of the target. Repeating it is harmless."""
        ...


Callback = Callable[["pa.Table", int], object]
"""A function of the user's: a transaction's changes (the columns and `_diff`), and its time."""


@dataclass(frozen=True, slots=True)
class SinkPorts:
    """What sinks need beside their options."""

    resolve: ResolveSecret
    token: Callable[[], str]
    """Unique words, for names of attempts."""
    callbacks: Mapping[str, Callback] = field(default_factory=dict)
    """By sink, the functions that were given in this process."""
    reach: Reach = field(default_factory=Reach)
    """Where options may lead."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What a sink publishes: whose it is, and the columns of its changes without `_diff`."""

    address: Address
    columns: pa.Schema
    key: tuple[str, ...] = ()
    """What tells one row from another; without it, rows may occur more than once."""
    older: tuple[str, ...] = ()
    """Lineages that the store has deliveries of on record, under the same sink; the last last."""
    done: int = NOTHING_YET
    """The last delivery of this lineage that is on record in the store as done."""
    newer: tuple[str, ...] = ()
    """Those of the older ones that were published after this one, by an epoch above its own."""


OpenSink = Callable[["Mapping[str, str]", Delivered, SinkPorts], Sink]
"""How a connector makes a sink from a program's options; errors name the option."""


def filled(
    t: int, changes: Iterable[pa.RecordBatch], *, first: bool = False
) -> Iterator[pa.RecordBatch]:
    """The batches that have rows; a sink asks for them before it opens anything.

    There must be one: publishers do not deliver empty transactions, and sinks do not take them.
    Only the `first` of a lineage, which comes to a progress of `NOTHING_YET`, may be empty.
    """
    batches = iter(changes)
    found = next((batch for batch in batches if batch.num_rows), None)
    invariant(first or found is not None, f"transaction {t} has no changes, and nothing to deliver")
    known = () if found is None else (found,)
    return (batch for batch in chain(known, batches) if batch.num_rows)
