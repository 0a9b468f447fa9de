"""A simulated process can be killed, stopped and restarted at any place."""

from __future__ import annotations

import contextlib

import pytest

from strandline.testing.seeds import run_seeds
from strandline.testing.simulation import Simulation
from strandline.testing.task import SimulatedCrash


class Stored:
    """A store with the two pauses that every simulated store has."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self.values: list[str] = []

    def put(self, value: str) -> None:
        self._sim.pause("put")
        self.values.append(value)
        self._sim.pause("put done")

    def put_two(self) -> None:
        self.put("one")
        self.put("two")


def test_a_crash_ends_all_tasks_of_its_process_and_no_other():
    def scenario(sim: Simulation) -> None:
        victim, other, log = sim.node("victim"), sim.node("other"), []

        def live(node, name: str) -> None:
            for _ in range(10):
                node.tasks.sleep(10)
            log.append(name)

        for number in range(3):
            victim.start(f"v{number}", lambda: live(victim, "victim"))
        other.start("o", lambda: live(other, "other"))
        sim.after(50, victim.crash)
        sim.run()
        assert log == ["other"]
        assert (victim.alive, other.alive) == (False, True)

    run_seeds(scenario, range(20))


def test_nothing_that_a_killed_task_still_tries_takes_effect():
    with Simulation(1) as sim:
        node, stored, tried = sim.node("a"), Stored(sim), []
        condition, event = node.tasks.condition(), node.tasks.event()
        attempts = [
            lambda: stored.put("after death"),
            lambda: node.tasks.start("after death", lambda: stored.put("child")),
            lambda: node.tasks.sleep(1),
            event.wait,
            event.set,
            condition.__enter__,
        ]

        def run() -> None:
            try:
                stored.put("before")
                event.wait()
            finally:
                for attempt in attempts:
                    with contextlib.suppress(SimulatedCrash):
                        attempt()
                        tried.append(attempt)
                stored.put("not this either")

        node.start("stubborn", run)
        sim.after(5, node.crash)
        sim.run()
        assert stored.values == ["before"]
        assert tried == []


def test_no_handler_of_exceptions_survives_a_crash():
    with Simulation(1) as sim:
        node, log = sim.node("a"), []

        def run() -> None:
            while True:
                try:
                    node.tasks.sleep(1)
                except Exception:  # noqa: BLE001 - the point of the test
                    log.append("survived")

        node.start("loop", run)
        sim.after(20, node.crash)
        sim.run()
        assert log == []


def test_a_crash_while_a_lock_is_held_unwinds_quietly():
    def scenario(sim: Simulation) -> None:
        node = sim.node("a")
        condition = node.tasks.condition()

        def hold() -> None:
            with condition:
                node.tasks.sleep(10)
                condition.wait()

        for _ in range(3):
            node.start("holds", hold)
        sim.after(5 * sim.stream("faults").randrange(1, 5), node.crash)
        sim.run()

    run_seeds(scenario, range(40))


def test_a_process_can_kill_itself():
    with Simulation(1) as sim:
        node, log = sim.node("a"), []

        def run() -> None:
            node.crash()
            log.append("went on")

        node.start("ends itself", run)
        node.start("other", lambda: node.tasks.event().wait())
        sim.run()
        assert log == []


def test_a_crash_that_a_port_raises_takes_the_whole_process_with_it():
    with Simulation(1) as sim:
        node = sim.node("a")

        def call() -> None:
            node.tasks.sleep(5)
            raise SimulatedCrash

        beside = node.start("beside", lambda: node.tasks.sleep(100))
        node.start("calls", call)
        sim.run()
        assert not node.alive
        assert beside.done()
        assert sim.elapsed_ms() < 6


def test_a_task_that_never_ran_dies_with_its_process():
    with Simulation(1) as sim:
        node, log = sim.node("a"), []
        task = node.start("unborn", lambda: log.append("ran"))
        node.crash()
        sim.run()
        assert task.done()
        assert log == []
        with pytest.raises(SimulatedCrash):
            node.start("too late", lambda: None)


def test_a_sweep_kills_at_every_place_where_control_passes():
    outcomes = []
    for waits in range(5):
        with Simulation(1) as sim:
            node, stored = sim.node("a"), Stored(sim)
            node.crash_after(waits)
            node.start("puts", stored.put_two)
            sim.run()
            outcomes.append((stored.values, node.alive))
    assert outcomes == [
        ([], False),
        (["one"], False),
        (["one"], False),
        (["one", "two"], False),
        (["one", "two"], True),
    ]


def test_crashes_by_chance_come_from_a_stream_of_their_own():
    survived = 0
    for seed in range(100):
        with Simulation(seed) as sim:
            node, stored = sim.node("a"), Stored(sim)
            node.crash_often(0.1)
            node.start("puts", stored.put_two)
            sim.run()
            survived += node.alive
    assert 45 < survived < 85


def test_a_suspended_process_does_nothing_and_its_clock_goes_on():
    def scenario(sim: Simulation) -> None:
        node, other, log = sim.node("a"), sim.node("b"), []
        start_ms = node.clock.monotonic_ms()

        def tick() -> None:
            for _ in range(6):
                node.tasks.sleep(10)
                log.append(round(sim.elapsed_ms()))
            assert node.clock.monotonic_ms() - start_ms >= 1025

        def tick_beside() -> None:
            for _ in range(200):
                other.tasks.sleep(10)

        node.start("ticks", tick)
        beside = other.start("ticks", tick_beside)
        sim.after(25, lambda: node.suspend(1000))
        sim.run()
        assert log == [10, 20, 1025, 1035, 1045, 1055]
        assert beside.done()

    run_seeds(scenario, range(10))


def test_overlapping_suspensions_end_with_the_last():
    with Simulation(1) as sim:
        node, log = sim.node("a"), []
        node.start("ticks", lambda: [node.tasks.sleep(1), log.append(round(sim.elapsed_ms()))])
        node.suspend(100)
        sim.after(50, lambda: node.suspend(200))
        sim.run()
        assert log == [251]


def test_a_suspended_process_can_be_killed():
    with Simulation(1) as sim:
        node = sim.node("a")
        task = node.start("waits", lambda: node.tasks.sleep(1))
        node.suspend(100)
        sim.after(50, node.crash)
        sim.run()
        assert task.done()
        assert sim.elapsed_ms() < 60


def test_a_restart_and_a_twin_are_new_processes_with_chance_of_their_own():
    with Simulation(1) as sim:
        nodes = [sim.node("a"), sim.node("a"), sim.node("ab"), sim.node("a")]
        assert [node.name for node in nodes] == ["a", "a#2", "ab", "a#3"]
        assert len({node.random.token() for node in nodes}) == 4
        assert len({node.clock.monotonic_ms() for node in nodes}) == 4
