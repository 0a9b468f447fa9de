"""A case is judged by all checkers, and says which options it ran with when it fails."""

import pytest

from strandline.testing import roles
from strandline.testing.cases import CASES, Case
from strandline.testing.checkers import HistoryError
from strandline.testing.history import Read
from strandline.testing.simulation import Simulation


def people(world):
    world.history.tiled.add("a")
    world.start("w", roles.appender("a"))
    world.start("r", roles.reader("a"))


def test_a_case_without_faults_passes():
    with Simulation(1) as sim:
        Case("calm", people, faults_ms=1_000, off=tuple(CASES["naps"].off))(sim)


def test_a_case_that_fails_says_with_which_options():
    def liars(world):
        people(world)
        world.history.reads.append(Read("a", "liar", 0, 1, 0, {"id=0": 1}))

    with Simulation(1) as sim, pytest.raises(HistoryError, match="id=0") as caught:
        Case("lie", liars, faults_ms=1_000, on={"latency_ms": 1})(sim)
    assert "case lie" in caught.value.__notes__[0]
    assert "'latency_ms': 1" in caught.value.__notes__[0]


def test_what_is_left_behind_is_judged_too():
    def litterers(world):
        people(world)

        def litter(process):
            shard = roles.opened(process, "a")
            # Not a writer's, so nobody dares to sweep it.
            process.blob.put(f"{shard.state().id}/litter", b"x")

        world.start("l", litter)

    with Simulation(1) as sim, pytest.raises(HistoryError, match="orphan that nobody swept"):
        Case("litter", litterers, faults_ms=1_000, off=tuple(CASES["naps"].off))(sim)


def test_every_case_is_found_by_its_name():
    assert all(name == case.name for name, case in CASES.items())
