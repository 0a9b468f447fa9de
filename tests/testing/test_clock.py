"""Simulated clocks misbehave exactly as told, and a process's clock never goes back."""

from __future__ import annotations

import random

import pytest

from strandline.testing.clock import EPOCH_MS, SimulatedClock, StoreClock


class Time:
    def __init__(self) -> None:
        self.us = 0

    def __call__(self) -> int:
        return self.us

    def passes_ms(self, duration_ms: float) -> None:
        self.us += round(duration_ms * 1000)


def test_a_clock_shows_simulation_time_from_its_own_start():
    time = Time()
    clock = SimulatedClock(time, start_ms=500)
    time.passes_ms(20)
    assert clock.monotonic_ms() == 520


@pytest.mark.parametrize(("ppm", "expected"), [(10_000, 101_000), (0, 100_000), (-10_000, 99_000)])
def test_drift_does_not_depend_on_how_often_the_clock_is_read(ppm, expected):
    time = Time()
    clock, watched = SimulatedClock(time, drift_ppm=ppm), SimulatedClock(time)
    watched.drift(ppm)
    for _ in range(100_000):
        time.passes_ms(1)
        watched.monotonic_ms()
    assert clock.monotonic_ms() == watched.monotonic_ms() == expected


def test_a_frozen_clock_stands_still_and_then_goes_on_from_there():
    time = Time()
    clock = SimulatedClock(time)
    time.passes_ms(5)
    clock.freeze()
    time.passes_ms(100)
    assert clock.monotonic_ms() == 5
    clock.thaw()
    time.passes_ms(1)
    assert clock.monotonic_ms() == 6


def test_a_clock_jumps_ahead_even_when_frozen():
    time = Time()
    clock = SimulatedClock(time)
    clock.jump(3_600_000)
    assert clock.monotonic_ms() == 3_600_000
    clock.freeze()
    clock.jump(1)
    assert clock.monotonic_ms() == 3_600_001


def test_a_clock_of_a_process_refuses_to_jump_back():
    with pytest.raises(ValueError, match="cannot jump by -1 ms"):
        SimulatedClock(Time()).jump(-1)


def test_no_course_of_faults_makes_a_clock_go_back():
    source, time = random.Random(3), Time()
    clock = SimulatedClock(time)
    acts = [
        clock.freeze,
        clock.thaw,
        lambda: clock.jump(source.randrange(100)),
        lambda: clock.drift(source.randrange(-20_000, 20_000)),
    ]
    last = clock.monotonic_ms()
    for _ in range(2000):
        source.choice(acts)()
        assert clock.monotonic_ms() >= last
        time.passes_ms(source.random() * 3)
        last = clock.monotonic_ms()


def test_the_store_clock_jumps_both_ways():
    time = Time()
    clock = StoreClock(time)
    time.passes_ms(10)
    assert clock.now_ms() == EPOCH_MS + 10
    clock.jump(-3_600_000)
    assert clock.now_ms() == EPOCH_MS + 10 - 3_600_000
    clock.jump(7_200_000)
    assert clock.now_ms() == EPOCH_MS + 10 + 3_600_000
