"""A check of a store looks at its journals: what they need is there, what nobody needs can go."""

from __future__ import annotations

import pytest

from strandline.journal.checkpoint import Checkpoints
from strandline.journal.fsck import fsck_journals
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.journal.record import Program, Promote
from strandline.journal.staging import (
    INLINE_MAX,
    STAGED_MS,
    program_record,
    program_text,
    put_snapshot,
    snapshots,
    stage,
)
from strandline.model.ids import SeqNo
from strandline.store.consensus import Versioned
from strandline.testing.journals import founded, transacted, won
from strandline.testing.lab import Lab
from strandline.upkeep.findings import Report, Severity


@pytest.fixture
def journal(lab: Lab) -> Journal:
    """Three transactions and a checkpoint, of a pipeline whose shard is there."""
    lab.machine("shop.orders")
    journal = Journal(lab.env(), "shop")
    standing = transacted(journal, founded(journal), count=3)
    won(Checkpoints(journal).publish(standing))
    return journal


def checked(lab: Lab, *, deep: bool = False, repair: bool = False) -> Report:
    report = Report(deep=deep)
    fsck_journals(lab.env(), report, repair=repair)
    return report


def things(report: Report, severity: Severity) -> list[str]:
    return [each.thing for each in report.of(severity)]


@pytest.mark.parametrize("deep", [False, True])
def test_a_whole_journal_is_sound(lab: Lab, journal: Journal, *, deep: bool) -> None:
    report = checked(lab, deep=deep)
    assert (report.journals, report.objects, report.findings) == (1, 1, [])


def test_a_store_without_pipelines_has_no_journal_to_check(lab: Lab) -> None:
    assert checked(lab).journals == 0


def test_a_record_that_follows_nothing_is_damage_and_named(lab: Lab, journal: Journal) -> None:
    env = lab.env()
    kept = list(env.consensus.scan("journal/shop", SeqNo(0), 100))
    env.consensus.compare_and_set("journal/shop", Versioned(kept[-1].seqno.next(), kept[-1].data))
    report = checked(lab)
    assert not report.sound
    assert things(report, Severity.DAMAGE) == ["journal of shop"]


def test_an_object_that_is_gone_or_changed_is_damage(lab: Lab, journal: Journal) -> None:
    [key] = snapshots(lab.env(), "shop")
    good = bytes(lab.blob.get(key) or b"")
    lab.blob.delete(key)
    assert things(checked(lab), Severity.DAMAGE) == [key]
    lab.blob.put(key, good[:-1])
    assert things(checked(lab), Severity.DAMAGE) == [key]


def test_bytes_that_changed_in_place_are_found_by_a_deep_check(lab: Lab) -> None:
    lab.machine("shop.orders")
    journal = Journal(lab.env(), "shop")
    handles = Handles(lab.env(), "shop")
    founded(journal)
    name = handles.open(journal.refresh)
    key = handles.insert(name, 0, "orders", b"rows", 1).ref.key
    lab.blob.delete(key)
    lab.blob.put(key, b"ROWS")
    assert checked(lab).sound
    assert things(checked(lab, deep=True), Severity.DAMAGE) == [key]


def test_a_shard_that_a_name_means_and_that_is_not_there_is_damage(lab: Lab) -> None:
    founded(Journal(lab.env(), "shop"))
    assert things(checked(lab), Severity.DAMAGE) == ["shard shop.orders"]


def test_a_payload_that_nobody_refers_to_is_swept_after_a_day_and_not_before(
    lab: Lab, journal: Journal
) -> None:
    lost = stage(lab.env(), "shop", b"rows of a caller that crashed").key
    handles = Handles(lab.env(), "shop")
    name = handles.open(journal.refresh)
    held = handles.insert(name, 0, "orders", b"rows of a handle that is open", 1).ref.key
    lab.clock.now += STAGED_MS - 1
    assert checked(lab, repair=True).findings == []
    lab.clock.now += 1
    assert things(checked(lab), Severity.LEFTOVER) == [lost]
    [swept] = checked(lab, repair=True).findings
    assert (swept.thing, swept.repaired, swept.size) == (lost, True, 29)
    assert lab.blob.get(lost) is None
    assert lab.blob.get(held) is not None
    assert checked(lab, repair=True).findings == []


def test_a_snapshot_whose_number_another_record_took_is_a_leftover(
    lab: Lab, journal: Journal
) -> None:
    standing = journal.refresh()
    lost = put_snapshot(lab.env(), standing).key
    assert checked(lab).findings == []
    transacted(journal, standing)
    assert things(checked(lab, repair=True), Severity.LEFTOVER) == [lost]
    assert len(snapshots(lab.env(), "shop")) == 1


def test_one_damaged_journal_keeps_no_other_from_being_checked(lab: Lab, journal: Journal) -> None:
    env = lab.env()
    env.consensus.compare_and_set("journal/bad", Versioned(SeqNo(0), b"nonsense"))
    report = checked(lab)
    assert (report.journals, things(report, Severity.DAMAGE)) == (2, ["journal of bad"])


def test_the_text_of_a_program_stays_after_its_record_was_cut(lab: Lab) -> None:
    lab.machine("shop.orders")
    journal = Journal(lab.env(), "shop")
    standing = founded(journal)
    old, new = (program_record(lab.env(), "shop", name, name * INLINE_MAX) for name in ("po", "pn"))
    for record in (old, new):
        promote = Promote(standing.epoch + 1, record.hash, dict(standing.versions))
        standing = won(journal.propose(standing, [record, promote]))
        standing = won(Checkpoints(journal).publish(standing))
    Checkpoints(journal).cut()
    left = [each.hash for _, each in journal.records() if isinstance(each, Program)]
    assert left == ["pn"], "what comes after the first checkpoint may be computed again under po"
    lab.clock.now += 2 * STAGED_MS
    assert checked(lab, repair=True).findings == []
    for record in (old, new):
        assert program_text(lab.env(), "shop", record) == record.hash * INLINE_MAX
    won(Checkpoints(journal).publish(standing))
    Checkpoints(journal).cut()
    assert "pn" not in [each.hash for _, each in journal.records() if isinstance(each, Program)]
    assert checked(lab, repair=True).findings == []
    assert program_text(lab.env(), "shop", new)
