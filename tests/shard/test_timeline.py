"""Tests of the plain timeline."""

from __future__ import annotations

import pytest

from strandline.errors import ConflictError, MaybeAppliedError, NameRefusedError, UsageError
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard.timeline import PlainTimeline

from .conftest import Lab, Process, rows


def test_foreign_appends_are_refused(lab: Lab) -> None:
    ours = Process(lab)
    ours.attach()
    with ours.writer("orders") as writer, pytest.raises(UsageError, match="timeline shop"):
        writer.append(rows(1))


def test_a_shard_that_is_ahead_can_not_be_attached(lab: Lab) -> None:
    ours = Process(lab)
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
    ours = Process(lab)
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
    ours = Process(lab)
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
    ours = Process(lab)
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
    ours = Process(lab)
    with ours.own() as owner, pytest.raises(ConflictError):
        ours.timeline.commit(owner.epoch, Frontier(3), Frontier(4))


def test_names_are_checked(lab: Lab) -> None:
    with pytest.raises(NameRefusedError):
        PlainTimeline(lab.env(), "../x")
