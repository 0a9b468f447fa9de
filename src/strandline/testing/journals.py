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
    from strandline.journal.log import Journal, Lost

PROGRAM = "p1"
SOURCE = "orders.kafka"
VERSIONS = {"strandline": "0.1.0", "python": "3.11"}


def founding(program: str = PROGRAM, text: str = "CREATE TABLE orders …") -> list[r.Record]:
    """The first entry of a pipeline with one table and one source."""
    return [
        r.Program(program, text, None),
        r.Bind("orders", "shop.orders", "table"),
        r.Endpoint(SOURCE, "added"),
        r.Promote(1, program, VERSIONS),
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
    producers = {attempt: 0} if attempt else {}
    instant_ms = standing.not_before(now_ms)
    taken = r.Input(t, SOURCE, "orders", {"0": (start, start + rows)}, (), producers)
    pushed = r.Input(t, f"handle.{handle}", "orders", None, (), producers)
    return [
        r.Begin(t, standing.epoch, standing.program, instant_ms, standing.versions, handle),
        taken if handle is None else pushed,
        r.Seal(t),
    ]


def answering(standing: Standing, *, epoch: int | None = None) -> r.Answer:
    """The answer to what is sealed; its digests follow from the input, as they should."""
    sealed = standing.sealed
    invariant(sealed is not None, "something is sealed")
    assert sealed is not None
    digest = Digest(len(sealed.inputs), sealed.t, 7).pack()
    return r.Answer(
        sealed.t,
        standing.epoch if epoch is None else epoch,
        dict.fromkeys(sealed.endpoints, digest),
        {"orders": digest},
        standing.versions,
    )


def amending(standing: Standing) -> r.Amend:
    """Nothing is read in place of the first input of what is sealed."""
    sealed = standing.sealed
    invariant(sealed is not None, "something is sealed")
    assert sealed is not None
    return r.Amend(sealed.t, sealed.endpoints[0], None, (), "it is gone")


def committing(standing: Standing, *, now_ms: int = 0, epoch: int | None = None) -> r.Commit:
    """The commit of what is sealed, with the digests of its answer."""
    answer = answering(standing, epoch=epoch)
    return r.Commit(
        answer.t, answer.epoch, standing.not_before(now_ms), answer.inputs, answer.deltas
    )


def finishing(standing: Standing, *, now_ms: int = 0) -> list[r.Record]:
    """An entry that answers what is sealed and commits it: there is nothing to land."""
    return [answering(standing), committing(standing, now_ms=now_ms)]


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
        standing = won(journal.propose(sealed, finishing(sealed, now_ms=now_ms)))
    return standing
