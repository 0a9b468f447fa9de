"""Simulated events and conditions keep the ports' promises, and refuse misuse at once."""

from __future__ import annotations

import pytest

from strandline.errors import InvariantError
from strandline.testing.seeds import run_seeds, try_seeds
from strandline.testing.simulation import Simulation, SimulationError

WRITERS, ADDS = 3, 4


def count_up(sim: Simulation, *, locked: bool) -> None:
    """Writers read a counter, let others run, and write it back."""
    node, counter = sim.node("a"), [0]
    condition = node.tasks.condition()

    def add() -> None:
        value = counter[0]
        sim.pause("between read and write")
        counter[0] = value + 1

    def write() -> None:
        for _ in range(ADDS):
            sim.pause("next")
            if locked:
                with condition:
                    add()
            else:
                add()

    for _ in range(WRITERS):
        node.start("writer", write)
    sim.run()
    assert counter[0] == WRITERS * ADDS, "an update was lost"


def test_a_race_loses_updates_in_some_histories_and_not_in_all():
    report = try_seeds(lambda sim: count_up(sim, locked=False), range(100), failures_max=100)
    assert 50 < len(report.failures) < 100


def test_a_condition_loses_no_update_in_any_history():
    run_seeds(lambda sim: count_up(sim, locked=True), range(300))


def test_a_timeout_takes_its_time_and_no_more():
    with Simulation(1) as sim:
        node = sim.node("a")
        event, condition = node.tasks.event(), node.tasks.condition()
        times: list[tuple[bool, int]] = []

        def run() -> None:
            times.append((event.wait(250), round(sim.elapsed_ms())))
            with condition:
                times.append((condition.wait(250), round(sim.elapsed_ms())))
            node.tasks.sleep(0.5)
            times.append((event.wait(0), round(sim.elapsed_ms())))

        node.start("waits", run)
        sim.run()
    assert times == [(False, 250), (False, 500), (False, 501)]


@pytest.mark.parametrize("what", ["event", "condition"])
def test_a_task_that_timed_out_is_not_woken_again_from_its_old_wait(what):
    def scenario(sim: Simulation) -> None:
        node = sim.node("a")
        event, condition, log = node.tasks.event(), node.tasks.condition(), []

        def wait() -> None:
            if what == "event":
                event.wait(10)
            else:
                with condition:
                    condition.wait(10)
            log.append(node.tasks.event().wait(100))
            log.append(round(sim.elapsed_ms()))

        def wake() -> None:
            event.set()
            with condition:
                condition.notify_all()

        node.start("waits", wait)
        sim.after(50.0, wake)
        sim.run()
        assert log == [False, 110]

    run_seeds(scenario, range(10))


def test_control_may_pass_where_a_free_condition_is_entered():
    logs = set()

    def scenario(sim: Simulation) -> None:
        node, log = sim.node("a"), []

        def enter(name: str) -> None:
            log.append(name)
            with node.tasks.condition():
                log.append(name.upper())

        for name in "ab":
            node.start(name, lambda name=name: enter(name))
        sim.run()
        logs.add("".join(log))

    run_seeds(scenario, range(60))
    assert logs == {"aAbB", "abAB", "abBA", "baAB", "baBA", "bBaA"}


def test_an_event_that_was_set_before_its_timeout_is_seen():
    with Simulation(2) as sim:
        node = sim.node("a")
        event, answers = node.tasks.event(), []
        node.start("waits", lambda: answers.append(event.wait(1000)))
        sim.after(5, event.set)
        sim.run()
        assert answers == [True]
        assert sim.elapsed_ms() < 6


def test_who_waits_for_the_lock_gets_it_in_an_order_of_the_seed():
    orders = set()

    def scenario(sim: Simulation) -> None:
        node, order = sim.node("a"), []
        condition = node.tasks.condition()

        def enter(number: int) -> None:
            with condition:
                node.tasks.sleep(1)
                order.append(number)

        for number in range(3):
            node.start("enters", lambda number=number: enter(number))
        sim.run()
        orders.add(tuple(order))

    run_seeds(scenario, range(100))
    assert len(orders) == 6


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (lambda c: c.wait(), "without holding it"),
        (lambda c: c.notify_all(), "without holding it"),
        (lambda c: c.__exit__(None, None, None), "without holding it"),
        (lambda c: [c.__enter__(), c.__enter__()], "entered twice"),
    ],
)
def test_misuse_of_a_condition_raises_at_once(misuse, message):
    with Simulation(1) as sim:
        node = sim.node("a")
        condition = node.tasks.condition()
        task = node.start("misuse", lambda: misuse(condition), expect=(InvariantError,))
        sim.run()
        assert message in str(task.error)


@pytest.mark.parametrize("what", ["event", "condition", "tasks"])
def test_the_memory_of_another_process_is_out_of_reach(what):
    with Simulation(1) as sim:
        ours, theirs = sim.node("ours"), sim.node("theirs")
        event, condition = theirs.tasks.event(), theirs.tasks.condition()

        def reach() -> None:
            match what:
                case "event":
                    event.set()
                case "condition":
                    condition.__enter__()
                case _:
                    theirs.tasks.sleep(1)

        task = ours.start("reaches", reach, expect=(InvariantError,))
        sim.run()
        assert "of process theirs was used by task ours/reaches" in str(task.error)


def test_outside_of_tasks_a_free_condition_can_be_held_but_nothing_waits():
    with Simulation(1) as sim:
        node = sim.node("a")
        event, condition = node.tasks.event(), node.tasks.condition()
        with condition:
            condition.notify_all()
            with pytest.raises(InvariantError, match="entered twice"):
                condition.__enter__()
            with pytest.raises(InvariantError, match="only a task can wait"):
                condition.wait(5)
        for wait in (event.wait, lambda: node.tasks.sleep(1)):
            with pytest.raises(InvariantError, match="only a task can wait"):
                wait()
        node.start("holds", lambda: [condition.__enter__(), event.wait()])
        sim.run(until_ms=1)
        with pytest.raises(InvariantError, match="entered from outside"):
            condition.__enter__()


def test_tasks_that_wait_for_each_other_for_ever_are_named():
    with Simulation(1) as sim:
        node = sim.node("a")
        first, second = node.tasks.condition(), node.tasks.condition()

        def both(one, other) -> None:
            with one:
                node.tasks.sleep(1)
                with other:
                    pass

        node.start("left", lambda: both(first, second))
        node.start("right", lambda: both(second, first))
        with pytest.raises(SimulationError, match=r"a/left \(lock wait\), a/right \(lock wait\)"):
            sim.run()
