"""Replicas race for entries; what counted counts once, and nothing damaged is read (S84)."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import (
    CorruptionError,
    InvariantError,
    JournalError,
    MaybeAppliedError,
    NotAppliedError,
    UsageError,
)
from strandline.journal import record as r
from strandline.journal.chain import encode_entry
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.log import Journal, Lost
from strandline.journal.standing import Standing
from strandline.model.ids import SeqNo
from strandline.store.consensus import Versioned
from strandline.store.memory import MemoryConsensus
from strandline.testing.damage import DamagedBlob
from strandline.testing.faults import FailNth, Fault, FaultKind, FaultyConsensus, PlainWorld
from strandline.testing.journals import (
    finishing,
    founded,
    founding,
    sealing,
    transacted,
    won,
    written,
)
from strandline.testing.lab import Lab

KEY = "journal/shop"


def faulty(lab: Lab, kind: FaultKind, nth: int = 0, call: str = "consensus.compare_and_set"):
    """A journal with one fault, and the world in which what is late can happen."""
    env = lab.env(read_deadline_ms=500)
    plan = FailNth(nth, Fault(kind), lambda name, key: name == call and key == KEY)
    world = PlainWorld()
    object.__setattr__(env, "consensus", FaultyConsensus(env.consensus, plan, world))
    return Journal(env, "shop"), world


def test_a_new_pipeline_has_no_records(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    assert journal.refresh() == journal.standing == Standing.empty("shop")
    assert list(journal.records()) == []
    assert journal.first() == 0


def test_what_one_process_writes_another_reads(lab: Lab) -> None:
    ours, theirs = Journal(lab.env(), "shop"), Journal(lab.env(scan_page=2), "shop")
    standing = founded(ours)
    assert theirs.refresh() == standing
    standing = transacted(ours, standing, count=5)
    assert theirs.refresh() == standing
    assert Journal(lab.env(scan_page=1), "shop").refresh() == standing
    assert [lsn for lsn, _ in theirs.records(6)] == list(range(6, standing.lsn + 1))
    assert [r.kind_of(record) for _, record in theirs.records(standing.lsn)] == ["COMMIT"]
    assert list(theirs.records(standing.lsn + 1)) == []


def test_of_two_proposals_on_one_standing_one_counts(lab: Lab) -> None:
    ours, theirs = Journal(lab.env(), "shop"), Journal(lab.env(), "shop")
    founded(ours)
    base = theirs.refresh()
    first = ours.propose(base, sealing(base, rows=1))
    second = theirs.propose(base, sealing(base, rows=9))
    assert isinstance(second, Lost)
    assert second.standing == first
    assert second.standing.pending == {"orders.kafka": {"0": 1}}


def test_two_founders_found_one_pipeline(lab: Lab) -> None:
    ours, theirs = Journal(lab.env(), "shop"), Journal(lab.env(), "shop")
    empty = theirs.refresh()
    standing = founded(ours)
    assert theirs.propose(empty, founding("p2")) == Lost(standing)


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.LOST_REQUEST, FaultKind.LATE,
                                  FaultKind.NOT_APPLIED])  # fmt: skip
@pytest.mark.parametrize("nth", [0, 1, 2, 3])
def test_an_entry_of_unknown_fate_counts_once(lab: Lab, kind: FaultKind, nth: int) -> None:
    journal, world = faulty(lab, kind, nth)
    standing = transacted(journal, founded(journal), count=2)
    world.settle()
    assert len(lab.consensus.scan(KEY, SeqNo(0), 99)) == 5
    assert Journal(lab.env(), "shop").refresh() == standing


class Eventful:
    """A Consensus on which something happens with the next entry; its answer gets lost."""

    def __init__(self, inner, *, before=None, after=None):
        self.inner, self.before, self.after = inner, before, after

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def compare_and_set(self, key, new):
        before, after, self.before, self.after = self.before, self.after, None, None
        if before:
            before()
        result = self.inner.compare_and_set(key, new)
        if before or after:
            if after:
                after()
            raise MaybeAppliedError("the reply was lost")
        return result


def test_an_entry_of_unknown_fate_is_found_below_those_of_others(lab: Lab) -> None:
    ours, theirs = Journal(lab.env(), "shop"), Journal(lab.env(), "shop")
    base = founded(ours)

    def they_go_on():
        standing = theirs.refresh()
        transacted(theirs, won(theirs.propose(standing, finishing(standing))))

    object.__setattr__(ours.env, "consensus", Eventful(ours.env.consensus, after=they_go_on))
    mine = ours.propose(base, sealing(base))
    assert isinstance(mine, Standing)
    assert mine.sealed.t == 0
    assert ours.refresh().next_t == 2


def test_an_entry_of_unknown_fate_that_another_beat_is_lost(lab: Lab) -> None:
    ours, theirs = Journal(lab.env(), "shop"), Journal(lab.env(), "shop")
    base = founded(ours)
    racing = Eventful(ours.env.consensus, before=lambda: transacted(theirs, theirs.refresh()))
    object.__setattr__(ours.env, "consensus", racing)
    assert ours.propose(base, sealing(base)) == Lost(theirs.standing)


def test_a_store_that_never_answers_is_reported_as_doubt(lab: Lab) -> None:
    class Mute(Eventful):
        def compare_and_set(self, key, new):
            raise MaybeAppliedError("planted")

    journal = Journal(lab.env(commit_deadline_ms=30), "shop")
    object.__setattr__(journal.env, "consensus", Mute(journal.env.consensus))
    with pytest.raises(MaybeAppliedError, match="planted"):
        journal.propose(journal.refresh(), founding())


def test_a_doubt_that_turns_into_refusals_stays_a_doubt(lab: Lab) -> None:
    class Failing(Eventful):
        def compare_and_set(self, key, new):
            if self.after is None:
                self.after = True
                raise MaybeAppliedError("in doubt")
            raise NotAppliedError("down")

    journal = Journal(lab.env(read_deadline_ms=20), "shop")
    object.__setattr__(journal.env, "consensus", Failing(journal.env.consensus))
    with pytest.raises(MaybeAppliedError, match="in doubt"):
        journal.propose(journal.refresh(), founding())


def test_a_replica_that_was_away_for_longer_than_the_cut_is_told_that_it_lost(lab: Lab) -> None:
    ours, theirs = Journal(lab.env(), "shop"), Journal(lab.env(), "shop")
    founded(ours)
    away = theirs.refresh()
    checkpoints = Checkpoints(ours)
    for _ in range(4):
        transacted(ours, won(checkpoints.publish(ours.refresh())))
    assert checkpoints.cut().first > away.lsn + 2
    lost = theirs.propose(away, sealing(away))
    assert lost == Lost(ours.refresh())
    assert theirs.refresh().next_t == 4
    with pytest.raises(UsageError, match=r"record #0 of pipeline shop was cut: .* begins with #"):
        list(theirs.records(0))


def test_what_may_not_follow_is_never_written(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = founded(journal)
    for records in ([r.Seal(0)], [], sealing(standing)[:2], [r.Promote(1, "p1", {})]):
        with pytest.raises(InvariantError):
            journal.propose(standing, records)
    with pytest.raises(InvariantError):
        Journal(lab.env(), "other").propose(standing, sealing(standing))
    assert journal.refresh() == standing


def test_the_journal_is_not_cut_above_the_oldest_checkpoint_that_is_kept(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = transacted(journal, founded(journal), count=3)
    with pytest.raises(InvariantError):
        journal.cut(2)
    standing = won(Checkpoints(journal).publish(standing))
    with pytest.raises(InvariantError):
        journal.cut(standing.checkpoints[0].lsn + 1)
    journal.cut(6)
    # Whole entries only: that of BEGIN, INPUT and SEAL stays if one of them does.
    assert journal.first() == 4
    assert Journal(lab.env(), "shop").refresh() == standing


# Damage.


def history(lab: Lab) -> list[Versioned]:
    """A journal with entries of which nothing but the chain would tell that one is missing."""
    journal = Journal(lab.env(), "shop")
    standing = founded(journal)
    for number in range(3):
        transacted(journal, standing, count=2)
        standing = written(journal, r.Abort(f"h{number}", "idle"))
        if number < 2:
            standing = won(Checkpoints(journal).publish(standing))
    return list(lab.consensus.scan(KEY, SeqNo(0), 999))


def on(lab: Lab, versions) -> Journal:
    """The journal of a consensus that shows exactly these versions."""

    class Shown(MemoryConsensus):
        def scan(self, key, start, limit):
            found = [each for each in versions if each.seqno >= start]
            return found[:limit]

        def head(self, key):
            return versions[-1]

    env = lab.env()
    object.__setattr__(env, "consensus", Shown(lab.clock))
    return Journal(env, "shop")


def test_s84_a_flipped_byte_in_any_entry_is_refused_the_last_one_included(lab: Lab) -> None:
    versions = history(lab)
    for at, version in enumerate(versions):
        for position in range(0, len(version.data), 7):
            data = bytearray(version.data)
            data[position] ^= 0x10
            harmed = [*versions]
            harmed[at] = Versioned(version.seqno, bytes(data))
            with pytest.raises(CorruptionError, match=f"entry {version.seqno} of .* shop"):
                on(lab, harmed).refresh()


def test_s84_a_missing_entry_is_refused(lab: Lab) -> None:
    versions = history(lab)
    assert on(lab, versions).refresh().next_t == 6
    for at in range(1, len(versions) - 1):
        with pytest.raises(JournalError, match=r"record #\d+ of pipeline shop is missing"):
            on(lab, versions[:at] + versions[at + 1 :]).refresh()


def test_s84_entries_missing_at_the_start_are_refused_unless_a_cut_may_have_taken_them(
    lab: Lab,
) -> None:
    versions = history(lab)
    standing = on(lab, versions).refresh()
    oldest = standing.checkpoints[0].entry
    for at in range(1, oldest + 1):
        assert on(lab, versions[at:]).refresh() == standing
    for at in range(oldest + 1, len(versions)):
        with pytest.raises(JournalError, match=r"pipeline shop: records before #\d+ are"):
            on(lab, versions[at:]).refresh()
    fresh = [version for version in versions[1:] if version.seqno.number < oldest]
    with pytest.raises(JournalError, match="records before #4 are gone, and no checkpoint"):
        on(lab, fresh).refresh()


def renumbered(lab: Lab, order) -> list[Versioned]:
    """Entries of a journal in another order, each sealed anew in its new place."""
    versions = history(lab)
    entries = list(on(lab, versions).entries.scan())
    made = []
    for number, at in enumerate(order(len(entries))):
        data = encode_entry("shop", SeqNo(number), entries[at][1])
        made.append(Versioned(SeqNo(number), data))
    return made


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(lambda n, at=at, what=what: what(list(range(n)), at), id=f"{name} {at}")
        for at in range(1, 13)
        for name, what in {
            "missing": lambda order, at: order[:at] + order[at + 1 :],
            "duplicated": lambda order, at: order[:at] + order[at - 1 :],
            "reordered": lambda order, at: [
                *order[:at],
                order[at + 1],
                order[at],
                *order[at + 2 :],
            ],
        }.items()
    ],
)
def test_s84_entries_out_of_their_places_are_refused_even_if_each_is_whole(lab: Lab, order) -> None:
    with pytest.raises(JournalError, match=r"record #\d+ of pipeline shop"):
        on(lab, renumbered(lab, order)).refresh()


def test_s84_damage_is_seen_by_who_follows_too(lab: Lab) -> None:
    versions = history(lab)
    shown = versions[:4]
    journal = on(lab, shown)
    journal.refresh()
    shown.append(Versioned(SeqNo(4), versions[5].data))
    with pytest.raises(CorruptionError, match="entry v4"):
        journal.refresh()
    shown[4:] = [versions[5]]
    with pytest.raises(JournalError, match="pipeline shop"):
        journal.refresh()


def test_a_head_that_does_not_say_what_its_records_do_is_refused(lab: Lab) -> None:
    versions = history(lab)
    entries = list(on(lab, versions).entries.scan())
    seqno, entry = entries[-1]
    for change in ({"committed": 99}, {"instant_ms": 99}, {"epoch": 9}):
        wrong = encode_entry("shop", seqno, msgspec.structs.replace(entry, **change))
        with pytest.raises(JournalError, match="its records add up to something else"):
            on(lab, [*versions[:-1], Versioned(seqno, wrong)]).refresh()


def test_a_journal_that_went_back_is_noticed_by_who_saw_more(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = transacted(journal, founded(journal), count=3)
    other = MemoryConsensus(lab.clock)
    for version in lab.consensus.scan(KEY, SeqNo(0), 3):
        other.compare_and_set(KEY, version)
    object.__setattr__(journal.env, "consensus", other)
    with pytest.raises(JournalError, match="older than what was seen of it"):
        journal.propose(standing, sealing(standing))


# Checkpoints that are damaged.


def harmed(lab: Lab, *which: int) -> Journal:
    """A journal with two checkpoints that was cut, of which some are damaged."""
    journal = Journal(lab.env(), "shop")
    standing = founded(journal)
    for _ in range(3):
        standing = won(Checkpoints(journal).publish(transacted(journal, standing, count=2)))
    Checkpoints(journal).cut()
    transacted(journal, standing)
    env = lab.env()
    damaged = DamagedBlob(env.blob)
    for number in which:
        damaged.flip_bit(standing.checkpoints[number].snapshot.key, 200)
    object.__setattr__(env, "blob", damaged)
    return Journal(env, "shop")


@pytest.mark.parametrize("which", [(), (0,), (1,)])
def test_the_newest_intact_checkpoint_is_used_and_the_standing_is_the_same(lab: Lab, which) -> None:
    journal = harmed(lab, *which)
    assert journal.refresh().next_t == 7
    assert journal.refresh().positions == {"orders.kafka": {"0": 21}}
    # The older one is not looked at while the newer one is intact.
    named = [f"checkpoint #{journal.standing.checkpoints[1].lsn}"] if 1 in which else []
    assert all(name in found for name, found in zip(named, journal.findings, strict=True))


def test_without_an_intact_checkpoint_a_cut_journal_is_refused(lab: Lab) -> None:
    with pytest.raises(JournalError, match="no checkpoint after them is intact: checkpoint #"):
        harmed(lab, 0, 1).refresh()


def test_a_journal_that_was_never_cut_needs_no_checkpoint(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = won(Checkpoints(journal).publish(transacted(journal, founded(journal))))
    lab.blob.delete(standing.checkpoints[0].snapshot.key)
    again = Journal(lab.env(), "shop")
    assert again.refresh() == standing
    assert len(again.findings) == 1


def test_a_long_journal_is_loaded_in_pages(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = transacted(journal, founded(journal), count=600)
    env = lab.env(scan_page=100)
    pages = []
    inner = env.consensus.scan
    env.consensus.scan = lambda *call: pages.append(call) or inner(*call)
    assert Journal(env, "shop").refresh() == standing
    assert len(pages) == 13


# Entries that are too large for a record.


def large(standing: Standing) -> list[r.Record]:
    """A transaction that takes very many files at once."""
    records = sealing(standing)
    files = {f"2026/part-{standing.next_t}-{number:05}.json": (0, 100) for number in range(3_000)}
    return [records[0], msgspec.structs.replace(records[1], taken=files), records[2]]


def transacted_large(journal: Journal) -> Standing:
    standing = journal.refresh()
    sealed = won(journal.propose(standing, large(standing)))
    return won(journal.propose(sealed, finishing(sealed)))


def test_a_large_entry_keeps_its_records_in_an_object(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    founded(journal)
    standing = transacted_large(journal)
    assert max(len(v.data) for v in lab.consensus.scan(KEY, SeqNo(0), 99)) < 1_000
    assert Journal(lab.env(), "shop").refresh() == standing
    assert len(standing.positions["orders.kafka"]) == 3_000
    assert [r.kind_of(record) for _, record in journal.records(4)][:3] == ["BEGIN", "INPUT", "SEAL"]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda blob, key: blob.flip_bit(key, 7_777), "is damaged"),
        (lambda blob, key: blob.cut(key, 100), "is damaged"),
        (lambda blob, key: blob.lose(key), "is missing"),
    ],
)
def test_s84_damage_of_such_an_object_is_damage_of_the_journal(lab: Lab, harm, message) -> None:
    journal = Journal(lab.env(), "shop")
    founded(journal)
    transacted_large(journal)
    env = lab.env()
    object.__setattr__(env, "blob", DamagedBlob(env.blob))
    (key,) = (entry.key for entry in lab.blob.list("journal/shop/"))
    assert key.startswith("journal/shop/4-")
    harm(env.blob, key)
    with pytest.raises(CorruptionError, match=f"{key} of pipeline shop {message}"):
        Journal(env, "shop").refresh()


def test_large_entries_go_with_the_cut_and_those_that_lost_too(lab: Lab) -> None:
    journal, other = Journal(lab.env(), "shop"), Journal(lab.env(), "shop")
    old = founded(journal)
    transacted_large(journal)
    assert isinstance(other.propose(old, large(old)), Lost)
    assert len(list(lab.blob.list("journal/shop/"))) == 2
    for _ in range(2):
        won(Checkpoints(journal).publish(journal.refresh()))
    cut = Checkpoints(journal).cut()
    assert cut.released == 2
    assert Journal(lab.env(), "shop").refresh() == journal.refresh()


def test_a_large_entry_of_unknown_fate_counts_once(lab: Lab) -> None:
    journal, world = faulty(lab, FaultKind.LOST_REPLY, 1)
    founded(journal)
    standing = transacted_large(journal)
    world.settle()
    assert Journal(lab.env(), "shop").refresh() == standing
    assert standing.next_t == 1
