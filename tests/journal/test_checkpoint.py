"""Checkpoints: between transactions only, two kept, and safe to die at (S64-S66, S85, S86)."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import ConflictError, InvariantError, SinceError, StoreError
from strandline.journal import record as r
from strandline.journal.checkpoint import Checkpoints, Facts, may_checkpoint
from strandline.journal.log import Journal, Lost
from strandline.journal.staging import INLINE_MAX, program_record, snapshots, stage
from strandline.journal.standing import Standing
from strandline.model.ids import SeqNo
from strandline.testing.damage import DamagedBlob
from strandline.testing.faults import FailNth, Fault, FaultKind, FaultyBlob, FaultyConsensus
from strandline.testing.journals import (
    SOURCE,
    finishing,
    founded,
    sealing,
    transacted,
    won,
    written,
)
from strandline.testing.lab import Lab
from strandline.testing.task import SimulatedCrash


def fresh(lab: Lab) -> Standing:
    return Journal(lab.env(), "shop").refresh()


def grown(lab: Lab, rounds: int = 3) -> Journal:
    """Two transactions and a checkpoint, some times; never cut."""
    journal = Journal(lab.env(), "shop")
    standing = founded(journal)
    for _ in range(rounds):
        standing = won(Checkpoints(journal).publish(transacted(journal, standing, count=2)))
    return journal


def test_s64_a_checkpoint_is_taken_only_between_transactions(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    checkpoints = Checkpoints(journal)
    assert not may_checkpoint(journal.refresh())
    with pytest.raises(InvariantError, match="only between transactions"):
        checkpoints.publish(journal.refresh())
    standing = transacted(journal, founded(journal))
    sealed = won(journal.propose(standing, sealing(standing)))
    with pytest.raises(InvariantError, match="only between transactions"):
        checkpoints.publish(sealed)
    assert snapshots(journal.env, "shop") == {}
    committed = won(journal.propose(sealed, finishing(sealed)))
    done = won(checkpoints.publish(committed))
    assert done.checkpoints[-1].t == 1
    assert done.last == "CHECKPOINT at 1"


def test_a_checkpoint_before_the_first_transaction_is_at_no_time(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    standing = won(Checkpoints(journal).publish(founded(journal)))
    assert standing.checkpoints[-1].t is None
    assert transacted(journal, standing).next_t == 1


def test_a_checkpoint_that_was_overtaken_is_lost_and_its_object_swept(lab: Lab) -> None:
    journal = grown(lab)
    old = journal.refresh()
    transacted(journal, old)
    assert isinstance(Checkpoints(journal).publish(old), Lost)
    assert len(snapshots(journal.env, "shop")) == 4
    for _ in range(2):
        won(Checkpoints(journal).publish(journal.refresh()))
    Checkpoints(journal).cut()
    kept = {kept.snapshot.key for kept in journal.refresh().checkpoints}
    assert set(snapshots(journal.env, "shop")) == kept


def test_the_facts_are_on_record(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    facts = Facts("config", {"shop.orders": 3}, b"state")
    standing = won(Checkpoints(journal).publish(founded(journal), facts))
    ((_, record),) = journal.records(standing.lsn)
    assert (record.config, record.uppers) == ("config", {"shop.orders": 3})
    assert (record.state_digest, record.program, record.epoch) == (b"state", "p1", 1)


def test_two_are_kept_and_the_journal_begins_with_the_older_one(lab: Lab) -> None:
    journal = grown(lab, 5)
    before = journal.refresh()
    cut = Checkpoints(journal).cut()
    assert cut.first == journal.first() == before.checkpoints[0].lsn
    assert cut.findings == ()
    ((_, first), *_) = journal.records(cut.first)
    assert isinstance(first, r.Checkpoint)
    assert fresh(lab) == before
    assert len(snapshots(journal.env, "shop")) == 2
    assert Checkpoints(journal).cut() == type(cut)(cut.first, 0)


@pytest.mark.parametrize("rounds", [0, 1])
def test_nothing_is_cut_before_there_are_two(lab: Lab, rounds: int) -> None:
    journal = grown(lab, rounds)
    assert Checkpoints(journal).cut().first == 0
    assert journal.first() == 0


def test_more_can_be_kept_but_never_less(lab: Lab) -> None:
    journal = grown(lab, 6)
    marks = [lsn for lsn, record in journal.records() if isinstance(record, r.Checkpoint)]
    assert Checkpoints(journal).cut(keep=marks[2]).first == marks[2]
    assert len(snapshots(journal.env, "shop")) == 4
    assert Checkpoints(journal).verifiable_from() == 6
    assert Checkpoints(journal).cut(keep=10**9).first == marks[4]
    assert Checkpoints(journal).verifiable_from() == 10


def test_everything_the_standing_needs_survives_the_cut(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    env = journal.env
    standing = founded(journal)
    t = standing.next_t
    pushed = r.Input(t, "push", "orders", None, (stage(env, "shop", b"x"),), {"till": 9})
    records = sealing(standing, handle="h1")
    sealed = written(journal, records[0], records[1], pushed, records[2])
    standing = won(journal.propose(sealed, finishing(sealed)))
    written(journal, r.Abort("h2", "idle"))
    written(journal, r.Endpoint("files", "added"))
    written(journal, r.Endpoint("files", "paused"))
    written(journal, program_record(env, "shop", "p2", "y" * (INLINE_MAX + 1)))
    written(journal, r.Bind("v", "shop.v.p12", "view"))
    written(journal, r.Promote(2, "p2", {}))
    standing = transacted(journal, journal.refresh(), count=2)
    for _ in range(3):
        standing = won(Checkpoints(journal).publish(standing))
    Checkpoints(journal).cut()
    again = fresh(lab)
    assert again == standing
    assert (again.epoch, again.program, again.next_t) == (2, "p2", 3)
    assert again.closed == {"h1": 0, "h2": None}
    assert again.producers == {"push": {"till": 9}}
    assert again.endpoints == {SOURCE: "live", "files": "paused"}
    assert set(again.bindings) == {"orders", "v"}
    assert env.blob.get(again.programs["p2"].staged.key) is not None


def test_s66_numbers_go_on_without_gap_or_reuse_over_restarts_and_checkpoints(lab: Lab) -> None:
    founded(Journal(lab.env(), "shop"))
    seen = []
    for number in range(10):
        journal = Journal(lab.env(), "shop")
        standing = journal.refresh()
        seen.append(standing.next_t)
        standing = transacted(journal, standing)
        written(journal, r.Abort(f"h{number}", ""))
        if number % 3 == 0:
            won(Checkpoints(journal).publish(journal.refresh()))
            Checkpoints(journal).cut()
    assert seen == list(range(10))
    assert fresh(lab).positions == {SOURCE: {"0": 30}}


def test_s86_sources_may_forget_up_to_the_newest_checkpoint_and_no_further(lab: Lab) -> None:
    journal = grown(lab, 1)
    assert journal.refresh().acknowledged == {SOURCE: {"0": 6}}
    transacted(journal, journal.refresh())
    assert fresh(lab).acknowledged == {SOURCE: {"0": 6}}
    won(Checkpoints(journal).publish(journal.refresh()))
    assert fresh(lab).acknowledged == {SOURCE: {"0": 9}}


def test_handles_that_say_so_themselves_are_forgotten(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    founded(journal)
    for name in ("h1", "h2"):
        written(journal, r.Abort(name, ""))
    won(Checkpoints(journal).publish(journal.refresh(), forget={"h1"}))
    won(Checkpoints(journal).publish(journal.refresh()))
    Checkpoints(journal).cut()
    assert fresh(lab).closed == {"h2": None}


def test_the_last_one_stands_while_nothing_is_on_record_since(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    checkpoints = Checkpoints(journal)
    assert not checkpoints.stands(founded(journal))
    taken = won(checkpoints.publish(transacted(journal, journal.refresh())))
    assert checkpoints.stands(taken)
    # Nothing was committed since, and something happened: it may say how long things are kept.
    assert not checkpoints.stands(won(journal.propose(taken, [r.Retain(5)])))


@pytest.mark.parametrize("which", [0, 1])
def test_the_last_one_does_not_stand_while_a_kept_one_is_damaged(lab: Lab, which: int) -> None:
    journal = grown(lab, 3)
    damaged = DamagedBlob(journal.env.blob)
    object.__setattr__(journal.env, "blob", damaged)
    standing = journal.refresh()
    assert Checkpoints(journal).stands(standing)
    damaged.cut(standing.checkpoints[which].snapshot.key, 40)
    assert not Checkpoints(journal).stands(standing)


@pytest.mark.parametrize("which", [0, 1])
def test_nothing_is_cut_while_a_kept_checkpoint_is_damaged(lab: Lab, which: int) -> None:
    journal = grown(lab, 3)
    damaged = DamagedBlob(journal.env.blob)
    object.__setattr__(journal.env, "blob", damaged)
    kept = journal.refresh().checkpoints[which]
    damaged.cut(kept.snapshot.key, 40)
    cut = Checkpoints(journal).cut()
    assert (cut.first, cut.released) == (0, 0)
    assert f"checkpoint #{kept.lsn} of pipeline shop" in cut.findings[0]
    damaged.heal(kept.snapshot.key)
    assert Checkpoints(journal).cut().first > 0


# What was staged.


def staged_transaction(journal: Journal) -> str:
    standing = journal.refresh()
    ref = stage(journal.env, "shop", b"pushed")
    records = sealing(standing)
    taken = msgspec.structs.replace(records[1], taken=None, staged=(ref,))
    sealed = written(journal, records[0], taken, records[2])
    won(journal.propose(sealed, finishing(sealed)))
    return ref.key


def test_staged_input_goes_with_the_records_that_refer_to_it(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    founded(journal)
    keys = []
    for _ in range(4):
        keys.append(staged_transaction(journal))
        won(Checkpoints(journal).publish(journal.refresh()))
    cut = Checkpoints(journal).cut()
    assert [lab.blob.get(key) is not None for key in keys] == [False, False, False, True]
    # Three inputs, and the snapshots of the two oldest checkpoints.
    assert cut.released == 5


def test_a_staged_program_stays_while_anything_that_is_left_may_run_it(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    founded(journal)
    keys = []
    for number in range(2, 6):
        program = program_record(journal.env, "shop", f"p{number}", f"{number}" * 70_000)
        keys.append(program.staged.key)
        written(journal, program, r.Promote(number, program.hash, {}))
        transacted(journal, journal.refresh())
        won(Checkpoints(journal).publish(journal.refresh()))
        Checkpoints(journal).cut()
    # The older of the two checkpoints that are kept is of the last program but one.
    assert [lab.blob.get(key) is not None for key in keys] == [False, False, True, True]
    oldest = Checkpoints(journal).before(Checkpoints(journal).verifiable_from())
    assert (oldest.epoch, oldest.program) == (5, "p5")


# Computing again.


@pytest.mark.parametrize("oldest", [0, 6])
def test_the_standing_before_an_earlier_transaction_can_be_had(lab: Lab, oldest: int) -> None:
    journal = grown(lab, 4)
    checkpoints = Checkpoints(journal)
    if oldest:
        checkpoints.cut()
    assert checkpoints.verifiable_from() == oldest
    for t in range(oldest, 8):
        standing = checkpoints.before(t)
        assert standing.next_t == t
        assert standing.positions == ({SOURCE: {"0": 3 * t}} if t else {})
        assert standing.sealed is None
    for t in [*range(oldest), 8, 99]:
        with pytest.raises(SinceError, match=f"transaction {t} can't be computed again") as caught:
            checkpoints.before(t)
        assert caught.value.oldest == oldest


def test_a_damaged_checkpoint_moves_what_can_be_computed_again(lab: Lab) -> None:
    journal = grown(lab, 4)
    Checkpoints(journal).cut()
    transacted(journal, journal.refresh())
    lab.blob.delete(journal.refresh().checkpoints[0].snapshot.key)
    assert Checkpoints(journal).verifiable_from() == 8
    assert Checkpoints(journal).before(8).next_t == 8
    lab.blob.delete(journal.refresh().checkpoints[1].snapshot.key)
    assert Checkpoints(journal).verifiable_from() == 9


def test_a_pipeline_without_records_verifies_from_the_start(lab: Lab) -> None:
    assert Checkpoints(Journal(lab.env(), "shop")).verifiable_from() == 0


# S85: a crash, or any other fault, at each call of a port.


def broken_env(lab: Lab, kind: FaultKind, nth: int):
    env = lab.env(read_deadline_ms=200, commit_deadline_ms=200)
    plan = FailNth(nth, Fault(kind))
    object.__setattr__(env, "blob", FaultyBlob(env.blob, plan))
    object.__setattr__(env, "consensus", FaultyConsensus(env.consensus, plan))
    return env, plan


def publish_and_cut(journal: Journal) -> None:
    checkpoints = Checkpoints(journal)
    checkpoints.publish(journal.refresh())
    checkpoints.cut()


def state_of(lab: Lab):
    """What two recoveries in a row find, which must be the same."""
    first, second = fresh(lab), fresh(lab)
    assert first == second
    return first


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.CRASH_BEFORE,
        FaultKind.CRASH_AFTER,
        FaultKind.NOT_APPLIED,
        FaultKind.LOST_REPLY,
        FaultKind.LOST_REQUEST,
    ],
)
def test_s85_a_fault_at_any_call_of_publish_and_cut_changes_nothing_that_counts(
    kind: FaultKind,
) -> None:
    nth, stages = 0, set()
    while True:
        lab = Lab()
        journal = Journal(lab.env(), "shop")
        founded(journal)
        keys = []
        for _ in range(3):
            keys.append(staged_transaction(journal))
            won(Checkpoints(journal).publish(journal.refresh()))
        staged_transaction(journal)
        before = journal.refresh()
        env, plan = broken_env(lab, kind, nth)
        try:
            publish_and_cut(Journal(env, "shop"))
        except (SimulatedCrash, StoreError):
            stages.add(fresh(lab).lsn - before.lsn + 2 * (Journal(lab.env(), "shop").first() > 0))
        after = state_of(lab)
        for name in ("next_t", "positions", "producers", "closed", "epoch", "bindings", "programs"):
            assert getattr(after, name) == getattr(before, name)
        assert after.lsn in {before.lsn, before.lsn + 1}
        # Whoever comes next finishes, and in the end nothing is left over.
        for more in range(3):
            publish_and_cut(Journal(lab.env(), "shop"))
            assert state_of(lab).next_t == before.next_t + more
            transacted(Journal(lab.env(), "shop"), fresh(lab))
        final = state_of(lab)
        assert set(snapshots(lab.env(), "shop")) == {k.snapshot.key for k in final.checkpoints}
        assert all(lab.blob.get(key) is None for key in keys)
        lab.close()
        if not plan.reached:
            break
        nth += 1
    assert nth >= 12
    if kind in {FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER}:
        # Before it was published, between that and the cut, and after the cut.
        assert stages == {0, 1, 3}


def test_a_cut_just_before_the_records_are_read_is_not_taken_for_damage(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = grown(lab)
    real = Journal.records

    def cut_first(self: Journal, start: int | None = None) -> object:
        monkeypatch.setattr(Journal, "records", real)
        Checkpoints(journal).cut()
        return real(self, start)

    monkeypatch.setattr(Journal, "records", cut_first)
    assert Checkpoints(Journal(lab.env(), "shop")).before(5).next_t == 5
    assert journal.first() > 0


def test_a_cut_in_the_middle_is_gone_on_with(lab: Lab) -> None:
    journal = grown(lab, 4)
    before = journal.refresh()
    lab.consensus.truncate("journal/shop", SeqNo(3))
    assert state_of(lab) == before
    assert Checkpoints(Journal(lab.env(), "shop")).cut().first == before.checkpoints[0].lsn
    assert state_of(lab) == before


# Races.


class Interrupted:
    """A port on which something happens before the nth call of a method."""

    def __init__(self, inner, method, nth, happens):
        self.inner, self.method, self.left, self.happens = inner, method, nth, happens

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name == self.method and self.happens is not None:
            if self.left == 0:
                happens, self.happens = self.happens, None
                happens()
            self.left -= 1
        return found


@pytest.mark.parametrize(
    "port", ["blob.get", "blob.delete", "consensus.scan", "consensus.truncate"]
)
def test_two_who_cut_at_once_do_no_harm_and_find_no_damage(port: str) -> None:
    name, method = port.split(".")
    reached = True
    nth = 0
    while reached:
        lab = Lab()
        journal = Journal(lab.env(), "shop")
        founded(journal)
        for _ in range(4):
            staged_transaction(journal)
            won(Checkpoints(journal).publish(journal.refresh()))

        def they_cut(lab: Lab = lab) -> None:
            other = Journal(lab.env(), "shop")
            for _ in range(2):
                won(Checkpoints(other).publish(transacted(other, other.refresh())))
            assert Checkpoints(other).cut().first > 0

        env = lab.env()
        interrupted = Interrupted(getattr(env, name), method, nth, they_cut)
        object.__setattr__(env, name, interrupted)
        cut = Checkpoints(Journal(env, "shop")).cut()
        reached = interrupted.happens is None
        assert cut.findings == ()
        after = state_of(lab)
        assert after.next_t == (6 if reached else 4)
        Checkpoints(Journal(lab.env(), "shop")).cut()
        assert set(snapshots(lab.env(), "shop")) == {k.snapshot.key for k in after.checkpoints}
        nth += 1
    assert nth > 1


@pytest.mark.parametrize("port", ["consensus.scan", "blob.get"])
def test_a_cut_while_a_journal_is_read_is_not_taken_for_damage(port: str) -> None:
    name, method = port.split(".")
    reached = True
    nth = 0
    while reached:
        lab = Lab()
        grown(lab, 4)

        def they_cut(lab: Lab = lab) -> None:
            other = Journal(lab.env(), "shop")
            Checkpoints(other).cut()
            for _ in range(3):
                won(Checkpoints(other).publish(transacted(other, other.refresh())))
            Checkpoints(other).cut()

        env = lab.env(scan_page=2)
        interrupted = Interrupted(getattr(env, name), method, nth, they_cut)
        object.__setattr__(env, name, interrupted)
        journal = Journal(env, "shop")
        assert journal.refresh().next_t in {8, 11}
        assert journal.findings == ()
        reached = interrupted.happens is None
        nth += 1
    assert nth > 1


def test_records_that_are_cut_while_they_are_read_are_never_passed_over() -> None:
    reached = True
    nth = 0
    while reached:
        lab = Lab()
        journal = grown(lab, 4)
        env = lab.env(scan_page=2)
        cut = Interrupted(env.consensus, "scan", nth, Checkpoints(journal).cut)
        object.__setattr__(env, "consensus", cut)
        assert whole_or_conflict(Journal(env, "shop"))
        reached = cut.happens is None
        nth += 1
    assert nth > 3


def whole_or_conflict(journal: Journal) -> bool:
    """Whether what was read has no gap, or the reader was told to begin again."""
    try:
        numbers = [lsn for lsn, _ in journal.records()]
    except ConflictError:
        return True
    return numbers == list(range(numbers[0], numbers[-1] + 1))
