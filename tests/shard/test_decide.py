"""Commands that neither append nor upkeep: leases, ownership, settings, life and death."""

from __future__ import annotations

import typing

import pyarrow as pa
import pytest

from strandline.errors import InvariantError
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.shard import command as c
from strandline.shard.decide import decide
from strandline.shard.state import Critical, Manifest, MomentChunk, Reader, Retention
from strandline.testing import toy

R1, W1, W2 = toy.R1, toy.W1, toy.W2
R2 = "r" + "2" * 32
OTHER_ID = "s" + "9" * 32


def _steps(*commands, start=None):
    state = toy.created() if start is None else start
    for command in commands:
        state = toy.step(state, command)
    return state


def _settled():
    """Times 0 to 4 are settled and those before 2 merged; R1 holds 3, W1 writes."""
    appends = [
        toy.toy_append([(t, t, 1)], lower=t, upper=t + 1, token=f"t{t}", key=f"p{t}")
        for t in range(5)
    ]
    return _steps(
        *appends,
        c.RegisterReader(R1, "1.0", 3, "test"),
        c.Retain(Retention(None, 3)),
        c.AdvanceSince(10**9),
    )


WIDER = toy.SCHEMA.evolve(pa.schema([("row", pa.int64()), ("note", pa.string())]))
OTHER = Schema.create(pa.schema([("row", pa.int64()), ("other", pa.string())]), key=("row",))
OTHER_WIDER = toy.SCHEMA.evolve(pa.schema([("row", pa.int64()), ("remark", pa.string())]))

TABLE = [
    pytest.param(c.Create(toy.NAME, OTHER_ID, OTHER, 9), c.Unchanged(), id="create: lives"),
    pytest.param(c.RegisterWriter(W2, "1.0"), c.Changed, id="writer: new"),
    pytest.param(c.RegisterWriter(W1, "1.0"), c.Unchanged(), id="writer: known"),
    pytest.param(c.RegisterReader(R2, "1.0", None), c.Changed, id="reader: holds no time"),
    pytest.param(c.RegisterReader(R2, "1.0", 2), c.Changed, id="reader: at since"),
    pytest.param(c.RegisterReader(R2, "1.0", 99), c.Changed, id="reader: in the future"),
    pytest.param(
        c.RegisterReader(R2, "1.0", 1), c.SincePassed(Frontier(2)), id="reader: below since"
    ),
    pytest.param(c.RegisterReader(R1, "1.0", 0), c.Unchanged(), id="reader: known"),
    pytest.param(c.Downgrade({R1: (4, 0)}), c.Changed, id="downgrade: since"),
    pytest.param(c.Downgrade({R1: (3, 9)}), c.Changed, id="downgrade: seqno"),
    pytest.param(c.Downgrade({R1: (None, 0)}), c.Changed, id="downgrade: lets times go"),
    pytest.param(c.Downgrade({R1: (3, 0)}), c.Unchanged(), id="downgrade: to where it is"),
    pytest.param(c.Downgrade({R1: (0, 0)}), c.Unchanged(), id="downgrade: never back"),
    pytest.param(c.Downgrade({R1: (4, 0), R2: (4, 0)}), c.Lost((R2,)), id="downgrade: lost"),
    pytest.param(c.Downgrade({}), c.Unchanged(), id="downgrade: nobody"),
    pytest.param(c.Release(readers=(R1,)), c.Changed, id="release: reader"),
    pytest.param(c.Release(writers=(W1, W2)), c.Changed, id="release: who is there"),
    pytest.param(c.Release((R2,), (W2,)), c.Unchanged(), id="release: nobody"),
    pytest.param(c.Expire(frozenset({"0.0"})), c.Changed, id="expire: a writer"),
    pytest.param(c.Expire(frozenset({"1.0"})), c.Changed, id="expire: a reader"),
    pytest.param(c.Expire(frozenset({"1.1"})), c.Unchanged(), id="expire: nobody"),
    pytest.param(c.Attach("line", Frontier(5)), c.Changed, id="attach: as far"),
    pytest.param(c.Attach("line", Frontier(9)), c.Changed, id="attach: further"),
    pytest.param(c.Attach("line", Frontier(4)), c.Refused, id="attach: behind"),
    pytest.param(c.Fence(1), c.Changed, id="fence: higher"),
    pytest.param(c.Fence(0), c.Unchanged(), id="fence: equal"),
    pytest.param(c.Hold("h", 2, 0), c.Changed, id="hold: at since"),
    pytest.param(c.Hold("h", 1, 0), c.SincePassed(Frontier(2)), id="hold: below since"),
    pytest.param(c.Unhold("h", 0), c.Unchanged(), id="unhold: none"),
    pytest.param(c.Retain(Retention(5, 5)), c.Changed, id="retain: other"),
    pytest.param(c.Retain(Retention(None, 3)), c.Unchanged(), id="retain: same"),
    pytest.param(c.Retain(Retention(None, 0)), c.Refused, id="retain: no moment"),
    pytest.param(c.Retain(Retention(-1, None)), c.Refused, id="retain: negative"),
    pytest.param(c.Evolve(1, WIDER), c.Changed, id="evolve: next version"),
    pytest.param(c.Evolve(0, WIDER), c.Stale(), id="evolve: expected another"),
    pytest.param(c.Evolve(0, toy.SCHEMA), c.Unchanged(), id="evolve: is so already"),
    pytest.param(c.Evolve(0, OTHER), c.Stale(), id="evolve: same version, other columns"),
    pytest.param(c.Drop(), c.Changed, id="drop"),
]


@pytest.mark.parametrize(("command", "expected"), TABLE)
def test_a_command_on_a_living_shard(command, expected):
    state = _settled()
    outcome = decide(state, command)
    if isinstance(expected, type):
        assert type(outcome) is expected
    else:
        assert outcome == expected
    toy.apply(state, outcome)


OWNED = [
    pytest.param(c.Attach("line", Frontier(5), 3), c.Unchanged(), id="attach: same again"),
    pytest.param(c.Attach("line", Frontier(5), 4), c.Changed, id="attach: same, new owner"),
    pytest.param(c.Attach("line", Frontier(5), 2), c.Fenced(3), id="attach: same, old owner"),
    pytest.param(c.Attach("other", Frontier(5), 3), c.Refused, id="attach: elsewhere"),
    pytest.param(c.Fence(2), c.Fenced(3), id="fence: lower"),
    pytest.param(c.Drop(2), c.Fenced(3), id="drop: by an old owner"),
    pytest.param(c.Hold("h", 4, 6), c.Fenced(7), id="hold: lower epoch"),
    pytest.param(c.Hold("h", 4, 7), c.Changed, id="hold: moves"),
    pytest.param(c.Hold("h", 2, 7), c.Unchanged(), id="hold: never back"),
    pytest.param(c.Hold("h", 2, 8), c.Changed, id="hold: higher epoch"),
    pytest.param(c.Unhold("h", 6), c.Fenced(7), id="unhold: lower epoch"),
    pytest.param(c.Unhold("h", 7), c.Changed, id="unhold"),
]


@pytest.mark.parametrize(("command", "expected"), OWNED)
def test_a_command_on_an_owned_shard(command, expected):
    state = _steps(c.Attach("line", Frontier(5), 3), c.Hold("h", 3, 7), start=_settled())
    outcome = decide(state, command)
    if isinstance(expected, type):
        assert type(outcome) is expected
    else:
        assert outcome == expected
    toy.apply(state, outcome)


def test_an_unattached_shard_refuses_the_attachment_of_an_old_owner():
    assert decide(_steps(c.Fence(3)), c.Attach("line", Frontier(5), 2)) == c.Fenced(3)


def test_every_command_that_changed_something_asks_for_nothing_when_decided_again():
    """So that a commit of unknown fate can simply be decided again."""
    for case in TABLE:
        command, expected = case.values
        if expected is c.Changed:
            after = toy.step(_settled(), command)
            assert decide(after, command) == c.Unchanged(), command


def test_a_reader_holds_the_objects_of_the_version_that_registers_it():
    state = _steps(c.RegisterReader(R2, "1.0", 3, "test"), start=_settled())
    assert state.readers[R2] == Reader("1.0", 3, state.seqno.number, "test")
    assert state.seqno_hold() == state.readers[R1].seqno < state.seqno.number


def test_a_hold_keeps_the_further_time_and_takes_the_higher_epoch():
    state = _steps(c.Hold("h", 3, 7, "a"), c.Hold("h", 2, 8, "b"), start=_settled())
    assert state.holds["h"] == Critical(3, 8, "b")


def test_if_one_reader_is_lost_no_other_moves():
    state = _settled()
    outcome = decide(state, c.Downgrade({R1: (4, 0), R2: (4, 0)}))
    assert outcome == c.Lost((R2,))
    assert isinstance(decide(state, c.Downgrade({R1: (4, 0)})), c.Changed)


def test_a_reader_that_let_its_times_go_never_holds_one_again():
    state = _steps(c.Downgrade({R1: (None, 0)}), start=_settled())
    assert decide(state, c.Downgrade({R1: (2, 0)})) == c.Unchanged()
    assert state.readers[R1].since is None


def test_a_hold_on_a_version_to_come_is_a_bug():
    state = _settled()
    with pytest.raises(InvariantError, match="to come"):
        decide(state, c.Downgrade({R1: (3, state.seqno.number + 1)}))


def test_expiring_takes_all_of_a_pulse_and_nobody_else():
    state = _steps(c.RegisterWriter(W2, "1.0"), start=_settled())
    after = _steps(c.Expire(frozenset({"1.0"})), start=state)
    assert set(after.readers) == set()
    assert set(after.writers) == {W1}


def test_schemas_are_numbered_without_gaps():
    state = _steps(c.Evolve(1, WIDER))
    assert state.schema == WIDER
    gap = Schema(4, WIDER.fields, WIDER.key)
    with pytest.raises(InvariantError, match="without gaps"):
        decide(state, c.Evolve(2, gap))


def test_of_two_schema_changes_from_one_version_the_second_is_stale():
    state = _steps(c.Evolve(1, WIDER))
    assert decide(state, c.Evolve(1, OTHER_WIDER)) == c.Stale()


# Tombstones.

EXAMPLES = {
    c.Create: c.Create(toy.NAME, OTHER_ID, OTHER, 9),
    c.RegisterWriter: c.RegisterWriter(W2, "1.0"),
    c.RegisterReader: c.RegisterReader(R2, "1.0", None),
    c.RegisterTerm: c.RegisterTerm(R1, None, 0, 5),
    c.Downgrade: c.Downgrade({R1: (4, 0)}),
    c.Release: c.Release(readers=(R1,)),
    c.Expire: c.Expire(frozenset({"1.0"})),
    c.Append: toy.toy_append(lower=5, upper=6, token="x"),
    c.Withdraw: c.Withdraw(5, 0, Frontier(5)),
    c.Attach: c.Attach("line", Frontier(5)),
    c.Fence: c.Fence(8),
    c.Hold: c.Hold("h", 3, 0),
    c.Unhold: c.Unhold("h", 0),
    c.Replace: c.Replace(W1, remove_parts=frozenset({"p0"})),
    c.AdvanceSince: c.AdvanceSince(10**12),
    c.IndexMoments: c.IndexMoments(W1, MomentChunk("m", 1, 1, 1, 0, 0, 0, 0, b"0" * 24)),
    c.Retain: c.Retain(Retention(1, 1)),
    c.Evolve: c.Evolve(1, WIDER),
    c.ForgetTxn: c.ForgetTxn("query", 1),
    c.Drop: c.Drop(),
    c.AddManifest: c.AddManifest(Manifest(3, "m", 1, 1)),
    c.Forget: c.Forget(frozenset({"p0"})),
}
ON_TOMBSTONES = {
    c.Create: c.Changed,
    c.Downgrade: c.Changed,
    c.Release: c.Changed,
    c.Expire: c.Changed,
    c.AddManifest: c.Changed,
    c.Forget: c.Changed,
    c.Drop: c.Unchanged,
}


@pytest.mark.parametrize("kind", typing.get_args(c.Command), ids=lambda kind: kind.__name__)
def test_a_tombstone_takes_goodbyes_reports_and_a_new_beginning_and_nothing_else(kind):
    state = _steps(c.Drop(), start=_settled())
    outcome = decide(state, EXAMPLES[kind])
    expected = ON_TOMBSTONES.get(kind, c.Refused)
    assert type(outcome) is expected
    if expected is c.Refused:
        assert outcome == c.Refused("it was dropped")
    toy.apply(state, outcome)


@pytest.mark.parametrize("kind", typing.get_args(c.Command), ids=lambda kind: kind.__name__)
def test_a_shard_that_was_never_created_can_only_be_created(kind):
    outcome = decide(None, EXAMPLES[kind])
    if kind is c.Create:
        assert toy.apply(None, outcome).id == OTHER_ID
    else:
        assert outcome == c.Refused("it does not exist")


def test_a_drop_makes_garbage_of_all_objects_and_keeps_readers():
    """R7."""
    dropped = _steps(c.Drop(), start=_settled())
    assert dropped.batches == dropped.moments == ()
    assert dropped.writers == dropped.holds == {}
    assert set(dropped.readers) == {R1}
    (garbage,) = dropped.garbage
    assert garbage.keys == ("p0", "p1", "p2", "p3", "p4")
    assert dropped.seqno_hold() < garbage.seqno


def test_a_new_shard_on_a_tombstone_protects_the_readers_of_the_old_one():
    """What they may still be fetching stays garbage that can't be deleted yet."""
    dropped = _steps(c.Drop(), start=_settled())
    reborn = _steps(EXAMPLES[c.Create], c.RegisterWriter(W2, "2.0"), start=dropped)
    assert reborn.id == OTHER_ID
    assert (reborn.upper, reborn.since, reborn.epoch) == (Frontier(0), Frontier(0), 0)
    assert reborn.garbage == dropped.garbage
    assert reborn.seqno_hold() < reborn.garbage[0].seqno
    assert reborn.readers[R1].since is None
    gone = _steps(c.Expire(frozenset({"1.0"})), start=reborn)
    assert gone.seqno_hold() >= gone.garbage[0].seqno


def test_a_new_shard_on_the_tombstone_of_an_owned_one_takes_independent_writers():
    dropped = _steps(c.Fence(7), c.Drop(7))
    reborn = _steps(EXAMPLES[c.Create], c.RegisterWriter(W2, "2.0"), start=dropped)
    append = toy.toy_append([(1, 0, 1)], lower=0, upper=1, token="x", writer=W2)
    assert isinstance(decide(reborn, append), c.Changed)


def test_a_new_shard_on_a_tombstone_keeps_the_manifest_that_its_history_starts_from():
    """The records from it on lead over the tombstone to the new shard."""
    manifest = Manifest(2, "m2", 1, 1)
    reborn = _steps(c.AddManifest(manifest), c.Drop(), EXAMPLES[c.Create], start=_settled())
    assert reborn.manifest == manifest
    newer = _steps(c.AddManifest(Manifest(reborn.seqno.number, "m", 1, 1)), start=reborn)
    assert newer.garbage[-1].keys == ("m2",)


def test_the_writers_of_a_dropped_shard_are_lost_to_the_new_one():
    reborn = _steps(c.Drop(), EXAMPLES[c.Create])
    append = toy.toy_append([(1, 0, 1)], lower=0, upper=1, token="x")
    assert decide(reborn, append) == c.Lost((W1,))
    assert decide(reborn, c.Replace(W1)) == c.Lost((W1,))


def test_a_creation_of_unknown_fate_never_undoes_a_drop():
    create = c.Create(toy.NAME, toy.ID, toy.SCHEMA, 5)
    assert decide(_steps(c.Drop()), create) == c.Unchanged()
