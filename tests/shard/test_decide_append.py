"""Every row of the table in `decide_append`, withdrawing, and what a stalled writer may do."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from strandline.errors import InvariantError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.parts.part import Batch
from strandline.shard import command as c
from strandline.shard.change import evolve
from strandline.shard.decide import decide
from strandline.shard.retention import Aged
from strandline.shard.state import Garbage, MomentChunk, Retention
from strandline.testing import toy

CLOSED = Frontier.closed()


def _settled(upto: int = 3):
    """Unattached, one row at each time, `upper` is `upto`."""
    state = toy.created(writers=(toy.W1, toy.W2))
    for time in range(upto):
        append = toy.toy_append([(time, time, 1)], lower=time, upper=time + 1, token=f"t{time}")
        state = toy.step(state, append)
    return state


def _attached(upto: int = 3, epoch: int = 2):
    return toy.step(_settled(upto), c.Attach("line", Frontier(upto), epoch))


def _append(lower=3, upper=4, *, token="new", updates=None, **facts):
    rows = [(9, lower, 1)] if updates is None else updates
    return replace(toy.toy_append(rows, lower=lower, upper=upper, token=token), **facts)


UNATTACHED = [
    pytest.param(_append(), c.Changed, id="at the upper"),
    pytest.param(_append(upper=9), c.Changed, id="several times at once"),
    pytest.param(_append(upper=None), c.Changed, id="closing with rows"),
    pytest.param(_append(updates=()), c.Changed, id="empty, moves time"),
    pytest.param(_append(upper=None, updates=()), c.Changed, id="closing without rows"),
    pytest.param(_append(token="t2"), c.Unchanged, id="the writer's last token"),
    pytest.param(_append(0, 1, token="t2"), c.Unchanged, id="its token, wherever it starts"),
    pytest.param(_append(writer="w" + "f" * 32), c.Lost, id="writer not registered"),
    pytest.param(_append(2, 3), c.UpperMismatch, id="below the upper"),
    pytest.param(_append(4, 5), c.UpperMismatch, id="above the upper"),
    pytest.param(_append(timeline="line"), c.Refused, id="through a timeline it is not on"),
]

ATTACHED = [
    pytest.param(_append(epoch=2, timeline="line"), c.Changed, id="at the upper"),
    pytest.param(_append(7, 8, epoch=2, timeline="line"), c.Changed, id="after idle times"),
    pytest.param(_append(epoch=3, timeline="line"), c.Changed, id="a higher epoch"),
    pytest.param(_append(2, 3, epoch=2, timeline="line"), c.UpperMismatch, id="below upper"),
    pytest.param(_append(epoch=1, timeline="line"), c.Fenced, id="an epoch below the highest"),
    pytest.param(_append(epoch=2), c.Refused, id="not through its timeline"),
    pytest.param(_append(epoch=2, timeline="other"), c.Refused, id="another timeline"),
]


@pytest.mark.parametrize(("command", "outcome"), UNATTACHED)
def test_an_append_to_an_unattached_shard(command, outcome):
    state = _settled()
    found = decide(state, command)
    assert type(found) is outcome
    toy.apply(state, found)


@pytest.mark.parametrize(("command", "outcome"), ATTACHED)
def test_an_append_to_an_attached_shard(command, outcome):
    state = _attached()
    found = decide(state, command)
    assert type(found) is outcome
    toy.apply(state, found)


def test_a_mismatch_tells_the_upper_and_a_fence_its_epoch():
    assert decide(_settled(), _append(1, 2)) == c.UpperMismatch(Frontier(3))
    assert decide(_attached(), _append(epoch=1, timeline="line")) == c.Fenced(2)
    assert decide(_settled(), _append(writer="w" + "f" * 32)) == c.Lost(("w" + "f" * 32,))


def test_nothing_is_appended_to_a_closed_shard():
    state = toy.step(_settled(), _append(upper=None))
    assert state.upper == CLOSED
    assert decide(state, _append(4, 5, token="x")) == c.UpperMismatch(CLOSED)


def test_an_append_changes_exactly_what_it_says():
    before = _settled()
    after = toy.step(before, _append(upper=6, updates=[(1, 3, 1), (1, 4, -1), (2, 4, 5)]))
    assert after.upper == Frontier(6)
    assert [(m.time, m.total) for m in after.moments[3:]] == [
        (3, toy.digest_of([(1, 3, 1)])),
        (4, toy.digest_of([(1, 4, -1), (2, 4, 5)])),
        (5, Digest.ZERO),
    ]
    assert after.total - before.total == toy.digest_of([(2, 4, 5)])
    writer = after.writers[toy.W1]
    assert (writer.token, writer.lower, writer.upper) == ("new", 3, 6)
    assert writer.seqno == after.seqno.number == before.seqno.number + 1
    assert after.readers is before.readers
    assert after.batches[:3] == before.batches


def test_closing_remembers_when_the_last_rows_came():
    closed = toy.step(_settled(), _append(upper=None, updates=[(1, 3, 1), (1, 8, 1)]))
    assert [moment.time for moment in closed.moments[3:]] == [3, 8]
    bare = toy.step(_settled(), _append(upper=None, updates=()))
    assert [moment.time for moment in bare.moments[3:]] == [3]


def test_instants_never_move_back_although_the_clock_does():
    """R6."""
    state = toy.step(_settled(), _append(now_ms=9000))
    state = toy.step(state, _append(4, 5, token="later", now_ms=10))
    assert [moment.instant_ms for moment in state.moments[-2:]] == [9000, 9000]


def test_an_attached_append_below_since_is_refused_even_above_the_physical_upper():
    """An idle shard's since passes its upper; rows below it would change what was read."""
    state = toy.step(_attached(), c.Retain(Retention(0, None)))
    far = Frontier(50)
    state = toy.step(state, _append(10, 11, epoch=2, timeline="line"), far)
    state = toy.step(state, c.AdvanceSince(10**9, far, Aged(0, 49)), far)
    assert state.since == Frontier(10)
    state = replace(state, since=Frontier(20))
    late = _append(15, 16, token="late", epoch=2, timeline="line")
    assert decide(state, late) == c.UpperMismatch(Frontier(20))


BROKEN = [
    pytest.param(replace(_append(), upper=Frontier(3)), id="no time at all"),
    pytest.param(replace(_append(), upper=Frontier(2)), id="upper below lower"),
    pytest.param(_append(updates=[(1, 2, 1)]), id="rows below lower"),
    pytest.param(_append(updates=[(1, 4, 1)]), id="rows at upper"),
    pytest.param(replace(_append(), batch=None), id="digests without rows"),
    pytest.param(replace(_append(), digests={}), id="rows without digests"),
    pytest.param(replace(_append(), digests={3: toy.digest_of([(8, 3, 1)])}), id="R5 others"),
    pytest.param(replace(_append(), token=""), id="no token"),
    pytest.param(
        replace(_append(upper=9), batch=msgspec.structs.replace(_append().batch, upper=10)),
        id="a batch that ends after its append",
    ),
    pytest.param(
        replace(_append(upper=9), batch=msgspec.structs.replace(_append().batch, lower=2)),
        id="a batch that starts before its append",
    ),
]


@pytest.mark.parametrize("command", BROKEN)
def test_an_append_that_contradicts_itself_is_a_bug_and_changes_nothing(command):
    with pytest.raises(InvariantError):
        decide(_settled(), command)


# Withdrawing.


def _staged():
    """Attached and committed up to 3, with uncommitted rows at 3 by W1 and at 4 by W2."""
    state = _attached()
    facts = {"epoch": 2, "timeline": "line"}
    first = replace(toy.toy_append([(5, 3, 1)], lower=3, upper=4, token="a", key="p3"), **facts)
    second = toy.toy_append([(6, 4, 1)], lower=4, upper=5, token="b", key="p4", writer=toy.W2)
    return toy.step(toy.step(state, first), replace(second, **facts))


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        pytest.param(c.Withdraw(3, 2, Frontier(3)), c.Changed, id="all that is uncommitted"),
        pytest.param(c.Withdraw(4, 2, Frontier(3)), c.Changed, id="some of it"),
        pytest.param(c.Withdraw(3, 9, Frontier(3)), c.Changed, id="by a new owner"),
        pytest.param(c.Withdraw(5, 2, Frontier(3)), c.Unchanged, id="nothing there"),
        pytest.param(c.Withdraw(5, 3, Frontier(3)), c.Changed, id="nothing there, a new owner"),
        pytest.param(c.Withdraw(3, 1, Frontier(3)), c.Fenced, id="by an old owner"),
        pytest.param(c.Withdraw(3, 2, Frontier(4)), c.Refused, id="what is committed"),
        pytest.param(c.Withdraw(3, 2, CLOSED), c.Refused, id="all is committed"),
    ],
)
def test_withdrawing_from_an_attached_shard(command, outcome):
    state = _staged()
    found = decide(state, command)
    assert type(found) is outcome
    toy.apply(state, found, command.committed)


def test_withdrawing_leaves_the_state_as_it_was_but_for_garbage_and_tokens():
    after = toy.step(_staged(), c.Withdraw(3, 2, Frontier(3)), Frontier(3))
    before = _attached()
    assert (after.upper, after.total, after.batches) == (
        before.upper,
        before.total,
        before.batches,
    )
    assert after.moments == before.moments
    assert after.garbage == (Garbage(after.seqno.number, ("p3", "p4")),)
    assert [writer.token for writer in after.writers.values()] == ["", ""]


def test_withdrawing_a_later_append_keeps_the_token_of_an_earlier_one():
    after = toy.step(_staged(), c.Withdraw(4, 2, Frontier(3)), Frontier(3))
    assert after.writers[toy.W1].token == "a"
    assert after.writers[toy.W2].token == ""


def test_an_append_of_unknown_fate_that_was_withdrawn_is_not_taken_for_counted():
    """Its token is gone with it, so its owner learns the truth: fenced, or to append again."""
    facts = {"epoch": 2, "timeline": "line"}
    again = replace(toy.toy_append([(5, 3, 1)], lower=3, upper=4, token="a", key="p3"), **facts)
    assert decide(_staged(), again) == c.Unchanged()
    same_owner = toy.step(_staged(), c.Withdraw(3, 2, Frontier(3)), Frontier(3))
    assert isinstance(decide(same_owner, again), c.Changed)
    new_owner = toy.step(_staged(), c.Withdraw(3, 3, Frontier(3)), Frontier(3))
    assert decide(new_owner, again) == c.Fenced(3)


def test_the_parts_that_only_a_withdrawn_chunk_listed_go_with_it():
    shard = toy.ToyShard()
    chunk = shard.put_chunk("k", [shard.put("q", [(5, 3, 1)])])
    append = _append(updates=[(5, 3, 1)], epoch=2, timeline="line")
    append = replace(append, batch=Batch(3, 4, chunks=(chunk,)))
    after = toy.step(toy.step(_attached(), append), c.Withdraw(3, 2, Frontier(3)), Frontier(3))
    assert after.garbage == (Garbage(after.seqno.number, ("k",), ("k",)),)


def test_withdrawing_nothing_still_fences_older_owners():
    state = toy.step(_staged(), c.Withdraw(5, 3, Frontier(5)), Frontier(5))
    assert state.upper == Frontier(5)
    assert decide(state, _append(5, 6, epoch=2, timeline="line")) == c.Fenced(3)


def test_only_an_attached_shard_has_something_to_withdraw():
    assert isinstance(decide(_settled(), c.Withdraw(0, 0, Frontier(0))), c.Refused)


def test_withdrawing_may_reopen_a_shard_that_was_closed_but_not_committed():
    last = _append(4, None, token="c", epoch=2, timeline="line", writer=toy.W1)
    state = toy.step(_staged(), replace(last, lower=5, batch=None, digests={}))
    assert state.upper == CLOSED
    after = toy.step(state, c.Withdraw(3, 2, Frontier(3)), Frontier(3))
    assert after.upper == Frontier(3)


def test_withdrawing_is_refused_across_a_batch_a_chunk_of_moments_or_since():
    wide = _append(3, 6, updates=[(1, 3, 1), (1, 5, 1)], epoch=2, timeline="line")
    state = toy.step(_attached(), wide)
    assert "straddles" in decide(state, c.Withdraw(4, 2, Frontier(3))).reason
    staged = _staged()
    total = Digest.ZERO
    for moment in staged.moments:
        total = total + moment.total
    chunk = MomentChunk("m", 1, 1, 5, 0, 4, 1000, 1000, total.pack())
    indexed = toy.step(staged, c.IndexMoments(toy.W1, chunk, Frontier(5)))
    assert "chunk" in decide(indexed, c.Withdraw(3, 2, Frontier(3))).reason
    merged = replace(staged, since=Frontier(4))
    assert "committed" in decide(merged, c.Withdraw(3, 2, Frontier(0))).reason


# What a stalled writer may do: decide, then compare-and-set on the version it decided on.


class _Cas:
    """One key of Consensus, as far as two deciders need it."""

    def __init__(self, state):
        self.head = state

    def land(self, decided_on, outcome):
        if self.head.seqno != decided_on.seqno:
            return False
        self.head = evolve(decided_on, outcome.change)
        return True


def test_a_stale_writers_append_never_counts_after_it_expired():
    """Whether it was decided before the expiry or after it."""
    store = _Cas(_settled())
    seen = store.head
    decided = decide(seen, _append())
    expiry = decide(store.head, c.Expire(frozenset({"0.0"})))
    assert store.land(store.head, expiry)
    assert not store.land(seen, decided)
    assert decide(store.head, _append()) == c.Lost((toy.W1,))


def test_an_append_of_unknown_fate_counts_once_whenever_it_lands():
    """A is decided; B by the same writer follows; A's compare-and-set lands before or never."""
    a, b = _append(token="a"), _append(token="b", updates=[(4, 3, 1)])
    start = _settled()
    early = _Cas(start)
    assert early.land(start, decide(start, a))
    assert decide(early.head, a) == c.Unchanged()
    assert decide(early.head, b) == c.UpperMismatch(Frontier(4))
    late = _Cas(start)
    decided = decide(start, a)
    assert late.land(start, decide(start, b))
    assert not late.land(start, decided)
    assert decide(late.head, a) == c.UpperMismatch(Frontier(4))
    assert late.head.total == start.total + toy.digest_of([(4, 3, 1)])


def test_a_late_duplicate_of_an_older_append_is_never_applied_twice():
    """Even when the writer's token has moved on, the upper has moved with it."""
    a = _append(token="a")
    state = toy.step(_settled(), a)
    state = toy.step(state, _append(4, 5, token="b"))
    assert decide(state, a) == c.UpperMismatch(Frontier(5))
