"""The auditor objects to each thing that may not be, and to nothing else."""

from __future__ import annotations

import msgspec
import pytest

from strandline.journal import record as r
from strandline.journal.chain import Entry, encode_entry, link
from strandline.journal.log import Journal
from strandline.model.ids import SeqNo
from strandline.store.consensus import Versioned
from strandline.testing.audit import Truth, audit, audit_cuts, audit_told, committed_by
from strandline.testing.journals import VERSIONS, founded, founding, transacted
from strandline.testing.lab import Lab

BEGIN = r.Begin(0, 1, "p1", 10, VERSIONS, None)
TAKEN = r.Input(0, "e", "orders", {"0": (0, 3)}, (), {})
ANSWER = r.Answer(0, 1, {"e": b""}, {}, VERSIONS)
COMMIT = r.Commit(0, 1, 20, {"e": b""}, {})
REF = r.StagedRef("k", b"", 0, 0)
CHECKPOINT = r.Checkpoint(0, 1, "p1", "", {}, b"", REF, ())


def journal_of(*records):
    """One entry after the founding, whose head says what the records should add up to."""
    first = link(founding(), -1, bytes(16))
    second = link(records, len(first) - 1, first[-1].hash)
    entries = (Entry(1, "t", 0, 0, 1, first, None), Entry(1, "t", 1, 20, 1, second, None))
    return [
        Versioned(SeqNo(number), encode_entry("shop", SeqNo(number), entry))
        for number, entry in enumerate(entries)
    ]


def changed(record, **fields):
    return msgspec.structs.replace(record, **fields)


WRONG = {
    "1 begins at 0": [changed(BEGIN, t=1), changed(COMMIT, t=0)],
    "begins in e2, and this is e1": [changed(BEGIN, epoch=2), r.Seal(0), ANSWER, COMMIT],
    "1 commits, 0 is sealed": [BEGIN, r.Seal(0), ANSWER, changed(COMMIT, t=1)],
    "0 commits in e0": [BEGIN, r.Seal(0), ANSWER, changed(COMMIT, epoch=0)],
    "instant 5 goes back": [BEGIN, r.Seal(0), ANSWER, changed(COMMIT, instant_ms=5)],
    "takes 1 of e, not 0": [BEGIN, changed(TAKEN, taken={"0": (1, 2)}), r.Seal(0), ANSWER, COMMIT],
    "a checkpoint while 0 is sealed": [BEGIN, r.Seal(0), CHECKPOINT, COMMIT],
    "a checkpoint at 3, not at 0": [BEGIN, r.Seal(0), ANSWER, COMMIT, changed(CHECKPOINT, t=3)],
    "a promotion while 0 is sealed": [BEGIN, r.Seal(0), r.Promote(2, "p1", {}), COMMIT],
    "e3 follows e1": [r.Promote(3, "p1", {})],
    "handle h commits as 0, and before that it aborts": [
        r.Abort("h", ""), changed(BEGIN, handle="h"), r.Seal(0), ANSWER, COMMIT],
    "0 begins in other versions": [changed(BEGIN, versions={}), r.Seal(0), ANSWER, COMMIT],
    "0 commits what is not its answer": [BEGIN, r.Seal(0), COMMIT],
    "1 is answered, 0 is sealed": [BEGIN, r.Seal(0), changed(ANSWER, t=1), COMMIT],
    "0 is answered twice": [BEGIN, r.Seal(0), ANSWER, ANSWER, COMMIT],
    "0 is answered in e2, not in e1": [BEGIN, r.Seal(0), changed(ANSWER, epoch=2), COMMIT],
    "1 is amended, 0 is sealed": [
        BEGIN, r.Seal(0), r.Amend(1, "e", None, (), ""), ANSWER, COMMIT],
    "0 is amended after its answer": [
        BEGIN, r.Seal(0), ANSWER, r.Amend(0, "e", None, (), ""), COMMIT],
    "does not say what its records do": [BEGIN, TAKEN, r.Seal(0)],
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_what_may_not_be_is_told(message):
    assert message in "\n".join(audit("shop", journal_of(*WRONG[message])).wrong)


def test_a_journal_that_is_right_is_right(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = transacted(journal, founded(journal), count=4, now_ms=7)
    versions = lab.consensus.scan("journal/shop", SeqNo(0), 99)
    truth = audit("shop", versions)
    assert truth.wrong == []
    assert (truth.lsn, truth.next_t, truth.digest) == (standing.lsn, 4, standing.digest)
    assert truth.instants == [7, 7, 7, 7]
    assert committed_by("shop", versions[-1]) == (4, 7)


def test_a_chain_that_is_broken_is_told(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    transacted(journal, founded(journal), count=2)
    versions = list(lab.consensus.scan("journal/shop", SeqNo(0), 99))
    del versions[2]
    assert "record 9 follows 6" in audit("shop", versions).wrong[0]


@pytest.mark.parametrize(("before", "fine"), [(2, True), (4, True), (5, False), (7, False)])
def test_a_cut_keeps_two_checkpoints(before, fine):
    truth = Truth(checkpoints=[(2, 9), (4, 15), (7, 21), (12, 40)])
    audit_cuts([None] * 99, truth, [(before, 10)])
    assert (truth.wrong == []) == fine


def test_who_was_told_something_else_is_named():
    truth = Truth(attempts={"a", "b"})
    audit_told(truth, [("a", True), ("c", False)])
    assert truth.wrong == []
    audit_told(truth, [("b", False), ("d", True)])
    assert len(truth.wrong) == 2
