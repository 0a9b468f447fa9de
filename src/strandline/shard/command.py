"""What may be asked of a shard's state, and what may come of it.

Commands carry everything that a decision needs, the store's clock included, so that `decide`
stays pure. Expected outcomes are values; the shell turns refusals into errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.model.digest import Digest
    from strandline.model.frontier import Frontier, Time
    from strandline.model.schema import Schema
    from strandline.parts.part import Batch, Chunk, Part
    from strandline.shard.change import Change
    from strandline.shard.retention import Aged
    from strandline.shard.state import Manifest, MomentChunk, Retention
    from strandline.shard.txn import Txn


@dataclass(frozen=True, slots=True)
class Create:
    """Start the shard, unless one of that name lives."""

    name: str
    id: str
    schema: Schema
    now_ms: int


@dataclass(frozen=True, slots=True)
class RegisterWriter:
    writer: str
    pulse: str
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class RegisterReader:
    """Hold objects from the version this makes on, and times from `since` on if given."""

    reader: str
    pulse: str
    since: Time | None
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class RegisterTerm:
    """The same for a fixed time by the store's clock; without `since`, from where it begins."""

    reader: str
    since: Time | None
    now_ms: int
    term_ms: int
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class Downgrade:
    """Give up times before `since` and objects before `seqno`, for readers of one process."""

    holds: dict[str, tuple[Time | None, int]]


@dataclass(frozen=True, slots=True)
class Release:
    """Readers and writers that say goodbye."""

    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expire:
    """Drop everybody whose pulse is over; the shell has seen that each of them is.

    And whose term has ended, by the store's clock.
    """

    pulses: frozenset[str]
    now_ms: int = 0


@dataclass(frozen=True, slots=True)
class Append:
    """Settle `[lower, upper)` with these rows, if `lower` is the upper."""

    writer: str
    token: str
    lower: Time
    upper: Frontier
    batch: Batch | None
    """`None` when there are no rows: empty appends only move time."""
    digests: dict[Time, Digest]
    """One for each time that has rows."""
    now_ms: int
    epoch: int = 0
    timeline: str | None = None
    """The timeline through which this append comes."""
    txn: Txn | None = None
    """The batch of an application that this append is; then it counts once."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take back appends from `lower` on that their timeline never committed."""

    lower: Time
    epoch: int
    committed: Frontier


@dataclass(frozen=True, slots=True)
class Attach:
    timeline: str
    committed: Frontier
    epoch: int = 0
    id: str = ""
    """If given, only the shard with this id is attached, and none that has its name since."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Refuse every epoch below this one from now on."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Place or move a critical hold."""

    name: str
    since: Time
    epoch: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Unhold:
    name: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Replace:
    """Swap pieces of batches for others that hold the same updates, as seen from `since`."""

    writer: str
    remove_parts: frozenset[str] = frozenset()
    remove_chunks: frozenset[str] = frozenset()
    remove_inline: frozenset[Time] = frozenset()
    """The lower bounds of the batches whose inline rows go."""
    parts: tuple[Part, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    garbage: tuple[str, ...] = ()
    """Objects that nothing will refer to: what goes, and what only a removed chunk listed."""
    since: Time = 0
    """The time up to which the new pieces are merged."""


@dataclass(frozen=True, slots=True)
class AdvanceSince:
    """Merge history as far as retention and holds allow."""

    now_ms: int
    committed: Frontier | None = None
    """The timeline's frontier, for an attached shard."""
    aged: Aged | None = None
    """For one that keeps history by age."""


@dataclass(frozen=True, slots=True)
class IndexMoments:
    """Put the oldest listed moments into an object of their own."""

    writer: str
    """Who put the object."""
    chunk: MomentChunk
    committed: Frontier | None = None
    """The timeline's frontier, for an attached shard: what may be withdrawn stays listed."""


@dataclass(frozen=True, slots=True)
class Retain:
    retention: Retention


@dataclass(frozen=True, slots=True)
class Evolve:
    """Take a new schema, if `expected` is still the current version."""

    expected: int
    schema: Schema


@dataclass(frozen=True, slots=True)
class ForgetTxn:
    """Forget an application, if the version that appended its newest batch is this one."""

    app: str
    seqno: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Make the shard a tombstone; with `id`, only that one and none created since."""

    epoch: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True)
class AddManifest:
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Forget:
    """These objects have been deleted; stop listing them as garbage."""

    keys: frozenset[str]


Command = (
    Create
    | RegisterWriter
    | RegisterReader
    | RegisterTerm
    | Downgrade
    | Release
    | Expire
    | Append
    | Withdraw
    | Attach
    | Fence
    | Hold
    | Unhold
    | Replace
    | AdvanceSince
    | IndexMoments
    | Retain
    | Evolve
    | ForgetTxn
    | Drop
    | AddManifest
    | Forget
)


@dataclass(frozen=True, slots=True)
class Changed:
    """Commit this change; then the command has happened."""

    change: Change


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Nothing to commit: what was asked for is so already."""


@dataclass(frozen=True, slots=True)
class UpperMismatch:
    """The append did not start at the upper; another writer has moved it, or none has yet."""

    upper: Frontier


@dataclass(frozen=True, slots=True)
class Repeated:
    """The batch of an application has counted before: nothing was appended, and it is there."""

    app: str
    batch: int
    newest: int
    """The newest batch of the application; the content of an older one is not compared."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """A batch has counted before with another content; `reason` is a sentence for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stale:
    """What was to be replaced is no longer there: somebody else did the work."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Readers or writers that are no longer registered: their leases ran out."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fenced:
    """A higher epoch has been seen."""

    epoch: int


@dataclass(frozen=True, slots=True)
class SincePassed:
    """The time asked for can no longer be told apart."""

    since: Frontier


@dataclass(frozen=True, slots=True)
class Refused:
    """The command can't be right; `reason` is a sentence for people."""

    reason: str


Outcome = (
    Changed
    | Unchanged
    | UpperMismatch
    | Repeated
    | Diverged
    | Stale
    | Lost
    | Fenced
    | SincePassed
    | Refused
)
