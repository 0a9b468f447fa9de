"""The law of the journal: what follows what, what it adds up to, and what is refused by name."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import JournalError
from strandline.journal import record as r
from strandline.journal.standing import Standing, advance, advance_all
from strandline.model.frontier import Frontier
from strandline.testing.journals import (
    SOURCE,
    VERSIONS,
    amending,
    answering,
    committing,
    founding,
    sealing,
)

REF = r.StagedRef("journal/shop/x", b"d" * 16, 3, 90)


def fold(*records, base=None):
    standing = base or Standing.empty("shop")
    for record in records:
        standing = advance(standing, record)
    return standing


FOUNDED = fold(*founding())
BEGUN = fold(*sealing(FOUNDED)[:2], base=FOUNDED)
SEALED = fold(*sealing(FOUNDED), base=FOUNDED)
ANSWERED = fold(answering(SEALED), base=SEALED)
COMMITTED = fold(committing(ANSWERED), base=ANSWERED)
HANDLED = fold(*sealing(COMMITTED, handle="h1"), base=COMMITTED)
HANDLED_AND_DONE = fold(answering(HANDLED), committing(HANDLED), base=HANDLED)


def checkpoint(standing, **changes):
    t, program = standing.committed.last(), standing.program
    made = r.Checkpoint(t, standing.epoch, program, "c", {}, b"", REF, ())
    return msgspec.structs.replace(made, **changes)


def changed(record, **changes):
    return msgspec.structs.replace(record, **changes)


BEGIN = sealing(FOUNDED)[0]
INPUT = sealing(FOUNDED)[1]
ANSWER = answering(SEALED)
COMMIT = committing(ANSWERED)
ILLEGAL = {
    # standing, record, what the message must say
    "nothing begins before a program is promoted": (
        fold(r.Program("p1", "x", None)), changed(BEGIN, epoch=0), "no program was promoted"),
    "the same program twice": (FOUNDED, founding()[0], "on record already"),
    "a program without a text": (FOUNDED, r.Program("p2", None, None), "one only"),
    "a program with two texts": (FOUNDED, r.Program("p2", "x", REF), "one only"),
    "a name that was not bound is given up": (FOUNDED, r.Bind("x", None, ""), "no such name"),
    "a binding while a time is sealed": (SEALED, r.Bind("x", "y", ""), "0 is sealed"),
    "an endpoint is added twice": (FOUNDED, r.Endpoint(SOURCE, "added"), "is live"),
    "an unknown endpoint is removed": (FOUNDED, r.Endpoint("x", "removed"), "is unknown"),
    "an endpoint does something else": (FOUNDED, r.Endpoint(SOURCE, "exploded"), "is live"),
    "a promotion while a time is sealed": (SEALED, r.Promote(2, "p1", VERSIONS), "0 is sealed"),
    "an epoch is skipped": (FOUNDED, r.Promote(3, "p1", VERSIONS), "the next epoch is e2"),
    "an epoch is repeated": (FOUNDED, r.Promote(1, "p1", VERSIONS), "the next epoch is e2"),
    "an unknown program is promoted": (FOUNDED, r.Promote(2, "p9", VERSIONS), "not on record"),
    "two times are sealed": (SEALED, changed(BEGIN, t=1), "0 is sealed and not committed"),
    "two times are begun": (BEGUN, BEGIN, "0 is begun and not sealed"),
    "a time is skipped": (FOUNDED, changed(BEGIN, t=1), "the next time is 0"),
    "a time is reused": (COMMITTED, BEGIN, "the next time is 1"),
    "an old epoch begins": (FOUNDED, changed(BEGIN, epoch=0), "it is of e0, and this is e1"),
    "a new epoch begins": (FOUNDED, changed(BEGIN, epoch=2), "it is of e2, and this is e1"),
    "other versions begin": (
        FOUNDED, changed(BEGIN, versions={"python": "3.99"}), "other versions than its epoch"),
    "another program begins": (FOUNDED, changed(BEGIN, program="p9"), "another program"),
    "a handle commits twice": (
        HANDLED_AND_DONE, sealing(COMMITTED, handle="h1")[0],
        "the next time is 2"),
    "a handle that is closed commits again": (
        HANDLED_AND_DONE,
        changed(sealing(COMMITTED, handle="h1")[0], t=2), "handle h1 was committed as 1"),
    "a handle that was aborted commits": (
        fold(r.Abort("h1", ""), base=FOUNDED), changed(BEGIN, handle="h1"), "was aborted"),
    "a handle that committed is aborted": (HANDLED, r.Abort("h1", ""), "committed as 1"),
    "a clock that went back begins": (
        fold(changed(COMMIT, instant_ms=9), base=ANSWERED), changed(BEGIN, t=1), "before 9"),
    "a clock that went back commits": (
        fold(changed(BEGIN, now_ms=9), INPUT, r.Seal(0), ANSWER, base=FOUNDED), COMMIT, "before 9"),
    "input outside of a transaction": (FOUNDED, INPUT, "no transaction is begun"),
    "input of what is sealed": (SEALED, INPUT, "no transaction is begun"),
    "input of another time": (BEGUN, changed(INPUT, t=1, endpoint="x"), "0 is begun"),
    "two inputs of one endpoint": (BEGUN, INPUT, "has an input in this transaction"),
    "input of a removed endpoint": (
        fold(r.Endpoint(SOURCE, "removed"), BEGIN, base=FOUNDED), INPUT, "is removed"),
    "input of a paused endpoint": (
        fold(r.Endpoint(SOURCE, "paused"), BEGIN, base=FOUNDED), INPUT, "is paused"),
    "rows are taken twice": (
        fold(changed(BEGIN, t=1), base=COMMITTED), changed(INPUT, t=1, taken={"0": (2, 5)}),
        "0 was taken up to 3 before, and starts at 2"),
    "a range that ends before it starts": (
        fold(BEGIN, base=FOUNDED), changed(INPUT, taken={"0": (5, 2)}), "is no range"),
    "a seal of nothing": (FOUNDED, r.Seal(0), "no transaction is begun"),
    "a seal of another time": (BEGUN, r.Seal(1), "0 is begun"),
    "an amendment of nothing": (
        FOUNDED, r.Amend(0, SOURCE, None, (), ""), "nothing is sealed"),
    "an amendment of another time": (SEALED, r.Amend(1, SOURCE, None, (), ""), "0 is sealed"),
    "an amendment of no input": (SEALED, r.Amend(0, "x", None, (), ""), "has no input"),
    "an amendment of what is answered": (
        ANSWERED, amending(SEALED), "0 is answered, and its rows may have landed"),
    "an amendment that reads more": (
        SEALED, changed(amending(SEALED), taken={"0": (0, 4)}),
        "[0, 4) of 0 is not within what was sealed of it, [0, 3)"),
    "an amendment that reads what nobody sealed": (
        SEALED, changed(amending(SEALED), taken={"1": (0, 0)}), "sealed of it, nothing"),
    "an amendment that ends before it starts": (
        SEALED, changed(amending(SEALED), taken={"0": (2, 1)}), "is not within"),
    "columns of what is answered": (
        ANSWERED, r.Evolve(0, "orders", {"n": "BIGINT"}), "0 is answered, and its rows may have"),
    "columns of nothing": (FOUNDED, r.Evolve(0, "orders", {"n": "BIGINT"}), "nothing is sealed"),
    "columns of another time": (SEALED, r.Evolve(1, "orders", {"n": "BIGINT"}), "0 is sealed"),
    "columns of a table that nothing comes for": (
        SEALED, r.Evolve(0, "x", {"n": "BIGINT"}), "has no input"),
    "no columns": (SEALED, r.Evolve(0, "orders", {}), "adds nothing"),
    "a column is added twice": (
        fold(r.Evolve(0, "orders", {"n": "BIGINT"}), base=SEALED),
        r.Evolve(0, "orders", {"n": "STRING"}), "or again one of n"),
    "nothing is retained": (FOUNDED, r.Retain(0), "keep 1 at least"),
    "retention in the middle of a seal": (BEGUN, r.Retain(5), "begun and not sealed"),
    "a commit of nothing": (FOUNDED, COMMIT, "nothing is sealed"),
    "a commit of what is committed": (COMMITTED, COMMIT, "nothing is sealed"),
    "a commit before the seal": (BEGUN, COMMIT, "begun and not sealed"),
    "a commit of another time": (SEALED, changed(COMMIT, t=1), "0 is sealed"),
    "a commit of another epoch": (ANSWERED, changed(COMMIT, epoch=2), "of e2, and this is e1"),
    "a commit without an answer": (SEALED, COMMIT, "0 is not answered"),
    "a commit of another input": (
        ANSWERED, changed(COMMIT, inputs={SOURCE: b"x"}), "not those of its ANSWER"),
    "a commit of another change": (
        ANSWERED, changed(COMMIT, deltas={}), "not those of its ANSWER"),
    "an answer to nothing": (FOUNDED, ANSWER, "nothing is sealed"),
    "an answer before the seal": (BEGUN, ANSWER, "begun and not sealed"),
    "an answer to another time": (SEALED, changed(ANSWER, t=1), "0 is sealed"),
    "an answer of another epoch": (SEALED, changed(ANSWER, epoch=2), "of e2, and this is e1"),
    "a second answer": (ANSWERED, ANSWER, "0 is answered already"),
    "an answer without an endpoint": (
        SEALED, changed(ANSWER, inputs={}), f"endpoint {SOURCE} was sealed and has no digest"),
    "an answer with one endpoint more": (
        SEALED, changed(ANSWER, inputs={**ANSWER.inputs, "c": b""}),
        "endpoint c has a digest and was not sealed"),
    "a checkpoint while a time is sealed": (SEALED, checkpoint(SEALED), "0 is sealed"),
    "a checkpoint while a time is begun": (BEGUN, checkpoint(BEGUN), "0 is begun"),
    "a checkpoint of another time": (COMMITTED, checkpoint(COMMITTED, t=1), "{1} is committed"),
    "a checkpoint of another epoch": (COMMITTED, checkpoint(COMMITTED, epoch=2), "this is e1"),
    "a checkpoint of another program": (
        COMMITTED, checkpoint(COMMITTED, program="x"), "another program"),
    "an open handle is forgotten": (
        COMMITTED, checkpoint(COMMITTED, forgotten=("h1",)), "h1 is to be forgotten"),
}  # fmt: skip


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_may_not_follow_is_refused_and_both_records_are_named(name):
    standing, record, reason = ILLEGAL[name]
    with pytest.raises(JournalError) as caught:
        advance(standing, record)
    text = str(caught.value)
    assert "pipeline shop" in text
    assert reason in text
    assert f"#{standing.lsn + 1} {r.describe(record)}" in text
    assert f"#{standing.lsn} {standing.last}" in text


def test_a_transaction_takes_ranges_and_moves_positions_when_it_commits():
    assert SEALED.positions == {}
    assert SEALED.pending == {SOURCE: {"0": 3}}
    assert SEALED.sealed.t == 0
    assert COMMITTED.positions == COMMITTED.pending == {SOURCE: {"0": 3}}
    assert (COMMITTED.committed, COMMITTED.next_t) == (Frontier(1), 1)


@pytest.mark.parametrize(("taken", "resumes"), [((6, 6), 6), ((0, 0), 0), ((0, 9), 9)])
def test_s77_offsets_are_half_open(taken, resumes):
    ranged = changed(INPUT, taken={"0": taken})
    sealed = fold(BEGIN, ranged, r.Seal(0), base=FOUNDED)
    assert sealed.pending == {SOURCE: {"0": resumes}}


def test_partitions_that_appear_keep_the_positions_of_the_others():
    second = changed(INPUT, t=1, taken={"1": (0, 4)})
    sealed = fold(changed(BEGIN, t=1), second, r.Seal(1), base=COMMITTED)
    assert sealed.pending == {SOURCE: {"0": 3, "1": 4}}


@pytest.mark.parametrize(("taken", "staged"), [({"0": (1, 2)}, ()), (None, ()), (None, (REF,))])
def test_an_amendment_replaces_what_is_read_and_positions_move_past_all_that_was_sealed(
    taken, staged
):
    amended = fold(r.Amend(0, SOURCE, taken, staged, "retention"), base=SEALED)
    (read,) = amended.sealed.reads
    assert (read.taken, read.staged, read.table) == (taken, staged, "orders")
    assert amended.pending == {SOURCE: {"0": 3}}
    done = fold(answering(amended), committing(amended), base=amended)
    assert done.positions == {SOURCE: {"0": 3}}


def test_the_last_amendment_counts():
    first, second = amending(SEALED), changed(amending(SEALED), taken={"0": (1, 3)})
    assert fold(first, second, base=SEALED).sealed.reads[0].taken == {"0": (1, 3)}
    assert fold(second, first, base=SEALED).sealed.reads[0].taken is None


def test_producers_that_gave_no_name_do_not_pile_up(monkeypatch):
    """Each process is given one, for ever new; those who pushed last stay known, and all others."""
    monkeypatch.setattr("strandline.journal.standing.ANONYMOUS_MAX", 2)
    standing = FOUNDED
    for number, name in enumerate(["anonymous.a", "till", "anonymous.b", "anonymous.a"]):
        t = standing.next_t
        begin = changed(BEGIN, t=t, now_ms=standing.instant_ms)
        pushed = changed(INPUT, t=t, endpoint="push", taken=None, producers={name: number})
        sealed = fold(begin, pushed, r.Seal(t), base=standing)
        standing = fold(answering(sealed), committing(sealed), base=sealed)
    assert standing.producers == {"push": {"till": 1, "anonymous.b": 2, "anonymous.a": 3}}
    begin = changed(BEGIN, t=4, now_ms=standing.instant_ms)
    pushed = changed(INPUT, t=4, endpoint="push", taken=None, producers={"anonymous.c": 0})
    after = fold(begin, pushed, r.Seal(4), base=standing)
    assert after.producers == {"push": {"till": 1, "anonymous.a": 3, "anonymous.c": 0}}


def test_producers_count_per_endpoint_and_are_known_once_sealed():
    pushed = changed(INPUT, endpoint="push", taken=None, producers={"a": 5, "b": 1})
    sealed = fold(BEGIN, pushed, r.Seal(0), base=FOUNDED)
    assert sealed.producers == {"push": {"a": 5, "b": 1}}
    after = fold(answering(sealed), committing(sealed), changed(BEGIN, t=1), base=sealed)
    with pytest.raises(JournalError, match="5 of producer a was sealed before"):
        advance(after, changed(pushed, t=1, producers={"a": 5}))
    other = changed(pushed, t=1, endpoint="push2", producers={"a": 5})
    assert advance(after, other).begun.endpoints == ("push2",)


def test_s66_an_aborted_handle_consumes_no_number_and_can_abort_while_a_time_is_sealed():
    aborted = fold(r.Abort("h9", "idle"), base=SEALED)
    assert aborted.closed == {"h9": None}
    assert aborted.sealed == SEALED.sealed
    assert aborted.next_t == SEALED.next_t


def test_endpoints_move_and_come_back_with_their_positions():
    records = [r.Endpoint(SOURCE, action) for action in ("paused", "resumed", "removed", "added")]
    seen = []
    standing = COMMITTED
    for record in records:
        standing = advance(standing, record)
        seen.append(standing.endpoints[SOURCE])
    assert seen == ["paused", "live", "removed", "live"]
    assert standing.positions == COMMITTED.positions


def test_another_source_under_the_name_of_an_endpoint_begins_anew():
    first = fold(
        r.Endpoint(SOURCE, "removed"), r.Endpoint(SOURCE, "added", "kafka a"), base=COMMITTED
    )
    assert (first.positions, first.acknowledged) == ({}, {})
    taken = changed(INPUT, t=first.next_t)
    begin = changed(BEGIN, t=first.next_t, now_ms=first.instant_ms)
    sealed = fold(begin, taken, r.Seal(first.next_t), base=first)
    gone = fold(r.Endpoint(SOURCE, "removed"), base=sealed)
    with pytest.raises(JournalError, match="takes from the one before"):
        advance(gone, r.Endpoint(SOURCE, "added", "kafka b"))
    done = fold(answering(gone), committing(fold(answering(gone), base=gone)), base=gone)
    assert fold(r.Endpoint(SOURCE, "added", "kafka a"), base=done).positions == done.positions
    other = fold(r.Endpoint(SOURCE, "added", "kafka b"), base=done)
    assert (SOURCE in done.positions, other.positions) == (True, {})
    assert other.producers == done.producers


def test_s91_an_endpoint_may_be_removed_while_its_last_rows_are_sealed():
    gone = fold(r.Endpoint(SOURCE, "removed"), base=SEALED)
    assert fold(ANSWER, COMMIT, base=gone).positions == {SOURCE: {"0": 3}}


def test_a_promotion_keeps_the_text_of_its_own_program_only():
    later = fold(r.Program("p2", "y", None), r.Promote(2, "p2", VERSIONS), base=COMMITTED)
    assert (later.epoch, later.program, set(later.programs)) == (2, "p2", {"p2"})
    again = fold(r.Program("p1", "x", None), r.Promote(3, "p1", VERSIONS), base=later)
    assert (again.epoch, again.next_t) == (3, 1)


def test_a_promotion_fixes_the_versions_of_its_epoch():
    newer = {"python": "3.14"}
    later = fold(r.Promote(2, "p1", newer), base=COMMITTED)
    assert (COMMITTED.versions, later.versions) == (VERSIONS, newer)
    begun = fold(*sealing(later), base=later)
    assert begun.sealed.begin.versions == newer
    with pytest.raises(JournalError, match="other versions than its epoch"):
        advance(later, changed(sealing(later)[0], versions=VERSIONS))


def test_bindings_are_made_moved_and_given_up():
    moved = fold(r.Bind("orders", "shop.orders.p9", "view"), base=FOUNDED)
    assert moved.bindings["orders"].shard == "shop.orders.p9"
    assert fold(r.Bind("orders", None, ""), base=moved).bindings == {}


def test_a_checkpoint_is_kept_with_the_one_before_and_lets_sources_forget():
    standing = COMMITTED
    for number in range(4):
        ref = changed(REF, key=f"k{number}")
        standing = advance(standing, checkpoint(standing, snapshot=ref))
    assert [kept.snapshot.key for kept in standing.checkpoints] == ["k2", "k3"]
    assert [kept.lsn for kept in standing.checkpoints] == [standing.lsn - 1, standing.lsn]
    assert standing.acknowledged == COMMITTED.positions
    assert fold(*sealing(standing), base=standing).acknowledged == COMMITTED.positions


def test_a_checkpoint_forgets_the_handles_that_it_names():
    aborted = fold(r.Abort("h1", ""), r.Abort("h2", ""), base=COMMITTED)
    after = advance(aborted, checkpoint(aborted, forgotten=("h1",)))
    assert after.closed == {"h2": None}


def test_an_entry_that_does_not_seal_what_it_begins_is_refused():
    with pytest.raises(JournalError, match="begins 0 and does not seal it"):
        advance_all(FOUNDED, sealing(FOUNDED)[:2])


def test_a_first_entry_that_promotes_nothing_is_refused():
    with pytest.raises(JournalError, match="promotes no program"):
        advance_all(Standing.empty("shop"), founding()[:2])


def random_record(chance, standing):
    """Some record, quite often a legal one."""
    handle = chance.choice([None, None, "h1", "h2"])
    t = standing.next_t + chance.choice([0, 0, 0, 0, 1, -1])
    epoch = standing.epoch + chance.choice([0, 0, 0, 0, 1, -1])
    instant = standing.instant_ms + chance.choice([0, 1, 5, -1])
    begun = standing.begun or standing.sealed
    endpoints = begun.endpoints if begun else ("e1",)
    endpoint = chance.choice(["e1", "e2"])
    start = standing.positions.get(endpoint, {}).get("0", 0) + chance.choice([0, 0, 1, -1])
    program = chance.choice(["p1", "p1", "p2"])
    return chance.choice([
        r.Begin(t, epoch, program, instant, standing.versions, handle),
        r.Input(t, endpoint, "orders", {"0": (start, start + 2)}, (), {"a": chance.randrange(9)}),
        r.Seal(t),
        r.Seal(t),
        r.Amend(t, endpoint, None, (REF,), "why"),
        r.Answer(t, epoch, dict.fromkeys(endpoints, b"d"), {}, {}),
        r.Answer(t, epoch, dict.fromkeys(endpoints, b"d"), {}, {}),
        r.Evolve(t, chance.choice(["orders", "none"]), {chance.choice("abcdefgh"): "BIGINT"}),
        r.Commit(t, epoch, instant, dict.fromkeys(endpoints, b"d"), {}),
        r.Commit(t, epoch, instant, dict.fromkeys(endpoints, b"d"), {}),
        checkpoint(standing, epoch=epoch),
        r.Endpoint(endpoint, chance.choice(r.ACTIONS)),
        r.Program(program, "x", None),
        r.Bind("orders", chance.choice(["shop.orders", None]), "table"),
        r.Promote(standing.epoch + chance.choice([1, 1, 2]), program, {}),
        r.Abort(chance.choice(["h1", "h2", "h3"]), ""),
        r.Retain(chance.choice([None, 1, 100])),
    ])  # fmt: skip


def attempt(standing, record):
    try:
        return advance(standing, record), ""
    except JournalError as error:
        return None, str(error)


def test_of_what_was_said_about_retention_the_last_counts():
    assert FOUNDED.retain is None
    for base in (FOUNDED, SEALED, COMMITTED):
        assert fold(r.Retain(5), r.Retain(100), base=base).retain == 100
        assert fold(r.Retain(5), r.Retain(None), base=base).retain is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_any_fold_is_deterministic_and_keeps_the_order_of_times(seed):
    chance = random.Random(seed)
    standing = fold(*founding())
    accepted = []
    for _ in range(120):
        record = random_record(chance, standing)
        before = msgspec.msgpack.encode(standing)
        after, refusal = attempt(standing, record)
        # Neither a refusal nor an acceptance touches what was there.
        assert msgspec.msgpack.encode(standing) == before
        if after is None:
            named = f"{r.describe(record)} can't follow #{standing.lsn} {standing.last}: "
            assert named in refusal
            continue
        accepted.append(record)
        standing = after
    assert fold(*founding(), *accepted) == standing
    order = (r.Begin, r.Seal, r.Answer, r.Commit)
    times = [(r.kind_of(x), x.t) for x in accepted if isinstance(x, order)]
    whole = [(r.kind_of(kind), t) for t in range(standing.next_t + 1) for kind in order]
    assert times == whole[: len(times)]
    assert len(times) - 4 * standing.next_t in range(4)
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(standing), type=Standing)
    assert decoded == standing
