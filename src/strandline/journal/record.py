"""The records of a journal.

    PROGRAM     the text of a program, by its hash
    BIND        a name of the program means this shard from now on
    ENDPOINT    a source was added, removed, paused or resumed
    PROMOTE     a new epoch begins, under a program that is on record
    BEGIN       a transaction has a time; what `now()` is in it, and who computes it with what
    INPUT       what it takes from one endpoint: exact ranges, or staged rows with their digest
    SEAL        nothing is added to it any more: it will be computed, by somebody
    AMEND       an input of the sealed transaction is replaced, on the record
    EVOLVE      a table has more columns from the sealed transaction on
    ANSWER      what it makes of the collections, by digest: nothing else is ever landed at its time
    COMMIT      it has landed, and is visible everywhere; the digests of its answer
    ABORT       an explicit handle was closed without a commit; it never had a time
    RETAIN      how many transactions back everything can be read, from now on
    CHECKPOINT  all that is needed to go on from here is in one object

Records are arrays on the wire, led by their kind: a new field goes to the end and has a default
that says what its absence meant. A field without a default must be there (S71): a record that
lacks one is refused, it is never read as 0. A change that an older reader must not overlook
raises `FORM`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import msgspec

from strandline.model.frontier import Time

if TYPE_CHECKING:
    from collections.abc import Iterator

FORM = 4
"""The newest form of records that this version writes and reads. Form 3 has RETAIN, which a reader
that passed it over would cut less or more than was said; form 4 has dates, timestamps and decimals
in EVOLVE."""

OLDEST_FORM = 2
"""The oldest one that it reads. Form 1 had no ANSWER, and was never released."""

Position = dict[str, int]
"""Partition -> the next offset that was not taken yet."""

Taken = dict[str, tuple[int, int]]
"""Partition -> the half-open range `[start, stop)` that was taken from it (S77)."""

ACTIONS = ("added", "removed", "paused", "resumed")
"""What can be recorded of an endpoint."""


class StagedRef(msgspec.Struct, frozen=True, array_like=True):
    """An object that a record refers to, and what it must be."""

    key: str
    digest: bytes
    """blake2b-128 of the object's bytes."""
    rows: int
    size: int


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """What all records share."""


class Begin(_Record, frozen=True, array_like=True, tag="BEGIN"):
    """Transaction `t` of an epoch."""

    t: Time
    epoch: int
    program: str
    """The hash of the program that computes it."""
    now_ms: int
    versions: dict[str, str]
    """Of Strandline, Spark, Arrow, Python, the time zones: whatever an answer may depend on."""
    handle: str | None
    """The explicit handle that this transaction commits."""


class Input(_Record, frozen=True, array_like=True, tag="INPUT"):
    """What a transaction takes from one endpoint, for one table. At most one per endpoint."""

    t: Time
    endpoint: str
    table: str
    taken: Taken | None
    staged: tuple[StagedRef, ...]
    producers: dict[str, int]
    """The last sequence number that is in it, for each producer that pushed to the endpoint."""
    replace: bool = False
    """Whether the table holds these rows from now on and no others: a reload."""


class Seal(_Record, frozen=True, array_like=True, tag="SEAL"):
    """The transaction's input is complete."""

    t: Time


class Amend(_Record, frozen=True, array_like=True, tag="AMEND"):
    """What is read in place of what `INPUT` said of an endpoint, which could not be read.

    Positions move past all that was sealed, whatever is read of it.
    """

    t: Time
    endpoint: str
    taken: Taken | None
    staged: tuple[StagedRef, ...]
    reason: str


class Evolve(_Record, frozen=True, array_like=True, tag="EVOLVE"):
    """What a table's source brings has fields without a column: they have one from now on."""

    t: Time
    table: str
    columns: dict[str, str]
    """By name, the types in the words of SQL."""


class Answer(_Record, frozen=True, array_like=True, tag="ANSWER"):
    """What transaction `t` is, on record before any row of it is in any shard."""

    t: Time
    epoch: int
    inputs: dict[str, bytes]
    """The digest of what was read from each endpoint of the transaction."""
    deltas: dict[str, bytes]
    """The digest of the changes of each collection that changes, and of no other."""
    versions: dict[str, str]
    """Of who computed it."""


class Commit(_Record, frozen=True, array_like=True, tag="COMMIT"):
    """Transaction `t` is visible in all shards of the pipeline, touched or not."""

    t: Time
    epoch: int
    instant_ms: int
    inputs: dict[str, bytes]
    deltas: dict[str, bytes]
    """Both as in its ANSWER."""


class Checkpoint(_Record, frozen=True, array_like=True, tag="CHECKPOINT"):
    """Between two transactions: what is needed to go on is in `snapshot`, whole."""

    t: Time | None
    """The last time that was committed."""
    epoch: int
    program: str
    config: str
    """The hash of the configuration of who wrote it."""
    uppers: dict[str, Time]
    """How far each shard has rows."""
    state_digest: bytes
    """Of the content of all shards, as the writer saw it."""
    snapshot: StagedRef
    """The standing before this record: positions, producers, bindings and all the rest."""
    forgotten: tuple[str, ...]
    """Closed handles whose own keys say so by now, so that the journal need not any more."""


class Endpoint(_Record, frozen=True, array_like=True, tag="ENDPOINT"):
    """Something happened to a source, on purpose; a clean stop is no such thing (S73)."""

    name: str
    action: str
    source: str = ""
    """Which source it is, as it is added: positions are positions of this one and no other."""


class Program(_Record, frozen=True, array_like=True, tag="PROGRAM"):
    """A program, before it is promoted. Its text is here, or staged when it is long."""

    hash: str
    text: str | None
    staged: StagedRef | None


class Bind(_Record, frozen=True, array_like=True, tag="BIND"):
    """A name means this shard; with no shard, it means nothing any more."""

    name: str
    shard: str | None
    role: str


class Promote(_Record, frozen=True, array_like=True, tag="PROMOTE"):
    """From now on only this epoch and this program write."""

    epoch: int
    program: str
    versions: dict[str, str]
    """Of whoever runs live in this epoch: all of them have the same."""


class Retain(_Record, frozen=True, array_like=True, tag="RETAIN"):
    """How far back every collection can be read, and the journal be computed again."""

    transactions: int | None
    """`None`: all that there ever was."""


class Abort(_Record, frozen=True, array_like=True, tag="ABORT"):
    """A handle is closed and what it staged is nobody's; `t` is there for the eye: never set."""

    handle: str
    reason: str
    t: None = None


Record = (
    Begin
    | Input
    | Seal
    | Amend
    | Evolve
    | Answer
    | Commit
    | Checkpoint
    | Endpoint
    | Program
    | Bind
    | Promote
    | Abort
    | Retain
)

RECORDS: tuple[type[Record], ...] = (
    Begin,
    Input,
    Seal,
    Amend,
    Evolve,
    Answer,
    Commit,
    Checkpoint,
    Endpoint,
    Program,
    Bind,
    Promote,
    Abort,
    Retain,
)


def kind_of(record: Record | type[Record]) -> str:
    """`BEGIN`, `INPUT` and so on."""
    return str(record.__struct_config__.tag)


KINDS = tuple(kind_of(each) for each in RECORDS)


def refs_of(record: Record) -> Iterator[StagedRef]:
    """The objects that a record refers to."""
    if isinstance(record, (Input, Amend)):
        yield from record.staged
    elif isinstance(record, Program) and record.staged is not None:
        yield record.staged
    elif isinstance(record, Checkpoint):
        yield record.snapshot


def lsn_text(lsn: int) -> str:
    """How a record's number is written, everywhere: `#31`."""
    return f"#{lsn}"


def epoch_text(epoch: int) -> str:
    """How an epoch is written, everywhere: `e3`."""
    return f"e{epoch}"


def describe(record: Record) -> str:
    """A record in a few words, for errors and `history`.

    >>> describe(Seal(31)), describe(Promote(3, "9f", {})), describe(Abort("h1", "idle"))
    ('SEAL of 31', 'PROMOTE e3', 'ABORT h1')
    """
    return f"{kind_of(record)} {_told(record)}"


def _told(record: Record) -> str:  # noqa: C901 - a case for each kind
    match record:
        case Begin(t=t, epoch=epoch) | Answer(t=t, epoch=epoch) | Commit(t=t, epoch=epoch):
            told = f"of {t} in {epoch_text(epoch)}"
        case Input(t=t, endpoint=name) | Amend(t=t, endpoint=name) | Evolve(t=t, table=name):
            told = f"of {t} from {name}"
        case Seal(t=t):
            told = f"of {t}"
        case Checkpoint(t=t):
            told = "at the start" if t is None else f"at {t}"
        case Endpoint(name=name, action=action):
            told = f"{name} {action}"
        case Program(hash=name) | Bind(name=name) | Abort(handle=name):
            told = name
        case Promote(epoch=epoch):
            told = epoch_text(epoch)
        case Retain(transactions=count):
            told = "all" if count is None else str(count)
        case _:
            assert_never(record)
    return told
