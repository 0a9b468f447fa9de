"""Rules R1 to R8: each is broken on purpose, and each must be caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.errors import InvariantError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.parts.part import Batch
from strandline.shard.state import (
    Critical,
    Garbage,
    Manifest,
    MomentChunk,
    Reader,
    Writer,
    check,
    check_whole,
)
from strandline.testing import toy

CLOSED = Frontier.closed()


def _settled():
    state = toy.created()
    for t in range(4):
        key = f"p{t}" if t % 2 else ""
        append = toy.toy_append([(t, t, 1)], lower=t, upper=t + 1, token=f"t{t}", key=key)
        state = toy.step(state, append)
    return replace(state, since=Frontier(2), epoch=5)


def _attached():
    return replace(_settled(), timeline="line")


def _batch(lower, upper):
    return Batch(lower, upper, inline=toy.toy_inline([(1, lower, 1)]))


S, A = _settled(), _attached()
TOMB = replace(S, dropped=True, batches=(), writers={}, upper=CLOSED)
BATCHES = S.batches

BROKEN = [
    pytest.param(S, {"since": Frontier(4)}, None, "R1", id="R1 since at upper"),
    pytest.param(S, {"since": Frontier(9)}, None, "R1", id="R1 since past upper"),
    pytest.param(A, {"since": Frontier(3)}, Frontier(3), "R1", id="R1 since at committed"),
    pytest.param(A, {"since": Frontier(9)}, Frontier(3), "R1", id="R1 since past committed"),
    pytest.param(S, {"batches": (*BATCHES, _batch(3, 4))}, None, "R2", id="R2 overlap"),
    pytest.param(S, {"batches": (*BATCHES, _batch(4, 5))}, None, "R2", id="R2 past upper"),
    pytest.param(S, {"batches": (*BATCHES[:3], _batch(4, 4))}, None, "R2", id="R2 empty"),
    pytest.param(S, {"batches": BATCHES[::-1]}, None, "R2", id="R2 out of order"),
    pytest.param(S, {"batches": (_batch(0, 2), *BATCHES[1:])}, None, "R2", id="R2 first"),
    pytest.param(S, {"readers": {"r": Reader("0.0", 1, 0)}}, None, "R3", id="R3 a reader"),
    pytest.param(S, {"holds": {"h": Critical(1, 0)}}, None, "R3", id="R3 a critical hold"),
    pytest.param(S, {"since": Frontier(1)}, None, "R4", id="R4 since back"),
    pytest.param(S, {"epoch": 4}, None, "R4", id="R4 epoch back"),
    pytest.param(S, {"upper": Frontier(3), "batches": BATCHES[:3]}, None, "R4", id="R4 upper back"),
    pytest.param(S, {"instant_ms": 1}, None, "R6", id="R6 instants back"),
    pytest.param(TOMB, {"batches": BATCHES}, None, "R7", id="R7 a tombstone's batches"),
    pytest.param(TOMB, {"writers": {"w": Writer("0.0")}}, None, "R7", id="R7 its writers"),
]


@pytest.mark.parametrize(("before", "planted", "committed", "rule"), BROKEN)
def test_check_catches_a_broken_rule(before, planted, committed, rule):
    check(before, before, committed)
    with pytest.raises(InvariantError, match=rule):
        check(before, replace(before, **planted), committed)


@pytest.mark.parametrize(
    ("before", "allowed", "committed"),
    [
        pytest.param(toy.created(), {"since": Frontier(0)}, None, id="R1 nothing settled"),
        pytest.param(S, {"since": Frontier(3)}, None, id="R1 the newest time stays"),
        pytest.param(A, {"since": Frontier(8)}, Frontier(9), id="R1 past an idle upper"),
        pytest.param(A, {"since": Frontier(9)}, CLOSED, id="R1 a closed timeline"),
        pytest.param(A, {"epoch": 6}, Frontier(1), id="R1 an old reading of the timeline"),
        pytest.param(S, {"upper": CLOSED}, None, id="R2 closed"),
        pytest.param(S, {"batches": (*BATCHES[:2], BATCHES[3])}, None, id="R2 a gap"),
        pytest.param(S, {"readers": {"r": Reader("0.0", 2, 0)}}, None, id="R3 at since"),
        pytest.param(S, {"readers": {"r": Reader("0.0", None, 0)}}, None, id="R3 no time"),
        pytest.param(A, {"upper": Frontier(3), "batches": BATCHES[:3]}, None, id="R4 withdrawn"),
        pytest.param(
            TOMB,
            {"dropped": False, "upper": Frontier(0), "since": Frontier(0), "epoch": 0},
            None,
            id="R4 a new shard on a tombstone",
        ),
    ],
)
def test_check_allows_what_is_right(before, allowed, committed):
    check(before, replace(before, **allowed), committed)


def test_a_rule_is_checked_where_only_the_hold_or_only_since_moved():
    """R3: the shortcut for unchanged holds must not skip either."""
    held = replace(S, readers={"r": Reader("0.0", 2, 0)})
    with pytest.raises(InvariantError, match="R3"):
        check(held, replace(held, since=Frontier(3)))
    with pytest.raises(InvariantError, match="R3"):
        check(held, replace(held, readers={"r": Reader("0.0", 1, 0)}))


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        pytest.param({"batches": BATCHES[1:]}, "R5", id="R5 a batch is missing"),
        pytest.param({"batches": (*BATCHES, _batch(9, 10))}, "R5", id="R5 a batch too many"),
        pytest.param({"moments": S.moments[1:]}, "R5", id="R5 a moment is missing"),
        pytest.param({"settled": toy.digest_of([(1, 1, 1)])}, "R5", id="R5 settled twice"),
        pytest.param({"total": Digest.ZERO}, "R5", id="R5 another total"),
        pytest.param({"garbage": (Garbage(1, ("p1",)),)}, "R8", id="R8 a part is garbage"),
        pytest.param({"garbage": (Garbage(1, (), ("p1",)),)}, "R8", id="R8 as a chunk"),
        pytest.param(
            {"manifest": Manifest(1, "m", 1, 1), "garbage": (Garbage(1, ("m",)),)},
            "R8",
            id="R8 the manifest is garbage",
        ),
        pytest.param(
            {
                "moment_chunks": (MomentChunk("m", 1, 1, 0, 0, 0, 0, 0, Digest.ZERO.pack()),),
                "garbage": (Garbage(1, ("m",)),),
            },
            "R8",
            id="R8 a chunk of moments is garbage",
        ),
        pytest.param(
            {"manifest": Manifest(1, "p1", 1, 1)}, "R8", id="R8 one object for two things"
        ),
    ],
)
def test_check_whole_catches_a_broken_rule(planted, rule):
    check_whole(S)
    with pytest.raises(InvariantError, match=rule):
        check_whole(replace(S, **planted))


def test_the_oldest_version_held_is_the_smallest_of_all_readers_or_the_newest_there_is():
    assert S.seqno_hold() == S.seqno.number
    readers = {"a": Reader("0.0", None, 4), "b": Reader("0.0", 2, 3)}
    assert replace(S, readers=readers).seqno_hold() == 3


def test_what_a_state_tells_about_itself():
    assert S.readable_from() == 2
    assert S.inline_bytes() == sum(len(b.inline.payload) for b in BATCHES if b.inline)
    held = replace(S, readers={"a": Reader("0.0", None, 4)}, holds={"h": Critical(3, 0)})
    assert list(held.since_holds()) == [("h", 3)]


def test_a_check_costs_what_changed_and_not_what_there_is():
    """Batches that were there before are not looked at again, so a lie among them goes unseen;
    they were proven when they came."""
    lie = (_batch(5, 2), *BATCHES[1:])
    before = replace(S, batches=lie, seqno=SeqNo(1))
    check(before, replace(before, batches=(*lie, _batch(4, 5)), upper=Frontier(5)))
