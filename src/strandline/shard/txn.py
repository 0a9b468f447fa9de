"""Transactions of applications: a batch that is tried again counts once. Pure.

An application (a streaming query, a loader) numbers its batches, and after a crash tries one
again without knowing whether it counted. A shard remembers the newest batch of each application
in its state, from the very version that appended it on:

    batch                     its content         outcome
    -----------------------   -----------------   ------------------------------------------
    newer than the newest     any                 it is appended, and is the newest from now on
    the newest                the same digest     Repeated: it counted, nothing is appended
    the newest                another digest      Diverged: it is not the batch that counted
    older than the newest     not looked at       Repeated: only the newest digest is kept
    an application's first    there are too many  Refused: forget some by name
    any, through a timeline   any                 Refused: it could still be withdrawn

    R24  the newest batch of an application never moves back, and its digest moves only with it
    R25  applications are forgotten one by one and by name, or with their shard; an append
         forgets none, and there are at most `APPS_MAX`
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from strandline.errors import NameRefusedError, UsageError, invariant
from strandline.model.digest import Digest
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.model.ids import SeqNo

APPS_MAX = 10_000
"""So many applications are remembered: the state of a shard has to stay small."""

_BATCH_MAX = 2**63 - 1
# ASCII, because two spellings of one name would be two applications, and count twice.
_APP = re.compile(r"[!-~]([ -~]{0,126}[!-~])?")


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest batch of an application that counted."""

    batch: int
    digest: bytes
    """What it was compared by: of its rows, unless the application gave another one."""
    seqno: int
    """The version that appended it."""
    instant_ms: int = 0

    @property
    def total(self) -> Digest:
        return Digest.unpack(self.digest)


@dataclass(frozen=True, slots=True)
class Txn:
    """One batch of an application, as `Writer.append` takes it.

    Without a `digest` a batch is compared by the rows that it appends, at whatever time. Give
    one where these follow from what the shard holds already, as those of an upsert do: then the
    same input gives other rows when it comes again, so the input itself has to be digested.
    """

    app: str
    batch: int
    digest: Digest | None = None


def valid_app(app: object) -> str:
    """Return `app` if it may name an application."""
    if not isinstance(app, str) or not _APP.fullmatch(app):
        raise NameRefusedError(
            f"application name {printable(app)} is refused: use 1 to 128 printable ASCII "
            "characters, without a space at either end"
        )
    return app


def valid_txn(txn: Txn | tuple[str, int]) -> Txn:
    """A transaction from what callers write: `(app, batch)`, or a `Txn`."""
    given = txn if isinstance(txn, Txn) else Txn(*_pair(txn))
    valid_app(given.app)
    if type(given.batch) is not int or not 0 <= given.batch <= _BATCH_MAX:
        raise UsageError(
            f"application {given.app}: a batch has a number from 0 to {_BATCH_MAX}, "
            f"not {printable(given.batch)}"
        )
    return given


def _pair(txn: object) -> tuple[str, int]:
    if not isinstance(txn, tuple) or len(txn) != 2:
        raise UsageError(f"a transaction is (application, batch), not {printable(txn)}")
    return txn


def divergence(app: str, mark: Mark, digest: Digest) -> str:
    """What is wrong with a batch that has the newest one's number and another content."""
    return (
        f"batch {mark.batch} of application {app} counted as v{mark.seqno} with the digest "
        f"{mark.total}, and is now {digest}: a batch that is tried again has to be the same; "
        "make its source repeatable, or use another application name"
    )


def check_marks(
    before: Mapping[str, Mark], after: Mapping[str, Mark], seqno: SeqNo, *, appended: bool
) -> None:
    """Stop if a version broke R24 or R25."""
    if after is before:
        return
    invariant(len(after) <= APPS_MAX, "R25: more applications than may be remembered")
    gone = 0
    for app, old in before.items():
        new = after.get(app)
        if new is None:
            gone += 1
        elif new is not old and new != old:
            invariant(old.batch < new.batch, f"R24: application {app} moved back, or in place")
    invariant(gone == 0 or (gone == 1 and not appended), "R25: an application was evicted")
    fresh = [mark for app, mark in after.items() if before.get(app) != mark]
    invariant(all(mark.seqno == seqno.number for mark in fresh), "R24: a batch of no append")
