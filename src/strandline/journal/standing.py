"""Where a pipeline stands: all its records, added up. Pure.

`advance` is the whole law of the journal. What each record needs to be legal:

    record       needs
    ----------   ------------------------------------------------------------------------------
    PROGRAM      it is not on record yet
    BIND         nothing is sealed
    ENDPOINT     a legal move: added, paused, resumed, removed; what another source had is committed
    PROMOTE      nothing is sealed; the epoch is one more; the program is on record
    BEGIN        nothing is sealed; the next time, this epoch, this program, the versions of this
                 epoch; its handle is open; its clock does not go back
    INPUT        its BEGIN; one per endpoint, which is neither removed nor paused; nothing that
                 was taken before; one that replaces a table is staged, and the table's only one
    SEAL         its BEGIN
    AMEND        this very time is sealed, with this endpoint, and has no ANSWER; no more is
                 read than was sealed
    EVOLVE       this very time is sealed, and has no ANSWER; columns that the table was not given
                 before
    ANSWER       this very time is sealed, and has none; this epoch; a digest for each endpoint
                 and for no other
    COMMIT       this very time has an ANSWER, with the same digests; this epoch; its clock does
                 not go back
    ABORT        the handle was not closed before
    RETAIN       one transaction at least
    CHECKPOINT   nothing is sealed; the last committed time, this epoch, this program

and between BEGIN and SEAL nothing but INPUT. The first record founds the pipeline: it has no
epoch before its first PROMOTE, and nothing can begin. All else is refused by name, both when it
is about to be written and when it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from strandline.errors import JournalError, invariant
from strandline.journal import record as r
from strandline.journal.chain import ORIGIN
from strandline.journal.needs import (
    clock_forward,
    not_taken,
    nothing_sealed,
    of_begun,
    of_sealed,
    of_this_epoch,
    refuse,
    replaces_alone,
    still_open,
    within_sealed,
)
from strandline.journal.record import (
    Amend,
    Answer,
    Begin,
    Input,
    Position,
    Program,
    StagedRef,
)
from strandline.journal.sealed import Sealed
from strandline.model.frontier import Frontier, Time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KEPT = 2
"""So many checkpoints are kept."""

ANONYMOUS = "anonymous."
"""How the names of producers begin that were given to processes, one to each."""
ANONYMOUS_MAX = 1_000
"""So many of these stay known of an endpoint, those who pushed last: only the process itself can
repeat what it pushed, at once, and no name is ever given again."""

_replace = msgspec.structs.replace
_MOVES = {
    ("", "added"): "live",
    ("removed", "added"): "live",
    ("live", "paused"): "paused",
    ("paused", "resumed"): "live",
    ("live", "removed"): "removed",
    ("paused", "removed"): "removed",
}


class Bound(msgspec.Struct, frozen=True, array_like=True):
    """What a name of the program means."""

    shard: str
    role: str
    since: Time = 0
    """The first transaction that finds it so: there a view is built from what it reads."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint that is kept, and where."""

    lsn: int
    entry: int
    t: Time | None
    snapshot: StagedRef


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fold of all records up to `lsn`. Its mappings are shared: never change one in place."""

    pipeline: str
    lsn: int
    """The last record; -1 before the first."""
    digest: bytes
    """The hash of the last record of the last whole entry."""
    entry: int
    """The consensus version of the last whole entry; -1 before the first."""
    last: str
    """The last record in words, led by its kind; empty before the first."""
    epoch: int
    program: str
    """The hash of the program that was promoted last."""
    versions: dict[str, str]
    """Of whoever runs live in this epoch."""
    programs: dict[str, Program]
    """That program, and those that were put on record after it."""
    bindings: dict[str, Bound]
    endpoints: dict[str, str]
    """`live`, `paused` or `removed`, for each endpoint that was ever added."""
    committed: Frontier
    instant_ms: int
    """The latest instant on record, of a BEGIN or a COMMIT; none after it is earlier."""
    committed_ms: int
    """The instant of the last COMMIT."""
    begun: Sealed | None
    """Between BEGIN and SEAL, which only the inside of an entry is."""
    sealed: Sealed | None
    """Sealed and not yet committed."""
    positions: dict[str, Position]
    """By endpoint, what the committed transactions have taken."""
    acknowledged: dict[str, Position]
    """The positions of the newest checkpoint: sources may forget what is before them (S86)."""
    producers: dict[str, dict[str, int]]
    """By endpoint, the last sequence number of each producer that was sealed: of all that gave
    their names, and of `ANONYMOUS_MAX` that did not."""
    closed: dict[str, Time | None]
    """Handles that were closed: with their time if they committed. See `Checkpoints.publish`."""
    checkpoints: tuple[Kept, ...]
    """The newest ones, the newest last."""
    added: dict[str, dict[str, str]]
    """By table, columns that its source brought, with their types."""
    origins: dict[str, str]
    """By endpoint, which source it was added as."""
    retain: int | None = None
    """How many transactions back everything is kept; `None` is all, as before form 3. It is left
    out of a snapshot then, whose bytes are what they were."""

    @classmethod
    def empty(cls, pipeline: str) -> Standing:
        """Before the first record."""
        return cls(
            pipeline=pipeline,
            lsn=-1,
            digest=ORIGIN,
            entry=-1,
            last="",
            epoch=0,
            program="",
            versions={},
            programs={},
            bindings={},
            endpoints={},
            committed=Frontier(0),
            instant_ms=0,
            committed_ms=0,
            begun=None,
            sealed=None,
            positions={},
            acknowledged={},
            producers={},
            closed={},
            checkpoints=(),
            added={},
            origins={},
        )

    @property
    def next_t(self) -> Time:
        """The time of the next transaction, or of the one that is sealed. No gap, no reuse."""
        invariant(self.committed.time is not None, "a pipeline never ends its time")
        return self.committed.time or 0

    @property
    def last_kind(self) -> str:
        """`COMMIT` and so on; empty before the first record."""
        return self.last.partition(" ")[0]

    @property
    def pending(self) -> dict[str, Position]:
        """The positions once what is sealed is committed: from here the next plan starts."""
        return self.positions if self.sealed is None else taken(self.positions, self.sealed.inputs)

    def not_before(self, now_ms: int) -> int:
        """`now_ms`, or the latest instant on record where the store's clock went back."""
        return max(now_ms, self.instant_ms)


def advance(standing: Standing, record: r.Record) -> Standing:
    """The standing after one more record; `JournalError` names both if it may not follow."""
    if standing.begun is not None and not isinstance(record, (Input, r.Seal)):
        refuse(standing, record, f"{standing.begun.t} is begun and not sealed")
    after = _RULES[type(record)](standing, record)
    return _replace(after, lsn=standing.lsn + 1, last=r.describe(record))


def advance_all(standing: Standing, records: Iterable[r.Record]) -> Standing:
    """The standing after a whole entry.

    It may not end between BEGIN and SEAL, and the first one has to promote a program: a journal
    that anybody can find has an epoch.
    """
    for record in records:
        standing = advance(standing, record)
    if standing.epoch == 0:
        raise JournalError(f"pipeline {standing.pipeline}: its first entry promotes no program")
    if standing.begun is not None:
        raise JournalError(
            f"pipeline {standing.pipeline}: the entry that ends with record "
            f"{r.lsn_text(standing.lsn)} begins {standing.begun.t} and does not seal it"
        )
    return standing


def settle(standing: Standing, entry: int, digest: bytes) -> Standing:
    """The standing after an entry, with the entry's place in the chain."""
    return _replace(standing, entry=entry, digest=digest)


def taken(positions: dict[str, Position], inputs: Iterable[Input]) -> dict[str, Position]:
    """Positions after some inputs. An empty range `[6, 6)` leaves its partition at 6 (S77)."""
    after = dict(positions)
    for each in inputs:
        if each.taken is not None:
            stops = {partition: stop for partition, (_, stop) in each.taken.items()}
            after[each.endpoint] = {**after.get(each.endpoint, {}), **stops}
    return after


def _program(standing: Standing, record: Program) -> Standing:
    if record.hash in standing.programs:
        refuse(standing, record, "that program is on record already")
    if (record.text is None) == (record.staged is None):
        refuse(standing, record, "a program has a text, here or staged, and one only")
    return _replace(standing, programs={**standing.programs, record.hash: record})


def _bind(standing: Standing, record: r.Bind) -> Standing:
    nothing_sealed(standing, record)
    bindings = {**standing.bindings}
    if record.shard is not None:
        bindings[record.name] = Bound(record.shard, record.role, standing.next_t)
    elif bindings.pop(record.name, None) is None:
        refuse(standing, record, "there is no such name to give up")
    return _replace(standing, bindings=bindings)


def _endpoint(standing: Standing, record: r.Endpoint) -> Standing:
    before = standing.endpoints.get(record.name, "")
    after = _MOVES.get((before, record.action))
    if after is None:
        refuse(standing, record, f"that endpoint is {before or 'unknown'}")
    standing = _replace(standing, endpoints={**standing.endpoints, record.name: after})
    return _added(standing, record) if record.action == "added" else standing


def _added(standing: Standing, record: r.Endpoint) -> Standing:
    """The same source goes on where it was: its rows are in the table. Another one begins anew.
    Producers stay known in any case: what they pushed is in the table, whoever fed it between."""
    name = record.name
    if standing.origins.get(name, "") == record.source:
        return standing
    if standing.sealed is not None and name in standing.sealed.endpoints:
        refuse(standing, record, f"{standing.sealed.t} is sealed, and takes from the one before")
    return _replace(
        standing,
        origins={**standing.origins, name: record.source},
        positions={key: each for key, each in standing.positions.items() if key != name},
        acknowledged={key: each for key, each in standing.acknowledged.items() if key != name},
    )


def _promote(standing: Standing, record: r.Promote) -> Standing:
    nothing_sealed(standing, record)
    if record.epoch != standing.epoch + 1:
        refuse(standing, record, f"the next epoch is {r.epoch_text(standing.epoch + 1)}")
    program = standing.programs.get(record.program)
    if program is None:
        refuse(standing, record, "its program is not on record")
    return _replace(
        standing,
        epoch=record.epoch,
        program=record.program,
        versions=record.versions,
        programs={record.program: program},
    )


def _begin(standing: Standing, record: Begin) -> Standing:
    nothing_sealed(standing, record)
    of_this_epoch(standing, record)
    if record.t != standing.next_t:
        refuse(standing, record, f"the next time is {standing.next_t}")
    if record.program != standing.program:
        refuse(standing, record, "it is of another program than the one that was promoted")
    if record.versions != standing.versions:
        refuse(standing, record, "it is of other versions than its epoch")
    if record.handle is not None:
        still_open(standing, record, record.handle)
    clock_forward(standing, record, record.now_ms)
    return _replace(standing, begun=Sealed(record, ()), instant_ms=record.now_ms)


def _input(standing: Standing, record: Input) -> Standing:
    begun = of_begun(standing, record)
    if record.endpoint in begun.endpoints:
        refuse(standing, record, "that endpoint has an input in this transaction already")
    if standing.endpoints.get(record.endpoint, "live") != "live":
        refuse(standing, record, f"that endpoint is {standing.endpoints[record.endpoint]}")
    not_taken(standing, record, record.taken)
    replaces_alone(standing, record, begun.inputs)
    known = standing.producers.get(record.endpoint, {})
    for producer, sequence in record.producers.items():
        if sequence <= known.get(producer, -1):
            refuse(standing, record, f"{sequence} of producer {producer} was sealed before")
    return _replace(standing, begun=Sealed(begun.begin, (*begun.inputs, record)))


def _seal(standing: Standing, record: r.Seal) -> Standing:
    sealed = of_begun(standing, record)
    handle = sealed.begin.handle
    producers = standing.producers
    for each in sealed.inputs:
        if each.producers:
            known = _pushed(producers.get(each.endpoint, {}), each.producers)
            producers = {**producers, each.endpoint: known}
    return _replace(
        standing,
        begun=None,
        sealed=sealed,
        producers=producers,
        closed=standing.closed if handle is None else {**standing.closed, handle: sealed.t},
    )


def _pushed(known: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    """The producers of an endpoint after some pushes; who pushed last is last."""
    after = {name: sequence for name, sequence in known.items() if name not in new} | new
    anonymous = [name for name in after if name.startswith(ANONYMOUS)]
    over = set(anonymous[:-ANONYMOUS_MAX])
    return {name: sequence for name, sequence in after.items() if name not in over}


def _amend(standing: Standing, record: Amend) -> Standing:
    sealed = of_sealed(standing, record)
    if sealed.answer is not None:
        refuse(standing, record, f"{sealed.t} is answered, and its rows may have landed")
    before = [each for each in sealed.inputs if each.endpoint == record.endpoint]
    if not before:
        refuse(standing, record, "that endpoint has no input in this transaction")
    within_sealed(standing, record, before[0].taken)
    return _replace(standing, sealed=_replace(sealed, amends=(*sealed.amends, record)))


def _evolve(standing: Standing, record: r.Evolve) -> Standing:
    sealed = of_sealed(standing, record)
    if sealed.answer is not None:
        refuse(standing, record, f"{sealed.t} is answered, and its rows may have landed")
    if record.table not in {each.table for each in sealed.inputs}:
        refuse(standing, record, "that table has no input in this transaction")
    known = standing.added.get(record.table, {})
    if not record.columns or record.columns.keys() & known.keys():
        refuse(standing, record, f"it adds nothing, or again one of {', '.join(known)}")
    return _replace(standing, added={**standing.added, record.table: {**known, **record.columns}})


def _answer(standing: Standing, record: Answer) -> Standing:
    sealed = of_sealed(standing, record)
    of_this_epoch(standing, record)
    if sealed.answer is not None:
        refuse(standing, record, f"{sealed.t} is answered already")
    for endpoint in sealed.endpoints:
        if endpoint not in record.inputs:
            refuse(standing, record, f"endpoint {endpoint} was sealed and has no digest")
    for endpoint in record.inputs:
        if endpoint not in sealed.endpoints:
            refuse(standing, record, f"endpoint {endpoint} has a digest and was not sealed")
    return _replace(standing, sealed=_replace(sealed, answer=record))


def _commit(standing: Standing, record: r.Commit) -> Standing:
    sealed = of_sealed(standing, record)
    of_this_epoch(standing, record)
    if sealed.answer is None:
        refuse(standing, record, f"{sealed.t} is not answered")
    if (record.inputs, record.deltas) != (sealed.answer.inputs, sealed.answer.deltas):
        refuse(standing, record, "its digests are not those of its ANSWER")
    clock_forward(standing, record, record.instant_ms)
    return _replace(
        standing,
        committed=Frontier(sealed.t + 1),
        instant_ms=record.instant_ms,
        committed_ms=record.instant_ms,
        sealed=None,
        positions=taken(standing.positions, sealed.inputs),
    )


def _abort(standing: Standing, record: r.Abort) -> Standing:
    still_open(standing, record, record.handle)
    return _replace(standing, closed={**standing.closed, record.handle: None})


def _retain(standing: Standing, record: r.Retain) -> Standing:
    if record.transactions is not None and record.transactions < 1:
        refuse(standing, record, "the next transaction reads the last one: keep 1 at least")
    return _replace(standing, retain=record.transactions)


def _checkpoint(standing: Standing, record: r.Checkpoint) -> Standing:
    nothing_sealed(standing, record)
    of_this_epoch(standing, record)
    if record.t != standing.committed.last():
        refuse(standing, record, f"{standing.committed} is committed")
    if record.program != standing.program:
        refuse(standing, record, "it is of another program than the one that was promoted")
    unknown = [handle for handle in record.forgotten if handle not in standing.closed]
    if unknown:
        refuse(standing, record, f"handle {unknown[0]} is to be forgotten and was not closed")
    kept = Kept(standing.lsn + 1, standing.entry + 1, record.t, record.snapshot)
    return _replace(
        standing,
        checkpoints=(*standing.checkpoints, kept)[-KEPT:],
        acknowledged=standing.positions,
        closed={each: t for each, t in standing.closed.items() if each not in record.forgotten},
    )


_RULES: dict[type[r.Record], Callable[[Standing, Any], Standing]] = {
    Program: _program,
    r.Bind: _bind,
    r.Endpoint: _endpoint,
    r.Promote: _promote,
    Begin: _begin,
    Input: _input,
    r.Seal: _seal,
    Amend: _amend,
    r.Evolve: _evolve,
    Answer: _answer,
    r.Commit: _commit,
    r.Abort: _abort,
    r.Retain: _retain,
    r.Checkpoint: _checkpoint,
}
