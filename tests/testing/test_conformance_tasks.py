"""The conformance check passes on the simulator, and fails on tasks with a planted bug."""

from __future__ import annotations

import pytest

from strandline.testing.conformance_tasks import check_tasks
from strandline.testing.seeds import run_seeds
from strandline.testing.simulation import Simulation, SimulationError
from strandline.testing.waiting import SimulatedCondition, SimulatedEvent


def conform(sim: Simulation) -> None:
    node = sim.node("a")
    sim.call(node, lambda: check_tasks(node.tasks, node.clock))
    sim.run()


def test_simulated_tasks_pass_under_every_schedule():
    run_seeds(conform, range(60))


PLANTED = {
    "a set wakes nobody": (SimulatedEvent, "set", lambda self: setattr(self, "_is_set", True)),
    "an event wait never waits": (SimulatedEvent, "wait", lambda self, timeout_ms=None: True),
    "a condition excludes nobody": (
        SimulatedCondition,
        "_acquire",
        lambda self, task: (setattr(self, "_held", True), setattr(self, "_owner", task)),
    ),
    "a condition is never checked": (SimulatedCondition, "_must_hold", lambda self: None),
    "a notify wakes nobody": (SimulatedCondition, "notify_all", lambda self: None),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_fails_the_check(bug, monkeypatch):
    owner, method, wrong = PLANTED[bug]
    monkeypatch.setattr(owner, method, wrong)
    with Simulation(1, steps_max=50_000) as sim, pytest.raises((AssertionError, SimulationError)):
        conform(sim)
