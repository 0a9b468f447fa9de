"""Simulated tasks can be joined, from any process, whatever becomes of them."""

from __future__ import annotations

from strandline.errors import InvariantError
from strandline.testing.seeds import run_seeds
from strandline.testing.simulation import Simulation
from strandline.testing.task import SimulatedTask


def test_a_join_ends_with_the_task_or_with_its_time():
    def scenario(sim: Simulation) -> None:
        node, log = sim.node("a"), []
        worker = node.start("worker", lambda: node.tasks.sleep(100))

        def join() -> None:
            log.append((worker.join(30), round(sim.elapsed_ms())))
            log.append((worker.join(500), round(sim.elapsed_ms())))
            log.append((worker.join(), round(sim.elapsed_ms())))

        node.start("joiner", join)
        sim.run()
        assert log == [(False, 30), (True, 100), (True, 100)]

    run_seeds(scenario, range(20))


def test_a_join_that_timed_out_is_not_woken_again_by_the_end_of_the_task():
    with Simulation(1) as sim:
        node, log = sim.node("a"), []
        worker = node.start("worker", lambda: node.tasks.sleep(20))

        def join() -> None:
            worker.join(10)
            log.append(node.tasks.event().wait(100))
            log.append(round(sim.elapsed_ms()))

        node.start("joiner", join)
        sim.run()
        assert log == [False, 110]


def test_a_task_of_a_killed_process_is_done():
    with Simulation(1) as sim:
        node, other, joined = sim.node("a"), sim.node("b"), []
        worker = node.start("worker", lambda: node.tasks.event().wait())
        other.start("joiner", lambda: joined.append(worker.join()))
        sim.after(5, node.crash)
        sim.run()
        assert worker.done()
        assert joined == [True]


def test_a_task_that_joins_itself_is_refused():
    with Simulation(1) as sim:
        tasks: list[SimulatedTask] = []

        def join() -> None:
            tasks[0].join()

        tasks.append(sim.node("a").start("itself", join, expect=(InvariantError,)))
        sim.run()
        assert str(tasks[0].error) == "task a/itself joins itself"
