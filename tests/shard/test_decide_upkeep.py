"""What upkeep may do, and what it must never do."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from strandline.errors import InvariantError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.parts.part import PLACE_MAX, Chunk
from strandline.shard import command as c
from strandline.shard.decide import decide
from strandline.shard.state import Garbage, Manifest, MomentChunk, Retention
from strandline.testing import toy

W1 = toy.W1
ROWS = {t: ((t, t, 1),) for t in range(5)}


def _settled():
    """Parts p0, p1, inline rows at 2, parts p3, p4; one row each."""
    state = toy.created()
    for t, updates in ROWS.items():
        key = "" if t == 2 else f"p{t}"
        append = toy.toy_append(updates, lower=t, upper=t + 1, token=f"t{t}", key=key)
        state = toy.step(state, replace(append, now_ms=1000 + t))
    return state


def _rows(*times):
    return [update for t in times for update in ROWS[t]]


def _replace(*times, key="new", inline=(), **facts):
    """Merge the parts of these times and the inline rows at others into one part."""
    keys = frozenset(f"p{t}" for t in times)
    part = toy.toy_part(key, _rows(*times, *inline))
    command = c.Replace(W1, keys, frozenset(), frozenset(inline), (part,), (), tuple(sorted(keys)))
    return replace(command, **facts)


CHUNK = Chunk("c", 9, 9, 2, 2, 200, toy.digest_of(_rows(0, 1)).pack(), 0, 1, 0, PLACE_MAX, "c.s")
INTO_CHUNK = c.Replace(W1, frozenset({"p0", "p1"}), chunks=(CHUNK,))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(_replace(0, 1), c.Changed, id="two parts"),
        pytest.param(_replace(4), c.Changed, id="one part"),
        pytest.param(_replace(0, 1, 3, 4, inline=(2,)), c.Changed, id="all, with inline rows"),
        pytest.param(_replace(inline=(2,)), c.Changed, id="only inline rows"),
        pytest.param(INTO_CHUNK, c.Changed, id="parts into a chunk"),
        pytest.param(_replace(0, 1, writer=toy.W2), c.Lost((toy.W2,)), id="writer is lost"),
        pytest.param(c.Replace(W1), c.Stale(), id="nothing for nothing"),
        pytest.param(
            _replace(0, 1, remove_parts=frozenset({"p0", "p9"})), c.Stale(), id="a part is gone"
        ),
        pytest.param(
            _replace(0, 1, remove_chunks=frozenset({"c9"})), c.Stale(), id="a chunk is gone"
        ),
        pytest.param(
            _replace(0, 1, remove_inline=frozenset({1})), c.Stale(), id="inline rows are gone"
        ),
    ],
)
def test_replacing_pieces(command, expected):
    state = _settled()
    outcome = decide(state, command)
    if isinstance(expected, type):
        assert type(outcome) is expected
        assert decide(toy.apply(state, outcome), command) == c.Unchanged()
    else:
        assert outcome == expected


def test_batches_that_lose_a_piece_are_fused_and_their_neighbours_stay():
    after = toy.step(_settled(), _replace(0, 1))
    assert [(b.lower, b.upper) for b in after.batches] == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert [part.key for part in after.batches[0].parts] == ["new"]
    assert after.garbage == (Garbage(after.seqno.number, ("p0", "p1")),)
    assert after.total == _settled().total


def test_a_fused_batch_has_the_highest_epoch_of_those_it_is_made_of():
    state = _settled()
    epochs = (3, 1, 0, 0, 2)
    batches = [
        msgspec.structs.replace(batch, epoch=epoch)
        for batch, epoch in zip(state.batches, epochs, strict=True)
    ]
    after = toy.step(replace(state, batches=tuple(batches)), _replace(0, 1))
    assert [batch.epoch for batch in after.batches] == [3, 0, 0, 2]


def test_a_part_between_two_that_go_stays_in_the_fused_batch():
    after = toy.step(_settled(), _replace(inline=(2,), key="flushed"))
    after = toy.step(after, _replace(1, 3, key="outer"))
    fused = after.batches[1]
    assert (fused.lower, fused.upper) == (1, 4)
    assert [part.key for part in fused.parts] == ["flushed", "outer"]


def test_a_chunk_can_be_replaced_again_and_becomes_garbage_with_what_it_listed():
    state = toy.step(_settled(), INTO_CHUNK)
    assert state.garbage == ()
    part = toy.toy_part("new", _rows(0, 1))
    garbage = ("c", "c.s", "p0", "p1")
    command = c.Replace(W1, remove_chunks=frozenset({"c"}), parts=(part,), garbage=garbage)
    after = toy.step(state, command)
    assert after.garbage == (Garbage(after.seqno.number, garbage),)
    with pytest.raises(InvariantError, match="not garbage"):
        decide(state, replace(command, garbage=()))


def test_rows_that_cancel_leave_no_batch():
    state = _settled()
    back = toy.toy_append([(0, 5, -1)], lower=5, upper=6, token="t5", key="p5")
    state = toy.step(state, back)
    state = toy.step(state, _replace(inline=(2,), key="p2"))
    keys = frozenset({"p0", "p1", "p2", "p3", "p4", "p5"})
    rest = toy.toy_part("rest", _rows(1, 2, 3, 4))
    after = toy.step(state, c.Replace(W1, keys, parts=(rest,), garbage=tuple(keys)))
    assert [part.key for part in after.batches[0].parts] == ["rest"]
    empty = toy.created()
    for t, diff in ((0, 1), (1, -1)):
        append = toy.toy_append([(7, t, diff)], lower=t, upper=t + 1, token=f"{t}", key=f"q{t}")
        empty = toy.step(empty, append)
    gone = c.Replace(W1, frozenset({"q0", "q1"}), garbage=("q0", "q1"))
    assert toy.step(empty, gone).batches == ()


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(_replace(0, 1, parts=(toy.toy_part("x", _rows(0)),)), id="R5 rows missing"),
        pytest.param(
            _replace(0, 1, parts=(toy.toy_part("x", _rows(0, 1, 1)),)), id="R5 rows doubled"
        ),
        pytest.param(_replace(0, 1, since=1), id="merged past since"),
        pytest.param(
            _replace(0, 1, parts=(toy.toy_part("x", [(0, 0, 1), (1, 2, 1)]),)),
            id="rows moved past since",
        ),
        pytest.param(_replace(1, parts=(toy.toy_part("x", [(1, 0, 1)]),)), id="rows moved back"),
        pytest.param(_replace(1, 3), id="inline rows between"),
        pytest.param(_replace(0, 1, garbage=("p0", "new")), id="R8 its own output is garbage"),
    ],
)
def test_a_replacement_that_would_change_what_is_read_is_a_bug(command):
    with pytest.raises(InvariantError):
        decide(_settled(), command)


def test_of_two_compactions_of_one_part_the_second_is_stale():
    after = toy.step(_settled(), _replace(0, 1))
    assert decide(after, _replace(1, key="other")) == c.Stale()


def test_withdrawn_rows_never_come_back_by_a_replacement():
    state = toy.step(_settled(), c.Attach("line", Frontier(5)))
    staged = toy.toy_append([(9, 5, 1)], lower=5, upper=6, token="s", key="p5")
    state = toy.step(state, replace(staged, timeline="line"))
    compacted = c.Replace(
        W1,
        frozenset({"p4", "p5"}),
        parts=(toy.toy_part("new", [*_rows(4), (9, 5, 1)]),),
        garbage=("p4", "p5"),
    )
    assert isinstance(decide(state, compacted), c.Changed)
    state = toy.step(state, c.Withdraw(5, 0, Frontier(5)), Frontier(5))
    assert decide(state, compacted) == c.Stale()
    smuggled = replace(compacted, remove_parts=frozenset({"p4"}), garbage=("p4",))
    with pytest.raises(InvariantError, match=r"R5|outside"):
        decide(state, smuggled)


# Since.


def _kept(count):
    return toy.step(_settled(), c.Retain(Retention(None, count)))


def test_since_moves_as_far_as_retention_allows_and_moments_go_with_it():
    state = _kept(2)
    after = toy.step(state, c.AdvanceSince(10**9))
    assert after.since == Frontier(3)
    assert [moment.time for moment in after.moments] == [3, 4]
    assert after.settled == toy.digest_of(_rows(0, 1, 2))
    assert decide(after, c.AdvanceSince(10**9)) == c.Unchanged()


def test_since_stops_at_every_hold():
    """R3."""
    held = toy.step(_kept(1), c.RegisterReader(toy.R1, "1.0", 2))
    held = toy.step(held, c.Hold("h", 1, 0))
    assert toy.step(held, c.AdvanceSince(10**9)).since == Frontier(1)
    free = toy.step(held, c.Unhold("h", 0))
    assert toy.step(free, c.AdvanceSince(10**9)).since == Frontier(2)
    blind = toy.step(free, c.Downgrade({toy.R1: (None, 0)}))
    assert toy.step(blind, c.AdvanceSince(10**9)).since == Frontier(4)


def test_an_attached_shards_since_waits_for_its_timeline():
    """R1."""
    state = toy.step(_kept(1), c.Attach("line", Frontier(5)))
    staged = toy.toy_append([(9, 5, 1)], lower=5, upper=6, token="s")
    state = toy.step(state, replace(staged, timeline="line", now_ms=2000))
    assert decide(state, c.AdvanceSince(10**9)) == c.Unchanged()
    after = toy.step(state, c.AdvanceSince(10**9, Frontier(5)), Frontier(5))
    assert after.since == Frontier(4)


# Moments.


def _index(state, upto, key="m", **facts):
    listed = state.moments[:upto]
    total = Digest.ZERO
    for moment in listed:
        total = total + moment.total
    chunk = MomentChunk(
        key,
        9,
        9,
        upto,
        listed[0].time,
        listed[-1].time,
        listed[0].instant_ms,
        listed[-1].instant_ms,
        total.pack(),
    )
    return c.IndexMoments(toy.W1, msgspec.structs.replace(chunk, **facts))


def test_r15_moments_stay_listed_if_the_writer_of_their_object_has_expired():
    state = toy.step(_settled(), c.Release(writers=(W1,)))
    assert decide(state, _index(state, 3)) == c.Lost((W1,))


def test_moments_go_into_a_chunk_and_later_out_of_it():
    state = _settled()
    command = _index(state, 3)
    after = toy.step(state, command)
    assert [moment.time for moment in after.moments] == [3, 4]
    assert [chunk.key for chunk in after.moment_chunks] == ["m"]
    assert decide(after, command) == c.Unchanged()
    merged = toy.step(toy.step(after, c.Retain(Retention(None, 1))), c.AdvanceSince(10**9))
    assert merged.moment_chunks == ()
    assert merged.garbage == (Garbage(merged.seqno.number, ("m",)),)
    assert merged.settled == toy.digest_of(_rows(0, 1, 2, 3))


@pytest.mark.parametrize(
    "facts",
    [{"count": 4}, {"count": 0}, {"count": 99}, {"first_time": 1}, {"last_time": 3}],
    ids=str,
)
def test_a_chunk_of_other_moments_is_stale(facts):
    state = _settled()
    assert decide(state, _index(state, 3, **facts)) == c.Stale()


@pytest.mark.parametrize(
    "facts",
    [{"digest": b"0" * 24}, {"first_instant_ms": 9}, {"last_instant_ms": 9}],
    ids=str,
)
def test_a_chunk_that_does_not_add_up_is_a_bug(facts):
    """R5."""
    state = _settled()
    with pytest.raises(InvariantError):
        decide(state, _index(state, 3, **facts))


@pytest.mark.parametrize(
    ("committed", "expected"),
    [(None, c.Refused), (Frontier(2), c.Refused), (Frontier(3), c.Changed)],
    ids=str,
)
def test_moments_that_may_be_withdrawn_stay_listed(committed, expected):
    state = toy.step(_settled(), c.Attach("line", Frontier(5)))
    command = replace(_index(state, 3), committed=committed)
    assert type(decide(state, command)) is expected


# Manifests, garbage, drop.


def test_manifests_only_move_forward_and_the_old_one_becomes_garbage():
    first, second = Manifest(2, "m2", 1, 1), Manifest(4, "m4", 1, 1)
    state = toy.step(_settled(), c.AddManifest(first))
    assert decide(state, c.AddManifest(first)) == c.Unchanged()
    after = toy.step(state, c.AddManifest(second))
    assert after.manifest == second
    assert after.garbage == (Garbage(after.seqno.number, ("m2",)),)
    assert decide(after, c.AddManifest(first)) == c.Stale()
    assert decide(after, c.AddManifest(Manifest(4, "other", 1, 1))) == c.Stale()
    with pytest.raises(InvariantError, match="to come"):
        decide(after, c.AddManifest(Manifest(after.seqno.number + 1, "m", 1, 1)))


@pytest.mark.parametrize("order", ["add forget", "forget add"])
def test_no_order_of_manifests_and_forgetting_loses_the_current_one(order):
    """Only garbage is ever forgotten, and a current manifest never is garbage (R8)."""
    state = toy.step(_settled(), c.AddManifest(Manifest(2, "m2", 1, 1)))
    forget = c.Forget(frozenset({"m2", "m4"}))
    for word in order.split():
        command = c.AddManifest(Manifest(4, "m4", 1, 1)) if word == "add" else forget
        state = toy.apply(state, decide(state, command))
    assert state.manifest.key == "m4"
    assert state.seqno_hold() == state.seqno.number
    listed = {key for garbage in state.garbage for key in garbage.keys}
    assert listed == (set() if order == "add forget" else {"m2"})


def test_forgetting_takes_only_what_is_listed():
    state = toy.step(_settled(), _replace(0, 1))
    assert decide(state, c.Forget(frozenset({"p3", "nothing"}))) == c.Unchanged()
    after = toy.step(state, c.Forget(frozenset({"p0", "p3"})))
    assert [garbage.keys for garbage in after.garbage] == [("p1",)]
    assert toy.step(after, c.Forget(frozenset({"p1"}))).garbage == ()


def test_a_dropped_chunk_is_listed_with_a_mark_that_its_parts_go_too():
    state = toy.step(toy.step(_settled(), INTO_CHUNK), _index(_settled(), 2))
    after = toy.step(state, c.Drop())
    assert after.garbage == (Garbage(after.seqno.number, ("c", "c.s", "p3", "p4", "m"), ("c",)),)
    assert after.total == after.settled == Digest.ZERO
    forgotten = toy.step(after, c.Forget(frozenset({"c"})))
    assert forgotten.garbage[0].chunks == ()


def test_a_drop_in_doubt_does_not_drop_what_was_created_since():
    state = toy.created()
    dropped = toy.step(state, c.Drop(0, state.id))
    other = "s" + "9" * 32
    reborn = toy.step(dropped, c.Create(state.name, other, toy.SCHEMA, 7))
    assert decide(reborn, c.Drop(0, state.id)) == c.Unchanged()
    assert isinstance(decide(reborn, c.Drop(0, other)), c.Changed)
