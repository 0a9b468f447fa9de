"""Tests of the plain timeline."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import (
    ConflictError,
    MaybeAppliedError,
    NameRefusedError,
    NotAppliedError,
    UsageError,
)
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard import command as c, timeline as module
from strandline.shard.timeline import Members, PlainTimeline
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
    timeline.forget_below(2)
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


class Gone:
    """A store whose answer to a timeline's commit gets lost, and which then can't be reached."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.gone = False

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def head(self, key: str) -> object:
        if self.gone:
            raise NotAppliedError("planted")
        return self.inner.head(key)  # type: ignore[attr-defined]

    def compare_and_set(self, key: str, new: object) -> object:
        result = self.inner.compare_and_set(key, new)  # type: ignore[attr-defined]
        if key.startswith("timeline/"):
            self.gone = True
            raise MaybeAppliedError("planted")
        return result


def test_a_commit_that_can_not_be_looked_for_is_not_told_not_to_have_happened(lab: Lab) -> None:
    ours = Client(lab, read_deadline_ms=0)
    ours.attach()
    owner = ours.own()
    owner.stage("orders", rows(1))
    gone = Gone(ours.env.consensus)
    object.__setattr__(ours.env, "consensus", gone)
    with pytest.raises(MaybeAppliedError):
        owner.commit()
    gone.gone = False
    # It did happen: what is staged now must not change what readers have seen at that time.
    assert ours.timeline.committed() == Frontier(1)
    with pytest.raises(MaybeAppliedError, match="own the timeline again"):
        owner.stage("stock", rows(2))
    assert ours.machines["stock"].refresh().batches == ()
    owner.close()


def test_a_refused_attach_does_not_take_effect_later(lab: Lab) -> None:
    ours = Client(lab)
    with ours.writer("orders") as writer:
        writer.append(rows(1))
    with pytest.raises(UsageError, match="advance the timeline first"):
        ours.timeline.attach(ours.machines["orders"])
    assert ours.timeline.members() == ()
    for _ in range(2):
        with ours.own() as owner:
            owner.commit()
    assert ours.machines["orders"].refresh().timeline is None


class Between:
    """Something happens after a shard is listed, and before it is attached."""

    def __init__(self, inner: object, happens: object) -> None:
        self.inner = inner
        self.happens = happens

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def compare_and_set(self, key: str, new: object) -> object:
        result = self.inner.compare_and_set(key, new)  # type: ignore[attr-defined]
        if key.startswith("timeline-members/") and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()  # type: ignore[operator]
        return result


def test_an_attach_that_is_refused_once_it_is_listed_is_taken_back(lab: Lab) -> None:
    ours, theirs = Client(lab), Client(lab)

    def append() -> None:
        with theirs.writer("orders") as writer:
            writer.append(rows(1))

    object.__setattr__(ours.env, "consensus", Between(ours.env.consensus, append))
    with pytest.raises(UsageError, match="advance the timeline first"):
        ours.timeline.attach(ours.machines["orders"])
    assert ours.timeline.members() == ()
    assert "orders" in ours.timeline.listed(), "an owner may have attached it meanwhile"
    for _ in range(2):
        with ours.own() as owner:
            owner.commit()
    assert ours.machines["orders"].refresh().timeline is None
    ours.timeline.attach(ours.machines["orders"])
    assert ours.timeline.members() == ("orders",)


def test_a_refused_attach_leaves_what_another_one_relies_on(lab: Lab) -> None:
    ours, theirs = Client(lab), Client(lab)

    def happens() -> None:
        with theirs.writer("orders") as writer:
            writer.append(rows(1))
        seqno, listed = theirs.timeline._listed()
        names, ids = zip(*listed, *listed, strict=True)
        assert theirs.timeline._write("timeline-members/shop", seqno, Members(names, ids))

    object.__setattr__(ours.env, "consensus", Between(ours.env.consensus, happens))
    with pytest.raises(UsageError, match="advance the timeline first"):
        ours.timeline.attach(ours.machines["orders"])
    assert ours.timeline.members() == ("orders",)


def test_a_shard_created_anew_under_a_members_name_is_not_attached(lab: Lab) -> None:
    ours = Client(lab)
    ours.attach()
    machine = ours.machines["orders"]
    machine.demand(c.Drop(machine.refresh().epoch))
    lab.machine("orders")
    with ours.own() as owner:
        owner.commit()
        with pytest.raises(UsageError):
            owner.stage("orders", rows(1))
    assert machine.refresh().timeline is None
    ours.timeline.attach(machine)
    assert machine.refresh().timeline == "shop"


def test_a_list_of_members_from_before_they_had_ids_is_read(lab: Lab) -> None:
    timeline = PlainTimeline(lab.env(), "shop")
    old = bytes.fromhex("9192a66f7264657273a573746f636b")
    new = Members(("orders", "stock"), ("", "s1"), "t")
    assert timeline.listed() == {}
    assert msgspec.msgpack.decode(old, type=Members) == Members(("orders", "stock"))
    golden = bytes.fromhex("9392a66f7264657273a573746f636b92a0a27331a174")
    assert msgspec.msgpack.encode(new) == golden
    assert timeline._write("timeline-members/shop", None, Members(("orders", "stock")))
    assert timeline.listed() == {"orders": frozenset({""}), "stock": frozenset({""})}


def test_an_instant_that_was_forgotten_is_not_that_of_a_later_commit(lab: Lab) -> None:
    ours = Client(lab)
    with ours.own() as owner:
        for upper in (1, 2, 5, 8):
            lab.clock.now += 1_000
            owner.commit(upper)
    timeline = ours.timeline
    known = [1_001_000, 1_002_000, *[1_003_000] * 3, *[1_004_000] * 3]
    assert [timeline.instant_of(t) for t in range(8)] == known
    timeline.forget_below(3)
    assert [timeline.instant_of(t) for t in range(8)] == [None, *known[1:]]
    timeline.forget_below(6)
    assert [timeline.instant_of(t) for t in range(8)] == [None] * 4 + known[4:]


def test_instants_are_found_among_many(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    ours = Client(lab)
    with ours.own() as owner:
        for _ in range(20):
            lab.clock.now += 1_000
            owner.commit()
    for gone in (0, 13):
        ours.timeline.forget_below(gone)
        for t in range(20):
            instant_ms = 1_001_000 + t * 1_000
            assert ours.timeline.instant_of(t) == (instant_ms if t >= gone else None)
            for later in (0, 999):
                assert ours.timeline.time_at(instant_ms + later) == (t if t >= gone else None)


def test_an_instant_is_not_guessed_when_others_are_forgotten_while_it_is_looked_for(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAGE", 2)
    ours = Client(lab)
    with ours.own() as owner:
        for upper in (1, 2, 3, 10):
            lab.clock.now += 1_000
            owner.commit(upper)
    timeline = ours.timeline
    page = timeline._page
    # Until the first page is read, it looks as if the commit of 3 came next.
    shown: list[SeqNo] = []

    def forgetting(key: str, start: SeqNo, limit: int) -> object:
        found = page(key, start, limit)
        if limit > 1 and not shown:
            shown.extend(each.seqno for each in found)
            ours.env.consensus.truncate(key, SeqNo(4))
        return found

    monkeypatch.setattr(timeline, "_near", lambda _: SeqNo(1))
    monkeypatch.setattr(timeline, "_page", forgetting)
    assert timeline.instant_of(2) is None
    assert shown == [SeqNo(1), SeqNo(2)]
