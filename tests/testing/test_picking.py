"""Each way of picking picks whom it says, and a seed mixes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from strandline.testing.picking import Mode, Picker
from strandline.testing.streams import stream


@dataclass
class Ready:
    number: int


TASKS = [Ready(5), Ready(9), Ready(2), Ready(4)]


@pytest.mark.parametrize(
    ("mode", "picked"),
    [(Mode.NEWEST, 1), (Mode.OLDEST, 2), (Mode.ROUND_ROBIN, 0), (Mode.STICKY, 3)],
)
def test_a_fixed_mode_always_picks_alike(mode, picked):
    picker = Picker(stream(1, "schedule"), mode)
    assert {picker.pick(TASKS) for _ in range(200)} == {picked}


def test_random_picks_all_alike():
    picker = Picker(stream(1, "schedule"), Mode.RANDOM)
    counts = Counter(picker.pick(TASKS) for _ in range(4000))
    assert sorted(counts) == [0, 1, 2, 3]
    assert min(counts.values()) > 850


def test_a_lone_task_is_picked():
    assert Picker(stream(1, "schedule")).pick(TASKS[:1]) == 0


def test_some_seeds_are_random_throughout_and_others_favour_somebody_for_a_while():
    longest_run = Counter()
    for seed in range(40):
        picker = Picker(stream(seed, "schedule"))
        picks = "".join(str(picker.pick(TASKS)) for _ in range(400))
        longest_run[any(str(who) * 15 in picks for who in range(4))] += 1
    assert longest_run[True] >= 10
    assert longest_run[False] >= 10
