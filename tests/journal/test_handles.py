"""Handles stage chunks once, are closed once, and leave nothing behind."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import ConflictError, NotAppliedError, NotFoundError, UsageError
from strandline.journal import record as r
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.fsck import fsck_journals
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.journal.staging import STAGED_MS, stage, staged_ms
from strandline.journal.standing import Standing
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.testing.faults import (
    FailNth,
    Fault,
    FaultKind,
    FaultyBlob,
    FaultyConsensus,
    PlainWorld,
)
from strandline.testing.journals import finishing, founded, sealing, won, written
from strandline.testing.lab import Lab
from strandline.upkeep.findings import Report

FAULTS = [FaultKind.LOST_REPLY, FaultKind.LOST_REQUEST, FaultKind.LATE, FaultKind.NOT_APPLIED]


def pipeline(lab: Lab) -> tuple[Journal, Handles]:
    journal = Journal(lab.env(), "shop")
    founded(journal)
    return journal, Handles(lab.env(), "shop")


def committed(journal: Journal, handles: Handles, name: str) -> Standing:
    """Commit a handle as a replica does: the journal first, then the slot, then the proposal."""
    standing = journal.refresh()
    chunks = sorted(handles.freeze(name, commit=True).chunks, key=lambda each: each.number)
    begin, taken, seal = sealing(standing, handle=name)
    taken = msgspec.structs.replace(taken, staged=tuple(each.ref for each in chunks))
    sealed = won(journal.propose(standing, [begin, taken, seal]))
    handles.settle(name, sealed.closed[name])
    return won(journal.propose(sealed, finishing(sealed)))


def test_chunks_are_staged_once_whoever_sends_them_and_however_often(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    first = handles.insert(name, 0, "orders", b"a", 1)
    other = Handles(lab.env(), "shop")
    assert other.insert(name, 0, "orders", b"a", 1) == first
    other.insert(name, 7, "items", b"b", 2)
    assert [(c.number, c.table, c.ref.rows) for c in handles.look(name).chunks] == [
        (0, "orders", 1),
        (7, "items", 2),
    ]
    for table, payload in (("orders", b"x"), ("items", b"a")):
        with pytest.raises(UsageError, match="has another chunk 0"):
            handles.insert(name, 0, table, payload, 1)
    assert len(list(lab.blob.list("journal/shop/"))) == 2


def test_a_handle_that_is_frozen_takes_no_more_and_stays_as_it_is(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    handles.insert(name, 0, "orders", b"a", 1)
    frozen = handles.freeze(name, commit=True)
    assert handles.freeze(name, commit=True) == frozen
    with pytest.raises(ConflictError, match="being closed: chunk 1 is too late"):
        handles.insert(name, 1, "orders", b"b", 1)
    with pytest.raises(ConflictError, match="is being committed"):
        handles.freeze(name, commit=False)
    # A chunk that was there is still recognised.
    assert handles.insert(name, 0, "orders", b"a", 1) == frozen.chunks[0]


def test_s59_a_handle_that_was_open_at_a_crash_stays_open_and_has_no_time(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    handles.insert(name, 0, "orders", b"a", 1)
    handles.freeze(name, commit=True)
    again = Journal(lab.env(), "shop").refresh()
    assert (again.next_t, again.closed) == (0, {})
    assert Handles(lab.env(), "shop").look(name).closed is None


def test_a_handle_is_committed_once_and_says_when(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    handles.insert(name, 0, "orders", b"a", 1)
    committed(journal, handles, name)
    assert handles.look(name).closed.t == 0
    for act in (
        lambda name: handles.freeze(name, commit=True),
        lambda name: handles.insert(name, 1, "orders", b"b", 1),
    ):
        with pytest.raises(ConflictError, match="was committed as 0"):
            act(name)
    handles.settle(name, 0)
    (chunk,) = handles.look(name).chunks
    assert lab.blob.get(chunk.ref.key) == b"a"


def test_what_an_aborted_handle_staged_is_deleted(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    handles.insert(name, 0, "orders", b"a", 1)
    written(journal, r.Abort(name, "by its user"))
    handles.settle(name, None, "by its user")
    assert list(lab.blob.list("journal/shop/")) == []
    with pytest.raises(ConflictError, match="was aborted"):
        handles.freeze(name, commit=True)


def test_slots_are_used_again_once_the_journal_forgot_their_handles(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    first = handles.open(journal.refresh)
    second = handles.open(journal.refresh)
    assert (first[:3], second[:3]) == ("h0-", "h1-")
    standing = committed(journal, handles, first)
    assert handles.open(lambda: standing)[:3] == "h2-"
    assert handles.settled(standing, 0) == [first]
    standing = won(Checkpoints(journal).publish(standing, forget=handles.settled(standing, 0)))
    assert first not in standing.closed
    again = handles.open(lambda: standing)
    assert again[:3] == "h0-"
    assert len(lab.consensus.keys("handles/")) == 3
    with pytest.raises(NotFoundError, match="closed and forgotten"):
        handles.look(first)
    with pytest.raises(NotFoundError):
        handles.freeze(first, commit=True)
    handles.settle(first, 0)
    assert handles.look(again).closed is None


def test_a_closed_handle_is_kept_for_whoever_asks_again(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    first, second = (handles.open(journal.refresh) for _ in range(2))
    committed(journal, handles, first)
    lab.clock.now += 1_000
    standing = committed(journal, handles, second)
    assert handles.settled(standing, 1_001) == []
    assert handles.settled(standing, 1_000) == [first]


def test_of_those_that_are_closed_in_no_time_only_so_many_are_kept(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, handles = pipeline(lab)
    names = []
    for _ in range(4):
        names.append(handles.open(journal.refresh))
        standing = committed(journal, handles, names[-1])
        lab.clock.now += 1
    monkeypatch.setattr("strandline.journal.handles.KEPT_MAX", 3)
    assert handles.settled(standing, 3_600_000) == names[:1]


def test_a_handle_that_was_committed_since_the_journal_was_read_keeps_its_slot(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    before = journal.refresh()
    first = handles.open(lambda: before)
    committed(journal, handles, first)
    assert handles.open(lambda: before)[:3] == "h1-"
    assert handles.look(first).closed.t == 0


def test_a_handle_that_is_aborted_while_another_is_opened_keeps_its_slot(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user may not have heard it yet, and asks again."""
    journal, handles = pipeline(lab)
    first = handles.open(journal.refresh)
    slots = Handles._slots

    def aborted(self, *but):
        if handles.look(first).closed is None:
            written(journal, r.Abort(first, "by its user"))
            handles.settle(first, None, "by its user")
        return slots(self, *but)

    monkeypatch.setattr(Handles, "_slots", aborted)
    assert handles.open(Journal(lab.env(), "shop").refresh)[:3] == "h1-"
    assert handles.look(first).closed.how == "aborted: by its user"


def test_two_who_open_at_once_get_slots_of_their_own(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    others: list[str] = []

    def look() -> Standing:
        if not others:
            others.append(Handles(lab.env(), "shop").open(journal.refresh))
        return journal.refresh()

    name = handles.open(look)
    assert [handles.look(each).id for each in (*others, name)] == [*others, name]


def test_an_aborted_handle_whose_slot_another_got_is_forgotten_at_once(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    before = journal.refresh()
    first = handles.open(lambda: before)
    standing = written(journal, r.Abort(first, "by its user"))
    handles.settle(first, None, "by its user")
    assert handles.settled(standing, 3_600_000) == []
    assert handles.open(lambda: before)[:3] == "h0-"
    assert handles.settled(standing, 3_600_000) == [first]


def test_committed_handles_are_not_read_again_while_the_journal_has_them(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    first, second = (handles.open(journal.refresh) for _ in range(2))
    standing = committed(journal, handles, first)
    assert {each.id for each in handles.all(standing)} == {first, second}
    assert {each.id for each in handles.all(standing)} == {second}
    assert {each.id for each in handles.all()} == {first, second}
    standing = won(Checkpoints(journal).publish(standing, forget=[first]))
    again = handles.open(lambda: standing)
    assert {each.id for each in handles.all(standing)} == {again, second}


@pytest.mark.parametrize("name", ["", "h", "h1", "x1-a", "h-a", "h1x-a", "h²-a", "h5-nobody"])
def test_what_is_no_handle_is_not_found(lab: Lab, name: str) -> None:
    _, handles = pipeline(lab)
    with pytest.raises(NotFoundError):
        handles.look(name)


def test_handles_that_nobody_touches_are_idle_by_the_stores_clock(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    quiet, busy, closed = (handles.open(journal.refresh) for _ in range(3))
    handles.settle(closed, None)
    lab.clock.now += 60_000
    handles.insert(busy, 0, "orders", b"a", 1)
    assert [handle.id for handle in handles.idle(60_000)] == [quiet]
    assert handles.idle(60_001) == []
    assert {handle.id for handle in handles.all()} == {quiet, busy, closed}


def test_a_handle_whose_user_came_back_does_not_expire(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    names = [handles.open(journal.refresh) for _ in range(4)]
    back, asked, idle, closed = (handles.look(name) for name in names)
    # By the same millisecond: it is what happened that counts, and not when.
    handles.insert(back.id, 0, "orders", b"a", 1)
    handles.freeze(asked.id, commit=True)
    handles.settle(closed.id, None)
    assert not any(handles.expire(each, "idle") for each in (back, asked, closed))
    assert handles.look(back.id).frozen is None
    assert handles.look(asked.id).frozen.commit
    assert handles.expire(idle, "idle")
    assert not handles.look(idle.id).frozen.commit
    assert not handles.expire(idle, "idle")


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_at_any_call_changes_nothing_that_counts(kind: FaultKind) -> None:
    nth, reached = 0, True
    while reached:
        lab = Lab()
        journal, _ = pipeline(lab)
        env, world = lab.env(scan_page=1), PlainWorld()
        plan = FailNth(nth, Fault(kind))
        object.__setattr__(env, "consensus", FaultyConsensus(env.consensus, plan, world))
        object.__setattr__(env, "blob", FaultyBlob(env.blob, plan, world))
        handles = Handles(env, "shop")
        name = handles.open(journal.refresh)
        for number in range(3):
            handles.insert(name, number, "orders", b"%d" % number, 1)
        committed(journal, handles, name)
        world.settle()
        (handle,) = Handles(lab.env(), "shop").all()
        assert (handle.id, handle.closed.t) == (name, 0)
        assert [lab.blob.get(chunk.ref.key) for chunk in handle.chunks] == [b"0", b"1", b"2"]
        assert len(list(lab.blob.list("journal/shop/"))) == 3
        reached = plan.reached
        nth += 1
        lab.close()
    assert nth > 15


def test_two_who_insert_at_once_both_count(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    env = lab.env()
    inner = env.consensus.compare_and_set
    waiting = [lambda: handles.insert(name, 1, "orders", b"b", 1)]

    def racing(key, new):
        if waiting:
            waiting.pop()()
        return inner(key, new)

    env.consensus.compare_and_set = racing
    Handles(env, "shop").insert(name, 0, "orders", b"a", 1)
    assert {chunk.number for chunk in handles.look(name).chunks} == {0, 1}


def test_two_who_insert_the_same_chunk_at_once_keep_one_object(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    env = lab.env()
    inner = env.consensus.compare_and_set
    waiting = [lambda: handles.insert(name, 0, "orders", b"a", 1)]

    def racing(key, new):
        if waiting:
            waiting.pop()()
        return inner(key, new)

    env.consensus.compare_and_set = racing
    Handles(env, "shop").insert(name, 0, "orders", b"a", 1)
    (chunk,) = handles.look(name).chunks
    assert [entry.key for entry in lab.blob.list("journal/shop/")] == [chunk.ref.key]


def test_two_who_are_given_a_number_at_once_both_count_however_alike(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    env = lab.env()
    inner = env.consensus.compare_and_set
    waiting = [lambda: handles.append(name, "orders", lambda _: b"a", 1)]

    def racing(key, new):
        if waiting:
            waiting.pop()()
        return inner(key, new)

    env.consensus.compare_and_set = racing
    assert Handles(env, "shop").append(name, "orders", lambda _: b"a", 1).number == 1
    chunks = handles.look(name).chunks
    assert [chunk.number for chunk in chunks] == [0, 1]
    keys = {entry.key for entry in lab.blob.list("journal/shop/")}
    assert keys == {chunk.ref.key for chunk in chunks}, "what was put for the lost number is gone"


@pytest.mark.parametrize("kind", FAULTS)
def test_a_chunk_that_is_given_its_number_counts_once_whatever_the_store_answers(
    kind: FaultKind,
) -> None:
    nth, reached = 0, True
    while reached:
        lab = Lab()
        journal, handles = pipeline(lab)
        name = handles.open(journal.refresh)
        ref = stage(lab.env(), "shop", b"1", rows=1)
        env, world = lab.env(), PlainWorld()
        plan = FailNth(nth, Fault(kind))
        object.__setattr__(env, "consensus", FaultyConsensus(env.consensus, plan, world))
        object.__setattr__(env, "blob", FaultyBlob(env.blob, plan, world))
        faulty = Handles(env, "shop")
        faulty.append(name, "orders", lambda number: b"%d" % number, 1)
        faulty.adopt(name, None, "orders", ref)
        world.settle()
        chunks = handles.look(name).chunks
        assert [chunk.number for chunk in chunks] == [0, 1]
        assert [lab.blob.get(chunk.ref.key) for chunk in chunks] == [b"0", b"1"]
        reached = plan.reached
        nth += 1
        lab.close()
    assert nth > 5


def test_what_was_staged_long_ago_is_staged_anew_before_it_is_on_record(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)

    class Paused(Handles):
        """Its process stands still for a day after it staged its first chunk."""

        paused = False

        def _now_ms(self) -> int:
            if not self.paused:
                self.paused = True
                lab.clock.now += STAGED_MS + 1
            return super()._now_ms()

    chunk = Paused(lab.env(), "shop").insert(name, 0, "orders", b"a", 1)
    assert staged_ms(chunk.ref.key) == lab.clock.now


@pytest.mark.parametrize("calls", [1, 2])
def test_what_grows_old_between_attempts_is_staged_anew(lab: Lab, calls: int) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    env = lab.env()
    inner, left = env.consensus.compare_and_set, [calls]

    class Paused(Handles):
        """Its process stands still for a day just before it appends."""

        def _append(self, slot: int, seqno: SeqNo, record: object) -> bool:
            if left[0] == 1:
                stand_still()
            return super()._append(slot, seqno, record)

    def stand_still() -> None:
        left[0] -= 1
        lab.clock.now += STAGED_MS + 1
        fsck_journals(lab.env(), Report(), repair=True)

    def refused_once(key: str, new: Versioned) -> CasResult:
        if left[0] > 1:
            left[0] -= 1
            stand_still()
            raise NotAppliedError("the store was away")
        return inner(key, new)

    env.consensus.compare_and_set = refused_once
    chunk = Paused(env, "shop").insert(name, 0, "orders", b"a", 1)
    assert lab.blob.get(chunk.ref.key) is not None
    assert handles.look(name).chunks == (chunk,)


def test_what_others_staged_long_ago_is_not_put_on_record(lab: Lab) -> None:
    journal, handles = pipeline(lab)
    name = handles.open(journal.refresh)
    ref = stage(lab.env(), "shop", b"a", rows=1)
    lab.clock.now += STAGED_MS
    with pytest.raises(ConflictError, match="stage it again"):
        handles.adopt(name, 0, "orders", ref)
    assert not handles.look(name).chunks
