"""Journals for tests: records as a replica would write them, without anything to compute.

journal = Journal(lab.env(), "shop")
standing = founded(journal)
standing = transacted(journal, standing, rows=5)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import invariant
from strandline.journal import record as r
from strandline.journal.standing import Standing
from strandline.model.digest import Digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.journal.log import Journal, Lost

PROGRAM = "p1"
SOURCE = "orders.kafka"
_VERSIONS = {"strandline": "0.1.0", "python": "3.11"}


def founding(program: str = PROGRAM, text: str = "CREATE TABLE orders …") -> list[r.Record]:
    """The first entry of a pipeline with one table and one source."""
    return [
        r.Program(program, text, None),
        r.Bind("orders", "shop.orders", "table"),
        r.Endpoint(SOURCE, "added"),
        r.Promote(1, program),
    ]


def sealing(
    standing: Standing,
    *,
    rows: int = 3,
    now_ms: int = 0,
    handle: str | None = None,
    attempt: str = "",
) -> list[r.Record]:
    """An entry that takes the next rows of the source; or what a handle staged."""
    t = standing.next_t
    start = standing.pending.get(SOURCE, {}).get("0", 0)
    versions = {**_VERSIONS, "attempt": attempt} if attempt else _VERSIONS
    instant_ms = standing.not_before(now_ms)
    taken = r.Input(t, SOURCE, "orders", {"0": (start, start + rows)}, (), {})
    pushed = r.Input(t, f"handle.{handle}", "orders", None, (), {})
    return [
        r.Begin(t, standing.epoch, standing.program, instant_ms, versions, handle),
        taken if handle is None else pushed,
        r.Seal(t),
    ]


def committing(standing: Standing, *, now_ms: int = 0, epoch: int | None = None) -> r.Commit:
    """The commit of what is sealed; its digests follow from the input, as they should."""
    sealed = standing.sealed
    invariant(sealed is not None, "something is sealed")
    assert sealed is not None
    digest = Digest(len(sealed.inputs), sealed.t, 7).pack()
    return r.Commit(
        sealed.t,
        standing.epoch if epoch is None else epoch,
        standing.not_before(now_ms),
        dict.fromkeys(sealed.endpoints, digest),
        {"orders": digest},
    )


def won(outcome: Standing | Lost) -> Standing:
    """The standing of a proposal that nobody raced."""
    assert isinstance(outcome, Standing), outcome
    return outcome


def founded(journal: Journal) -> Standing:
    """The standing of a new pipeline."""
    return won(journal.propose(journal.refresh(), founding()))


def written(journal: Journal, *records: r.Record) -> Standing:
    """The standing after one more entry."""
    return won(journal.propose(journal.refresh(), records))


def transacted(
    journal: Journal, standing: Standing, *, rows: int = 3, now_ms: int = 0, count: int = 1
) -> Standing:
    """The standing after so many whole transactions."""
    for _ in range(count):
        sealed = won(journal.propose(standing, sealing(standing, rows=rows, now_ms=now_ms)))
        commit: Sequence[r.Record] = [committing(sealed, now_ms=now_ms)]
        standing = won(journal.propose(sealed, commit))
    return standing
