"""Tests of pulses in Consensus."""

from __future__ import annotations

import pytest

from strandline.errors import MaybeAppliedError, NotAppliedError
from strandline.shard.pulse import Pulse, Status, decode_pulse
from strandline.shard.pulses import (
    Beat,
    TaskHeart,
    Undertaker,
    beat_once,
    beat_until,
    begin_pulse,
    stop_pulse,
)
from strandline.store.memory import MemoryConsensus
from strandline.system import SystemRandom, SystemTasks

LEASE = 1_000


class Hand:
    """A clock moved by hand; serves as the store's and as a process's own."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Place:
    """A store, its clock, and the own clock of one observer."""

    def __init__(self) -> None:
        self.store_clock = Hand()
        self.own_clock = Hand()
        self.consensus = MemoryConsensus(self.store_clock)
        self.undertaker = Undertaker(self.consensus, self.own_clock)

    def begin(self, owner: str = "a") -> Pulse:
        return begin_pulse(self.consensus, SystemRandom(), lease_ms=LEASE, owner=owner)

    def look(self, pulse: Pulse, *, after_ms: int, store_jump_ms: int = 0) -> bool:
        self.own_clock.now += after_ms
        self.store_clock.now += after_ms + store_jump_ms
        return bool(self.undertaker.over([pulse.id]))

    def read(self, slot: int) -> Pulse:
        head = self.consensus.head(f"pulse/{slot}")
        assert head is not None
        return decode_pulse(slot, head.seqno, head.data)


def test_slots_are_used_again_so_there_are_no_more_than_processes() -> None:
    place = Place()
    first, second = place.begin(), place.begin()
    assert {first.id, second.id} == {"0.0", "1.0"}
    stop_pulse(place.consensus, first.slot, first.incarnation)
    third = place.begin()
    assert third.id == f"{first.slot}.1"
    assert len(place.consensus.keys("pulse/")) == 2


def test_a_beat_moves_the_counter_and_a_stopped_pulse_is_lost() -> None:
    place = Place()
    pulse = place.begin()
    assert beat_once(place.consensus, pulse.slot, 0) is Beat.ALIVE
    assert place.read(pulse.slot).counter == 1
    stop_pulse(place.consensus, pulse.slot, 0)
    assert beat_once(place.consensus, pulse.slot, 0) is Beat.LOST
    assert place.begin().incarnation == 1
    assert beat_once(place.consensus, pulse.slot, 0) is Beat.LOST


def test_many_beats_leave_few_versions() -> None:
    place = Place()
    pulse = place.begin()
    for _ in range(300):
        beat_once(place.consensus, pulse.slot, 0)
    from strandline.model.ids import SeqNo

    assert len(place.consensus.scan("pulse/0", SeqNo(0), 1_000)) <= 65


def test_the_dead_go_after_suspicion_and_a_lease() -> None:
    place = Place()
    pulse = place.begin()
    assert not place.look(pulse, after_ms=0)  # first seen
    assert not place.look(pulse, after_ms=600)  # unmoved for half a lease: suspected
    assert place.read(0).suspected_counter == 0
    assert not place.look(pulse, after_ms=600)  # the suspicion is younger than a lease
    assert place.look(pulse, after_ms=600)
    assert place.read(0).status is Status.ENDED


def test_a_beat_at_the_last_moment_saves() -> None:
    place = Place()
    pulse = place.begin()
    place.look(pulse, after_ms=0)
    place.look(pulse, after_ms=600)
    beat_once(place.consensus, pulse.slot, 0)
    assert not place.look(pulse, after_ms=5_000)
    assert place.read(0).status is Status.LIVE


@pytest.mark.parametrize("jump", [3_600_000, -3_600_000])
def test_s51_a_jumped_store_clock_ends_nobody_who_beats(jump: int) -> None:
    place = Place()
    pulse = place.begin()
    for round_number in range(40):
        beat_once(place.consensus, pulse.slot, 0)
        assert not place.look(pulse, after_ms=LEASE // 8)
        assert not place.look(
            pulse, after_ms=LEASE // 8, store_jump_ms=jump if round_number == 20 else 0
        )
    assert place.read(0).status is Status.LIVE


def test_s51_a_resumed_machine_gives_the_living_time_to_beat() -> None:
    place = Place()
    pulse = place.begin()
    place.look(pulse, after_ms=0)
    place.look(pulse, after_ms=600)  # suspected; then the machine sleeps for an hour
    other = Undertaker(place.consensus, place.own_clock)
    place.store_clock.now += 3_600_000
    # Whoever wakes up first has not watched it himself, and must do so for half a lease.
    assert not other.over([pulse.id])
    assert place.read(0).status is Status.LIVE


def test_a_pulse_that_never_was_or_was_followed_is_over() -> None:
    place = Place()
    assert place.undertaker.over(["7.0"]) == {"7.0"}
    pulse = place.begin()
    stop_pulse(place.consensus, pulse.slot, 0)
    place.begin()
    assert place.undertaker.over(["0.0"]) == {"0.0"}
    assert place.undertaker.over(["0.1"]) == frozenset()


def test_the_beating_loop_repeats_what_was_not_answered() -> None:
    answers = [Beat.ALIVE, Beat.UNKNOWN, Beat.UNKNOWN, Beat.ALIVE, Beat.LOST]
    pauses: list[int] = []
    alive = beat_until(lambda: False, pauses.append, lambda: answers.pop(0), lease_ms=800)
    assert not alive
    assert pauses == [200, 200, 25, 25, 200]


def test_the_beating_loop_ends_when_told() -> None:
    left = [False, False, True]
    assert beat_until(lambda: left.pop(0), lambda _: None, lambda: Beat.ALIVE, lease_ms=800)


class Silent(MemoryConsensus):
    """Commits, and never says so."""

    error: type[Exception] = MaybeAppliedError

    def compare_and_set(self, key, new):  # type: ignore[no-untyped-def]
        super().compare_and_set(key, new)
        raise self.error("planted")


def test_a_beat_whose_answer_got_lost_counts() -> None:
    consensus = Silent(Hand())
    pulse = begin_pulse(consensus, SystemRandom(), lease_ms=LEASE, owner="a")
    assert beat_once(consensus, pulse.slot, 0) is Beat.ALIVE


def test_a_store_that_is_down_is_unknown_not_lost() -> None:
    consensus = Silent(Hand())
    pulse = begin_pulse(consensus, SystemRandom(), lease_ms=LEASE, owner="a")
    Silent.error = NotAppliedError
    try:
        assert beat_once(consensus, pulse.slot, 0) is Beat.UNKNOWN
    finally:
        Silent.error = MaybeAppliedError


def test_a_heart_beats_beside_its_owner_and_says_goodbye() -> None:
    place = Place()
    heart = TaskHeart(place.consensus, SystemTasks(), SystemRandom(), lease_ms=40, owner="a")
    tasks = SystemTasks()
    beaten = tasks.event()
    heart.on_beat(beaten.set)
    assert beaten.wait(5_000)
    assert not heart.lost
    heart.stop()
    assert place.read(0).status is Status.ENDED
