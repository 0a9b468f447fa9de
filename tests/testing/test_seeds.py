"""Running many seeds names the ones that fail, and adds up what was reached."""

from __future__ import annotations

import pytest

from strandline.testing.seeds import SeedsFailedError, run_seeds, try_seeds, unreached
from strandline.testing.simulation import Simulation


def odd_seeds_fail(sim: Simulation) -> None:
    sim.sometimes("ran")
    if sim.seed % 2:
        sim.sometimes("odd")
        sim.node("a").start("bad", [].pop)
    sim.run()


def test_a_run_without_failures_reports_what_was_reached():
    report = run_seeds(odd_seeds_fail, range(0, 10, 2))
    assert (report.seeds, report.seen["ran"], report.failures) == (5, 5, {})
    assert report.never("ran", "odd", "unheard of") == ["odd", "unheard of"]


def test_failing_seeds_are_named_and_the_first_is_the_cause():
    with pytest.raises(SeedsFailedError, match="seed 1, 3, 5 ") as caught:
        run_seeds(odd_seeds_fail, range(100), failures_max=3)
    assert "a/bad raised IndexError" in str(caught.value.__cause__)


def test_trying_stops_at_the_first_failure_and_does_not_raise():
    report = try_seeds(odd_seeds_fail, range(100))
    assert report.seeds == 2
    assert list(report.failures) == [1]


def test_seeds_are_run_until_all_is_reached_or_there_are_enough():
    ran: list[int] = []

    def scenario(sim: Simulation) -> None:
        ran.append(sim.seed)
        if sim.seed == 3:
            sim.sometimes("third")

    assert unreached(scenario, "third") == []
    assert ran == [1, 2, 3]
    assert unreached(scenario, "third", least=5) == []
    assert ran[3:] == [1, 2, 3, 4, 5]
    assert unreached(scenario, "third", "never", most=4) == ["never"]
    assert ran[8:] == [1, 2, 3, 4]


def test_a_seed_that_fails_before_all_is_reached_is_named():
    with pytest.raises(SeedsFailedError, match="seed 1 "):
        unreached(odd_seeds_fail, "odd", least=2)


def test_a_failed_assertion_of_the_scenario_itself_counts():
    def scenario(sim: Simulation) -> None:
        assert sim.seed < 3

    assert list(try_seeds(scenario, range(10), failures_max=2).failures) == [3, 4]


def test_what_still_runs_is_killed_before_the_next_seed():
    unwound: list[int] = []

    def scenario(sim: Simulation) -> None:
        node = sim.node("a")

        def run() -> None:
            try:
                node.tasks.event().wait()
            finally:
                unwound.append(sim.seed)

        node.start("stuck", run)
        sim.run(until_ms=10)

    run_seeds(scenario, range(3))
    assert unwound == [0, 1, 2]
