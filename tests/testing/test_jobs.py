"""Sinks, planners and executors leave the traces they are there for."""

from strandline.testing import jobs, roles
from strandline.testing.cases import CASES
from strandline.testing.checkers import check_history
from strandline.testing.history import Result
from strandline.testing.simulation import Simulation
from strandline.testing.world import World


def played(**cast):
    with Simulation(1) as sim:
        world = World(sim)
        for name, role in cast.items():
            world.start(name, role)
        world.run(faults_ms=3_000)
        check_history(world.history)
        return world


def test_two_sinks_that_are_one_application_append_each_batch_once():
    world = played(k=jobs.sink("a", "query"), m=jobs.sink("a", "query"))
    told = {call.result for call in world.history.appends}
    assert {Result.APPLIED, Result.REPEATED} <= told
    assert world.sim.seen["another content was refused"] > 0
    assert world.observer.states["a"].txns["query"].batch == len(world.batches["query"]) - 1


def test_executors_rely_on_terms_of_planners_that_are_gone():
    world = played(
        w=roles.appender("a"), p=jobs.planner("a"), e=jobs.executor("a"), s=roles.steward("a"),
        u=roles.tender("a"),
    )  # fmt: skip
    assert world.sim.seen["a planner exited"] > 0
    assert world.sim.seen["a term was relied on"] > 0
    assert any(term.given_back for term in world.history.terms.values())
    assert any(term.ended_ms is not None for term in world.history.terms.values())


def test_the_cases_reach_what_they_are_there_for():
    seen = sum(
        (_seen(name, seed) for name in ("sinks", "terms") for seed in (1, 2)),
        start=_seen("sinks", 3),
    )
    wanted = ["APPLIED", "REPEATED", "UNKNOWN", "crash", "a planner exited", "a term was relied on"]
    assert [label for label in wanted if not seen[label]] == []


def _seen(name, seed):
    with Simulation(seed) as sim:
        CASES[name](sim)
        return sim.seen
