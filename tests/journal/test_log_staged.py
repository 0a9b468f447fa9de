"""What was staged so long ago that it may be swept gets on record by nobody."""

from __future__ import annotations

import pytest
from tests.journal.test_log import faulty

from strandline.errors import MaybeAppliedError, NotAppliedError
from strandline.journal import record as r
from strandline.journal.log import Journal, Lost
from strandline.journal.staging import INLINE_MAX, STAGED_MS, program_record
from strandline.journal.standing import Standing
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult
from strandline.testing.faults import FaultKind
from strandline.testing.journals import founded, won
from strandline.testing.lab import Lab


def _old_by_now(lab: Lab, kind: FaultKind | None) -> tuple[Journal, Standing, r.Program]:
    """A program that was staged, and a process that stands still before its record is written, or
    between the first attempt to write it and the second."""
    journal, _ = faulty(lab, kind or FaultKind.NOT_APPLIED, 1 if kind else 99)
    standing = founded(journal)
    record = program_record(journal.env, "shop", "p2", "x" * INLINE_MAX * 2)
    write, left = journal.entries.write, [1]

    def paused(seqno: SeqNo, data: bytes) -> CasResult:
        try:
            return write(seqno, data)
        finally:
            lab.clock.now += left.pop() * STAGED_MS if left else 0

    if kind is None:
        lab.clock.now += STAGED_MS
    journal.entries.write = paused  # type: ignore[method-assign]
    return journal, standing, record


def test_what_was_staged_long_ago_is_not_put_on_record(lab: Lab) -> None:
    journal, standing, record = _old_by_now(lab, None)
    outcome = journal.propose(standing, [record])
    assert isinstance(outcome, Lost)
    assert outcome.standing == standing
    again = program_record(journal.env, "shop", "p2", "x" * INLINE_MAX * 2)
    assert won(journal.propose(standing, [again])).programs["p2"] == again


def test_what_grew_old_between_two_attempts_stays_in_doubt(lab: Lab) -> None:
    journal, standing, record = _old_by_now(lab, FaultKind.LOST_REQUEST)
    with pytest.raises(MaybeAppliedError):
        journal.propose(standing, [record])
    assert journal.refresh() == standing


def test_a_clock_that_stops_after_an_attempt_leaves_it_in_doubt(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, standing, record = _old_by_now(lab, FaultKind.LOST_REQUEST)
    write = journal.entries.write

    def refused() -> int:
        raise NotAppliedError("no clock")

    def stopping(seqno: SeqNo, data: bytes) -> CasResult:
        monkeypatch.setattr(type(journal.env.consensus), "now_ms", lambda _: refused())
        return write(seqno, data)

    monkeypatch.setattr(journal.entries, "write", stopping)
    with pytest.raises(MaybeAppliedError):
        journal.propose(standing, [record])
