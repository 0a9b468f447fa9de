"""Tests of owning a timeline: who may stage, and what a takeover leaves."""

from __future__ import annotations

import pytest

from strandline.errors import BoundsError, FencedError, MaybeAppliedError, UsageError
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.timeline import Members, with_member
from strandline.testing.lab import Client, Lab, rows


def test_several_shards_move_together_by_one_record(lab: Lab) -> None:
    ours, theirs = Client(lab), Client(lab)
    ours.attach()
    with ours.own() as owner:
        owner.stage("orders", rows(1))
        assert theirs.upper("orders") == theirs.upper("stock") == Frontier(0)
        owner.commit()
    assert theirs.upper("orders") == theirs.upper("stock") == Frontier(1)


def test_an_idle_shard_costs_nothing(lab: Lab) -> None:
    ours = Client(lab)
    ours.attach()
    with ours.own() as owner:
        before = ours.machines["stock"].refresh().seqno
        for number in range(20):
            owner.stage("orders", rows(number))
            owner.commit()
        assert ours.machines["stock"].refresh().seqno == before
    assert ours.upper("stock") == Frontier(20)


def test_what_was_never_committed_is_gone_with_the_next_owner(lab: Lab) -> None:
    first, second = Client(lab), Client(lab)
    first.attach()
    old = first.own()
    old.stage("orders", rows(1))
    old.stage("stock", rows(2))
    with second.own() as owner:
        # The new owner writes to one of the two shards only; the other one's leftovers
        # must not become visible with its commit.
        owner.stage("orders", rows(7))
        owner.commit()
    for name, expected in (("orders", 1), ("stock", 0)):
        state = second.machines[name].refresh()
        assert sum(batch.rows for batch in state.batches) == expected
    with pytest.raises(FencedError):
        old.commit()
    old.close()


def test_an_old_owner_can_not_append_after_a_takeover(lab: Lab) -> None:
    first, second = Client(lab), Client(lab)
    first.attach()
    old = first.own()
    new = second.own()
    with pytest.raises(FencedError):
        old.stage("orders", rows(1))
    new.stage("orders", rows(2))
    new.commit()
    assert [b.rows for b in second.machines["orders"].refresh().batches] == [1]
    old.close()
    new.close()


def test_rows_are_staged_once_per_time(lab: Lab) -> None:
    ours = Client(lab)
    ours.attach()
    with ours.own() as owner:
        owner.stage("orders", rows(1))
        with pytest.raises(UsageError, match="commit first"):
            owner.stage("orders", rows(2))
        with pytest.raises(BoundsError):
            owner.commit(upper=0)


def test_a_late_append_of_an_old_epoch_never_becomes_visible(lab: Lab) -> None:
    first, second = Client(lab), Client(lab)
    first.attach()
    old = first.own()
    new = second.own()
    writer = first.writer("stock")
    with pytest.raises(FencedError):
        writer.append_through("shop", old.epoch, rows(9), lower=0, upper=1)
    new.commit()
    assert second.machines["stock"].refresh().batches == ()
    writer.close()
    old.close()
    new.close()


def test_a_shard_attached_during_a_takeover_is_fenced(lab: Lab) -> None:
    ours = Client(lab)
    owner = ours.own()
    ours.attach()
    assert ours.machines["orders"].refresh().epoch == owner.epoch
    ours.machines["orders"].demand(c.Fence(owner.epoch))
    owner.close()


class Doubtful:
    """A store that takes one append and never says whether it did."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.armed = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def compare_and_set(self, key: str, new: object) -> object:
        if self.armed and key == "shard/orders":
            raise MaybeAppliedError("planted")
        return self.inner.compare_and_set(key, new)  # type: ignore[attr-defined]


def test_who_can_not_tell_what_was_staged_can_not_commit(lab: Lab) -> None:
    ours, theirs = Client(lab), Client(lab)
    ours.attach()
    doubtful = Doubtful(ours.env.consensus)
    object.__setattr__(ours.env, "consensus", doubtful)
    object.__setattr__(ours.env.settings, "commit_deadline_ms", 0)
    owner = ours.own()
    owner._writers["orders"] = ours.writer("orders")
    doubtful.armed = True
    with pytest.raises(MaybeAppliedError):
        owner.stage("orders", rows(1))
    with pytest.raises(MaybeAppliedError, match="own the timeline again"):
        owner.commit()
    doubtful.armed = False
    with theirs.own() as next_owner:
        next_owner.commit()
    assert theirs.upper("orders") == Frontier(1)
    owner.close()


def test_a_member_that_is_about_to_be_attached_is_attached_under_the_owners_epoch(
    lab: Lab,
) -> None:
    """Its attacher read an older epoch; an older owner must not get in with it."""
    old, new = Client(lab), Client(lab)
    zombie = old.own()
    machine = old.machines["stock"]
    # The first step of attaching, by somebody who then falls asleep:
    seqno, _ = old.timeline._read(old.timeline._members_key, Members)
    assert old.timeline._write(old.timeline._members_key, seqno, Members(("stock",)))
    with new.own() as owner:
        machine.commit(c.Attach("shop", Frontier(0), zombie.epoch))
        with pytest.raises(FencedError):
            zombie.stage("stock", rows(1))
        owner.commit()
    assert new.machines["stock"].refresh().batches == ()
    zombie.close()


@pytest.mark.parametrize("first", ["stage", "commit"])
def test_who_was_replaced_does_not_stage_in_a_shard_that_was_just_listed(
    lab: Lab, first: str
) -> None:
    """Its attacher is slow, and the new owner has not seen it: rows would land below the upper."""
    ours, theirs, slow = Client(lab), Client(lab), Client(lab)
    old = ours.own()
    old.commit(upper=5)
    new = theirs.own()
    new.commit(upper=10)
    machine = slow.machines["orders"]
    asked = machine.refresh().id
    slow.timeline._change_members(lambda listed: with_member(listed, "orders", asked))
    if first == "commit":
        with pytest.raises(FencedError):
            old.commit()
    for _ in range(2):
        with pytest.raises(FencedError, match="e2"):
            old.stage("orders", rows(1))
    slow.timeline.attach(machine)
    new.stage("orders", rows(2))
    new.commit()
    assert [batch.lower for batch in machine.refresh().batches] == [10]
    old.close()
    new.close()


@pytest.mark.parametrize("upper", [7.5, True, 2**63, 2**64, -1, "3"])
def test_what_is_no_time_is_not_committed_and_leaves_no_doubt(lab: Lab, upper: object) -> None:
    with Client(lab).own() as owner:
        with pytest.raises(BoundsError):
            owner.commit(upper=upper)  # type: ignore[arg-type]
        owner.commit(upper=3)
    assert Client(lab).timeline.committed() == Frontier(3)


def test_who_was_replaced_is_told_so_however_often_it_tries(lab: Lab) -> None:
    """And never to own the timeline again: that would take it from whoever has it now."""
    ours, theirs = Client(lab), Client(lab)
    ours.attach()
    old, new = ours.own(), theirs.own()
    for _ in range(2):
        with pytest.raises(FencedError, match="taken over"):
            old.stage("orders", rows(1))
        with pytest.raises(FencedError, match="taken over"):
            old.commit()
    new.commit()
    old.close()
    new.close()
