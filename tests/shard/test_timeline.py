"""Tests of the plain timeline."""

from __future__ import annotations

import pytest

from strandline.errors import ConflictError, MaybeAppliedError, NameRefusedError, UsageError
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard.timeline import PlainTimeline
from strandline.testing.lab import Client, Lab, rows


def test_foreign_appends_are_refused(lab: Lab) -> None:
    ours = Client(lab)
    ours.attach()
    with ours.writer("orders") as writer, pytest.raises(UsageError, match="timeline shop"):
        writer.append(rows(1))


def test_a_shard_that_is_ahead_can_not_be_attached(lab: Lab) -> None:
    ours = Client(lab)
    with ours.writer("orders") as writer:
        writer.append(rows(1))
        writer.append(rows(2))
    with pytest.raises(UsageError, match="advance the timeline first"):
        ours.timeline.attach(ours.machines["orders"])
    with ours.own() as owner:
        owner.commit(upper=2)
    ours.timeline.attach(ours.machines["orders"])
    assert ours.upper("orders") == Frontier(2)
    other = PlainTimeline(ours.env, "other")
    with pytest.raises(UsageError, match="attached to timeline shop already"):
        other.attach(ours.machines["orders"])


def test_instants_are_those_of_the_commits(lab: Lab) -> None:
    ours = Client(lab)
    ours.attach()
    with ours.own() as owner:
        for number in range(5):
            lab.clock.now += 1_000
            owner.stage("orders", rows(number))
            owner.commit()
    timeline = ours.timeline
    assert timeline.time_at(1_000_500) is None
    assert timeline.time_at(1_003_000) == 2
    assert timeline.instant_of(2) == 1_003_000
    assert timeline.instant_of(9) is None
    timeline.forget_before(1_003_000)
    assert timeline.instant_of(2) == 1_003_000
    assert timeline.time_at(1_001_000) is None
    assert timeline.committed() == Frontier(5)


def test_a_clock_that_jumps_back_does_not_take_instants_with_it(lab: Lab) -> None:
    ours = Client(lab)
    with ours.own() as owner:
        first = owner.commit().instant_ms
        lab.clock.now -= 3_600_000
        assert owner.commit().instant_ms == first


class Silent:
    """Every compare-and-set of a timeline happens, and its answer gets lost."""

    def __init__(self, inner: object) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def compare_and_set(self, key: str, new: object) -> object:
        result = self.inner.compare_and_set(key, new)  # type: ignore[attr-defined]
        if key.startswith("timeline"):
            raise MaybeAppliedError("planted")
        return result


def test_a_commit_whose_answer_got_lost_happens_once(lab: Lab) -> None:
    ours = Client(lab)
    object.__setattr__(ours.env, "consensus", Silent(ours.env.consensus))
    ours.attach()
    with ours.own() as owner:
        owner.stage("orders", rows(1))
        owner.commit()
        assert owner.epoch == 1
    assert ours.timeline.committed() == Frontier(1)
    versions = lab.consensus.scan("timeline/shop", SeqNo(0), 99)
    assert len(versions) == 2


def test_a_commit_from_the_wrong_place_is_a_conflict(lab: Lab) -> None:
    ours = Client(lab)
    with ours.own() as owner, pytest.raises(ConflictError):
        ours.timeline.commit(owner.epoch, Frontier(3), Frontier(4))


def test_names_are_checked(lab: Lab) -> None:
    with pytest.raises(NameRefusedError):
        PlainTimeline(lab.env(), "../x")


class _Eventful:
    """A Consensus on which something happens after the next record of a timeline."""

    def __init__(self, inner: object, happens: object) -> None:
        self.inner = inner
        self.happens = happens

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def compare_and_set(self, key: str, new: object) -> object:
        result = self.inner.compare_and_set(key, new)
        if key.startswith("timeline/") and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
            raise MaybeAppliedError("the reply was lost")
        return result


def test_a_commit_whose_answer_was_lost_counts_although_another_owner_came(lab: Lab) -> None:
    ours, theirs = Client(lab), Client(lab)
    ours.attach()
    with ours.own() as owner:
        owner.stage("orders", rows(1))
        inner = ours.env.consensus
        object.__setattr__(ours.env, "consensus", _Eventful(inner, theirs.timeline.raise_epoch))
        # It was visible before the other owner came, so it must not be told to be fenced.
        owner.commit()
    assert theirs.timeline.committed() == Frontier(1)


def test_attaching_again_is_harmless_while_owners_come_and_go(lab: Lab) -> None:
    ours, theirs = Client(lab), Client(lab)
    ours.attach()
    timeline = ours.timeline
    old = timeline.head()
    theirs.own().close()
    # Even with a view of the timeline from before the new owner fenced the shard.
    timeline.head = lambda: old  # type: ignore[method-assign]
    timeline.attach(ours.machines["orders"])
