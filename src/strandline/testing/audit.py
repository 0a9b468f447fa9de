"""Judges every entry that was ever written to a journal, by rules told a second time. Pure.

It shares nothing with `strandline.journal` but the envelope: records are plain lists here, so a
mistake in the law of the journal does not hide itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from strandline.parts.envelope import unseal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.store.consensus import Versioned


@dataclass(slots=True)
class Truth:
    """What the records add up to."""

    wrong: list[str] = field(default_factory=list)
    lsn: int = -1
    digest: bytes = bytes(16)
    epoch: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    """Of the epoch."""
    sealed: int | None = None
    answer: list[Any] | None = None
    """The digests of what is sealed, once they are on record."""
    next_t: int = 0
    instant_ms: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    handles: dict[str, str] = field(default_factory=dict)
    attempts: set[str] = field(default_factory=set)
    instants: list[int] = field(default_factory=list)
    """When each time was committed."""
    checkpoints: list[tuple[int, int]] = field(default_factory=list)
    """The number of the entry and of the record of each."""


def committed_by(pipeline: str, version: Versioned) -> tuple[int, int]:
    """How far the pipeline is committed, and since when, as the head of one entry says."""
    entry = _entry(pipeline, version)
    return int(entry[2]), int(entry[3])


def audit(pipeline: str, versions: Sequence[Versioned]) -> Truth:
    """Everything that is wrong with a journal from its first entry on."""
    truth = Truth()
    for version in versions:
        entry = _entry(pipeline, version)
        for lsn, prev, digest, body in entry[5]:
            _chain(truth, lsn, prev, digest, body)
            kind, *fields = msgspec.msgpack.decode(body)
            _RULES.get(kind, _pass)(truth, fields)
            if kind == "CHECKPOINT":
                truth.checkpoints.append((version.seqno.number, lsn))
        instant_ms = truth.instants[-1] if truth.instants else 0
        if entry[2:5] != [truth.next_t, instant_ms, truth.epoch]:
            truth.wrong.append(f"the head of {version.seqno} does not say what its records do")
    return truth


def audit_cuts(
    versions: Sequence[Versioned], truth: Truth, cuts: Iterable[tuple[int, int]]
) -> None:
    """Each cut, as (before which entry, how many there were), kept two checkpoints."""
    for before, count in cuts:
        kept = [entry for entry, _ in truth.checkpoints if entry < min(count, len(versions))][-2:]
        if len(kept) < 2 or before > kept[0]:
            truth.wrong.append(f"cut below v{before} while the checkpoints kept were at {kept}")


def audit_told(truth: Truth, told: Iterable[tuple[str, bool]]) -> None:
    """Each attempt that was told to have counted did, and no other."""
    for attempt, counted in told:
        if counted != (attempt in truth.attempts):
            truth.wrong.append(f"attempt {attempt} was told {counted}, which is not so")


def _entry(pipeline: str, version: Versioned) -> list[Any]:
    _, body = unseal(
        version.data, kind="journal", owner=pipeline, at=str(version.seqno), what="an entry"
    )
    found: list[Any] = msgspec.msgpack.decode(body)
    return found


def _chain(truth: Truth, lsn: int, prev: bytes, digest: bytes, body: bytes) -> None:
    _expect(truth, lsn == truth.lsn + 1, f"record {lsn} follows {truth.lsn}")
    own = blake2b(truth.digest + lsn.to_bytes(8, "big") + body, digest_size=16).digest()
    _expect(truth, (prev, digest) == (truth.digest, own), f"record {lsn} breaks the chain")
    truth.lsn, truth.digest = lsn, digest


def _begin(truth: Truth, fields: list[Any]) -> None:
    t, epoch, _, now_ms, versions, handle = fields
    _expect(truth, versions == truth.versions, f"{t} begins in other versions than its epoch")
    _expect(truth, truth.sealed is None and t == truth.next_t, f"{t} begins at {truth.next_t}")
    _expect(truth, epoch == truth.epoch, f"{t} begins in e{epoch}, and this is e{truth.epoch}")
    _instant(truth, now_ms)
    if handle is not None:
        _close(truth, handle, f"commits as {t}")


def _input(truth: Truth, fields: list[Any]) -> None:
    t, endpoint, _, taken, _, producers = fields[:6]
    truth.attempts |= producers.keys()
    for start, stop in (taken or {}).values():
        expected = truth.positions.get(endpoint, 0)
        _expect(truth, start == expected, f"{t} takes {start} of {endpoint}, not {expected}")
        truth.positions[endpoint] = stop


def _seal(truth: Truth, fields: list[Any]) -> None:
    truth.sealed, truth.answer = fields[0], None


def _amend(truth: Truth, fields: list[Any]) -> None:
    t = fields[0]
    _expect(truth, t == truth.sealed, f"{t} is amended, {truth.sealed} is sealed")
    _expect(truth, truth.answer is None, f"{t} is amended after its answer")


def _answer(truth: Truth, fields: list[Any]) -> None:
    t, epoch, inputs, deltas = fields[:4]
    _expect(truth, t == truth.sealed, f"{t} is answered, {truth.sealed} is sealed")
    _expect(truth, truth.answer is None, f"{t} is answered twice")
    _expect(truth, epoch == truth.epoch, f"{t} is answered in e{epoch}, not in e{truth.epoch}")
    truth.answer = [inputs, deltas]


def _commit(truth: Truth, fields: list[Any]) -> None:
    t, epoch, instant_ms, *digests = fields
    _expect(truth, t == truth.sealed == truth.next_t, f"{t} commits, {truth.sealed} is sealed")
    _expect(truth, digests == truth.answer, f"{t} commits what is not its answer")
    _expect(truth, epoch == truth.epoch, f"{t} commits in e{epoch}, and this is e{truth.epoch}")
    _instant(truth, instant_ms)
    truth.sealed, truth.answer, truth.next_t = None, None, t + 1
    truth.instants.append(instant_ms)


def _checkpoint(truth: Truth, fields: list[Any]) -> None:
    t = -1 if fields[0] is None else fields[0]
    _expect(truth, truth.sealed is None, f"a checkpoint while {truth.sealed} is sealed")
    _expect(truth, t == truth.next_t - 1, f"a checkpoint at {t}, not at {truth.next_t - 1}")


def _promote(truth: Truth, fields: list[Any]) -> None:
    _expect(truth, truth.sealed is None, f"a promotion while {truth.sealed} is sealed")
    _expect(truth, fields[0] == truth.epoch + 1, f"e{fields[0]} follows e{truth.epoch}")
    truth.epoch, truth.versions = fields[0], fields[2]


def _abort(truth: Truth, fields: list[Any]) -> None:
    _close(truth, fields[0], "aborts")


def _pass(truth: Truth, fields: list[Any]) -> None:
    """Nothing to be said about the other kinds."""


def _close(truth: Truth, handle: str, how: str) -> None:
    before = truth.handles.get(handle)
    _expect(truth, before is None, f"handle {handle} {how}, and before that it {before}")
    truth.handles[handle] = how


def _instant(truth: Truth, instant_ms: int) -> None:
    _expect(truth, instant_ms >= truth.instant_ms, f"instant {instant_ms} goes back")
    truth.instant_ms = instant_ms


def _expect(truth: Truth, holds: object, otherwise: str) -> None:
    if not holds:
        truth.wrong.append(otherwise)


_RULES = {
    "BEGIN": _begin,
    "INPUT": _input,
    "SEAL": _seal,
    "AMEND": _amend,
    "ANSWER": _answer,
    "COMMIT": _commit,
    "CHECKPOINT": _checkpoint,
    "PROMOTE": _promote,
    "ABORT": _abort,
}
