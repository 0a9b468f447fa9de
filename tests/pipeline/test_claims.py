"""Claims in a store: one owner at a time, replaced within seconds when it no longer renews."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.errors import SinkFencedError
from strandline.model.ids import SeqNo
from strandline.pipeline.claims import Claims
from strandline.pipeline.delivery import Mark
from strandline.testing.faults import FailNth, Fault, FaultKind, FaultyConsensus
from strandline.testing.lab import Lab


class Clock:
    """A process's own clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 0

    def monotonic_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return 0


class Two:
    """Two publishers of one sink, and both clocks that count."""

    def __init__(self) -> None:
        self.lab = Lab()
        self.clock = Clock()
        env = replace(self.lab.env(), clock=self.clock)
        self.a = Claims(env, "shop", "out", name="a", lease_ms=4_000)
        self.b = Claims(env, "shop", "out", name="b", lease_ms=4_000)

    def wait(self, ms: int, *, store: bool = True, own: bool = True) -> None:
        self.clock.now += ms if own else 0
        self.lab.clock.now += ms if store else 0


def test_one_of_two_has_it_and_the_other_waits() -> None:
    two = Two()
    assert two.a.take() is not None
    assert two.b.take() is None
    two.b.release()
    assert two.a.check().owner == two.a.me.owner
    with pytest.raises(SinkFencedError, match="a has it now"):
        two.b.check()


def test_a_dead_owner_is_replaced_within_ten_seconds() -> None:
    two = Two()
    two.a.take()
    waited = 0
    while two.b.take() is None:
        two.wait(500)
        waited += 500
    assert 4_000 <= waited <= 10_000
    with pytest.raises(SinkFencedError):
        two.a.record("l", lambda mark: mark)


def test_an_owner_that_renews_is_never_replaced() -> None:
    two = Two()
    two.a.take()
    for _ in range(40):
        assert two.b.take() is None
        two.wait(900)
        two.a.record("l", lambda mark: mark)
    assert two.a.check().term == 1


@pytest.mark.parametrize("own", [True, False])
def test_one_clock_that_jumps_replaces_nobody(*, own: bool) -> None:
    two = Two()
    two.a.take()
    for _ in range(10):
        assert two.b.take() is None
        two.wait(1_000_000, own=own, store=not own)
        two.wait(100)
        two.a.record("l", lambda mark: mark)
    assert two.b.take() is None


def test_what_is_let_go_of_is_free_at_once() -> None:
    two = Two()
    two.a.take()
    two.a.release()
    assert two.b.take() is not None
    assert two.a.take() is None


def test_what_is_on_record_outlives_its_owner() -> None:
    two = Two()
    two.a.take()
    two.a.record("l", lambda mark: mark or Mark(1, intent=3))
    two.a.release()
    claim = two.b.take()
    assert claim is not None
    assert claim.marks == {"l": Mark(1, intent=3)}


@pytest.mark.parametrize("kind", [FaultKind.LOST_REPLY, FaultKind.LOST_REQUEST])
def test_an_answer_that_never_came_is_looked_up(kind: FaultKind) -> None:
    lab = Lab()
    env = lab.env()
    for nth in range(6):
        faulty = FaultyConsensus(env.consensus, FailNth(nth, Fault(kind)))
        claims = Claims(replace(env, consensus=faulty), "shop", f"s{nth}", name="a", lease_ms=1_000)
        while claims.take() is None:
            pass
        claims.record("l", lambda mark: mark or Mark(1, intent=3))
        assert claims.check().marks == {"l": Mark(1, intent=3)}


def test_old_versions_are_forgotten() -> None:
    two = Two()
    two.a.take()
    for _ in range(200):
        two.a.record("l", lambda mark: mark)
    left = two.lab.consensus.client().scan(two.a.key, SeqNo(0), 1_000)
    assert len(left) < 100


def test_a_claim_rests_once_it_has_not_moved_for_the_longer_of_two_leases() -> None:
    two = Two()
    owner = Claims(two.a._env, "shop", "out", name="c", lease_ms=8_000)
    owner.take()
    two.b.read()
    two.wait(7_999)
    two.b.read()
    assert not two.b.rests(), "its owner may renew later than we would"
    owner.record("any", lambda mark: mark)
    two.b.read()
    two.wait(7_999)
    assert not two.b.rests()
    two.wait(1)
    assert two.b.rests()
