"""Tests of waiting for silent processes."""

from __future__ import annotations

from strandline.shard.pulse import Status
from strandline.shard.pulses import TaskHeart, Undertaker, begin_pulse
from strandline.store.memory import MemoryConsensus
from strandline.testing.lab import Lab
from strandline.upkeep.silence import read_pulse, wait_for_silent


def _real_time(lab: Lab) -> None:
    """A store clock that runs: a suspicion has to get old."""
    lab.consensus = MemoryConsensus(lab.env().clock.wall_ms)  # type: ignore[attr-defined]


def test_the_dead_are_found_and_the_living_are_left_alone(lab: Lab) -> None:
    _real_time(lab)
    env = lab.env()
    heart = TaskHeart(env.consensus, env.tasks, env.random, lease_ms=600, owner="alive")
    dead = begin_pulse(env.consensus, env.random, lease_ms=600, owner="dead")
    told: list[int] = []
    undertaker = Undertaker(env.consensus, env.clock)
    over = wait_for_silent(env, undertaker, [heart.pulse_id, dead.id], told.append)
    assert over == {dead.id}
    current = read_pulse(env, heart.pulse_id)
    assert current is not None
    assert current.status is Status.LIVE
    assert told
    heart.stop()


def test_nobody_to_wait_for_takes_no_time(lab: Lab) -> None:
    env = lab.env()
    assert wait_for_silent(env, Undertaker(env.consensus, env.clock), []) == frozenset()
    assert wait_for_silent(env, Undertaker(env.consensus, env.clock), ["9.0"]) == {"9.0"}
