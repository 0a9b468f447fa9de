"""What a replica does next: one table, and nothing else decides it (S93). Pure.

The last records of a journal leave it in one of five phases:

    empty     there is no record
    open      BEGIN or INPUT is last: nobody writes that, so the journal is torn
    sealed    a transaction is sealed and has no answer, whatever came after its SEAL
    answered  what it is is on record: it is landed as that, or not at all
    between   all else: COMMIT, CHECKPOINT, PROMOTE, … and nothing is sealed

A replica stands to it by its epoch: it has not joined any yet, or the journal's is newer than
its own (it is fenced), the same, or older, which can't be. Who writes also says what it is
after: its program is the journal's or another one, it is to promote it, or a checkpoint is due;
and the versions it runs are those of the epoch or others. A read-only replica writes nothing,
so nothing can fence it.

    phase     epoch             same     program       versions       promote  checkpoint
    --------  ----------------  -------  ------------  -------------  -------  --------------
    empty     not joined        Found    Found         Found          Found    Found
    empty     joined            Regressed, for all
    open      any               Torn, for all
    between   not joined, same  Plan     WrongProgram  WrongVersions  Promote  TakeCheckpoint
    sealed    not joined, same  Compute  WrongProgram  WrongVersions  Compute  Compute
    answered  not joined, same  Compute  WrongProgram  WrongVersions  Compute  Compute
    these 3   mine is older     Fenced, for all
    these 3   mine is newer     Regressed, for all

Who only reads does `Verify` or `Shadow` wherever others don't find the journal torn or regressed,
and waits while it is empty. What is sealed is computed under the program that it was sealed under,
so a promoter completes it first (S74), and a checkpoint waits for its commit (S64). What is
answered is computed, too: whoever lands it has to have its rows. `Verify` and `Shadow` become
`Wait` where everything that is committed was looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from strandline.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.journal.sealed import Sealed
    from strandline.journal.standing import Standing
    from strandline.model.frontier import Time


class Want(Enum):
    """What a replica is after, beyond going on."""

    NOTHING = "to go on"
    PROMOTE = "to raise the epoch, under its own program"
    CHECKPOINT = "a checkpoint, as soon as it may be"


@dataclass(frozen=True, slots=True)
class Me:
    """A replica, as far as the decision needs it."""

    program: str
    """The hash of its program."""
    epoch: int | None = None
    """The epoch that it joined; `None` until it has."""
    read_only: bool = False
    want: Want = Want.NOTHING
    at: Time = 0
    """For a read-only one: the next time that it has not looked at."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of all that an answer may depend on."""


@dataclass(frozen=True, slots=True)
class Found:
    """Write the first records: the program, its bindings, and the promotion to e1."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Nothing is sealed: ask the sources, and seal what they offer as `t`, in this epoch."""

    t: Time
    epoch: int


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute what is sealed, answer it, append it and commit it, in this epoch."""

    sealed: Sealed
    epoch: int


@dataclass(frozen=True, slots=True)
class Promote:
    """Write the program, its bindings and the promotion to this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Write a checkpoint; `t` is the last time that is committed."""

    t: Time | None


@dataclass(frozen=True, slots=True)
class Verify:
    """Compute a committed time again, and compare with its COMMIT."""

    t: Time


@dataclass(frozen=True, slots=True)
class Shadow:
    """Compute a committed time under another program than the journal's; compare the inputs."""

    t: Time


@dataclass(frozen=True, slots=True)
class Wait:
    """There is nothing to do until there are more records."""


@dataclass(frozen=True, slots=True)
class WrongProgram:
    """Stop: the pipeline runs another program. Run that one, or promote this one."""

    theirs: str


@dataclass(frozen=True, slots=True)
class WrongVersions:
    """Stop: this epoch runs other versions. Run those, look on read-only, or promote."""

    theirs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Fenced:
    """Stop: a newer epoch was promoted."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Regressed:
    """Stop: the journal is older than what this replica has seen of it."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Torn:
    """Stop: the last entry begins a transaction and does not seal it."""


Step = (
    Found
    | Plan
    | Compute
    | Promote
    | TakeCheckpoint
    | Verify
    | Shadow
    | Wait
    | WrongProgram
    | WrongVersions
    | Fenced
    | Regressed
    | Torn
)


class Phase(Enum):
    """What the last records leave behind."""

    EMPTY = "empty"
    OPEN = "open"
    BETWEEN = "between"
    SEALED = "sealed"
    ANSWERED = "answered"


class Relation(Enum):
    """How a replica's epoch stands to the journal's."""

    UNJOINED = "not joined"
    OLDER = "mine is older"
    SAME = "same"
    NEWER = "mine is newer"


class Mode(Enum):
    """What a replica may and wants to do."""

    SAME = "same"
    OTHER = "other program"
    VERSIONS = "other versions"
    PROMOTE = "promote"
    CHECKPOINT = "checkpoint"
    VERIFY = "read-only, same program"
    SHADOW = "read-only, other program"


_MODES = tuple(Mode)
_Row = tuple[type[Step], ...]
_EMPTY: _Row = (Found, Found, Found, Found, Found, Wait, Wait)
_TORN: _Row = (Torn,) * 7
_BETWEEN: _Row = (Plan, WrongProgram, WrongVersions, Promote, TakeCheckpoint, Verify, Shadow)
_SEALED: _Row = (Compute, WrongProgram, WrongVersions, Compute, Compute, Verify, Shadow)
_FENCED: _Row = (Fenced, Fenced, Fenced, Fenced, Fenced, Verify, Shadow)
_REGRESSED: _Row = (Regressed,) * 7
_ROWS: dict[tuple[Phase, Relation], _Row] = {
    (Phase.EMPTY, Relation.UNJOINED): _EMPTY,
    (Phase.EMPTY, Relation.OLDER): _REGRESSED,
    (Phase.EMPTY, Relation.SAME): _REGRESSED,
    (Phase.EMPTY, Relation.NEWER): _REGRESSED,
    (Phase.OPEN, Relation.UNJOINED): _TORN,
    (Phase.OPEN, Relation.OLDER): _TORN,
    (Phase.OPEN, Relation.SAME): _TORN,
    (Phase.OPEN, Relation.NEWER): _TORN,
    (Phase.BETWEEN, Relation.UNJOINED): _BETWEEN,
    (Phase.BETWEEN, Relation.OLDER): _FENCED,
    (Phase.BETWEEN, Relation.SAME): _BETWEEN,
    (Phase.BETWEEN, Relation.NEWER): _REGRESSED,
    (Phase.SEALED, Relation.UNJOINED): _SEALED,
    (Phase.SEALED, Relation.OLDER): _FENCED,
    (Phase.SEALED, Relation.SAME): _SEALED,
    (Phase.SEALED, Relation.NEWER): _REGRESSED,
    (Phase.ANSWERED, Relation.UNJOINED): _SEALED,
    (Phase.ANSWERED, Relation.OLDER): _FENCED,
    (Phase.ANSWERED, Relation.SAME): _SEALED,
    (Phase.ANSWERED, Relation.NEWER): _REGRESSED,
}
TABLE: dict[tuple[Phase, Relation, Mode], type[Step]] = {
    (phase, relation, mode): step
    for (phase, relation), row in _ROWS.items()
    for mode, step in zip(_MODES, row, strict=True)
}


def next_step(standing: Standing, me: Me) -> Step:
    """What `me` does on this standing."""
    kind = TABLE[phase_of(standing), relation_of(standing, me), mode_of(standing, me)]
    if kind in {Verify, Shadow}:
        return _look(kind, standing, me)
    if kind is Compute:
        invariant(standing.sealed is not None, "only what is sealed is computed")
        return Compute(standing.sealed, standing.epoch)  # type: ignore[arg-type]
    return _plain(kind, standing)


def phase_of(standing: Standing) -> Phase:
    if not standing.last:
        return Phase.EMPTY
    if standing.begun is not None:
        return Phase.OPEN
    if standing.sealed is None:
        return Phase.BETWEEN
    return Phase.SEALED if standing.sealed.answer is None else Phase.ANSWERED


def relation_of(standing: Standing, me: Me) -> Relation:
    if me.epoch is None:
        return Relation.UNJOINED
    if me.epoch == standing.epoch:
        return Relation.SAME
    return Relation.OLDER if me.epoch < standing.epoch else Relation.NEWER


def mode_of(standing: Standing, me: Me) -> Mode:
    same = me.program == standing.program
    if me.read_only:
        return Mode.VERIFY if same else Mode.SHADOW
    if me.want is Want.PROMOTE:
        return Mode.PROMOTE
    if not same:
        return Mode.OTHER
    if dict(me.versions) != standing.versions:
        return Mode.VERSIONS
    return Mode.CHECKPOINT if me.want is Want.CHECKPOINT else Mode.SAME


def _look(kind: type[Step], standing: Standing, me: Me) -> Step:
    if not standing.committed.settled(me.at):
        return Wait()
    return Verify(me.at) if kind is Verify else Shadow(me.at)


def _plain(kind: type[Step], standing: Standing) -> Step:
    """The steps that say no more than the standing does."""
    steps: dict[type[Step], Step] = {
        Found: Found(),
        Plan: Plan(standing.next_t, standing.epoch),
        Promote: Promote(standing.epoch + 1),
        TakeCheckpoint: TakeCheckpoint(standing.committed.last()),
        Wait: Wait(),
        WrongProgram: WrongProgram(standing.program),
        WrongVersions: WrongVersions(tuple(sorted(standing.versions.items()))),
        Fenced: Fenced(standing.epoch),
        Regressed: Regressed(standing.epoch),
        Torn: Torn(),
    }
    return steps[kind]
