"""A seed is a whole history: the same trace everywhere, and its faults reported in full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import strandline.errors
from strandline.errors import InvariantError
from strandline.testing.clock import EPOCH_MS
from strandline.testing.seeds import run_seeds, try_seeds
from strandline.testing.simulation import Simulation, SimulationError
from strandline.testing.streams import Options
from strandline.testing.task import SimulatedCrash

HERE = Path(__file__)
FAULTS = {"crash": (0.002, 0.02), "suspend": (5, 50), "jump": (1000,)}


def start_worker(sim: Simulation, options: Options, restarts: int) -> None:
    """A process that races, waits, suffers, and comes back."""
    node = sim.node("worker")
    node.crash_often(options["crash"])
    condition, event = node.tasks.condition(), node.tasks.event()
    keys = dict.fromkeys(["alpha", "beta", "gamma"])

    def work() -> None:
        for _ in range(10):
            with condition:
                sim.pause(f"write {sim.stream('workload').choice(list(keys))}")
                condition.wait(3)
            node.tasks.sleep(node.random.uniform(0, 5))
        event.set()

    def watch() -> None:
        second = node.tasks.start("work", work)
        event.wait(200)
        second.join()

    node.start("watch", watch)
    node.start("work", work)
    if options.on("suspend"):
        sim.after(20, lambda: node.suspend(options["suspend"]))
    if options.on("jump"):
        sim.after(30, lambda: node.clock.jump(int(options["jump"])))
    if restarts:
        sim.after(60, lambda: start_worker(sim, options, restarts - 1))


def busy_history(seed: int) -> Simulation:
    """Three processes and everything the simulator has."""
    with Simulation(seed) as sim:
        options = Options.from_seed(sim.stream("options"), FAULTS)
        for _ in range(3):
            start_worker(sim, options, restarts=1)
        sim.run()
    return sim


def hashes(seeds: range) -> str:
    return "\n".join(f"{seed} {busy_history(seed).trace_hash()}" for seed in seeds)


def test_a_seed_gives_the_same_trace_in_any_process_with_any_hash_seed():
    seeds = range(36)
    source = Path(strandline.errors.__file__).parent.parent
    code = f"import runpy; print(runpy.run_path({str(HERE)!r})['hashes']({seeds!r}))"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(source)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("0", "1", "4711")
    ]
    printed = {child.communicate(timeout=60)[0].strip() for child in children}
    assert printed == {hashes(seeds)}


def test_different_seeds_give_different_traces():
    assert len({busy_history(seed).trace_hash() for seed in range(30)}) == 30


def test_drawing_more_from_one_stream_leaves_the_schedule_alone():
    def history(draws: int) -> str:
        with Simulation(5) as sim:
            for number in range(3):
                node = sim.node(f"n{number}")
                node.start("a", lambda: [sim.stream("sizes").random() for _ in range(draws)])
                node.start("b", lambda node=node: [node.tasks.sleep(1) for _ in range(10)])
            sim.run()
            return sim.trace_hash()

    assert history(0) == history(100)


def test_streams_are_one_for_each_name():
    with Simulation(5) as sim:
        assert sim.stream("faults") is sim.stream("faults")
        assert sim.stream("faults").random() != sim.stream("sizes").random()


def test_an_error_in_a_task_names_the_seed_the_task_and_the_last_steps():
    with Simulation(77) as sim:
        node = sim.node("a")

        def fail() -> None:
            for _ in range(50):
                node.tasks.sleep(1)
            raise KeyError("missing")

        node.start("fails", fail)
        with pytest.raises(SimulationError) as caught:
            sim.run()
    lines = str(caught.value).splitlines()
    assert lines[:2] == ["seed 77: task a/fails raised KeyError('missing')", "last steps:"]
    assert len(lines) == 32
    assert lines[-1].endswith("a/fails: end")
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.seed == 77


def test_an_expected_error_ends_only_its_task():
    with Simulation(1) as sim:
        node = sim.node("a")
        task = node.start("fails", lambda: {}["x"], expect=(KeyError,))
        sim.run()
        assert isinstance(task.error, KeyError)


def test_a_run_until_a_time_stops_there_and_can_go_on():
    with Simulation(1) as sim:
        node, log = sim.node("a"), []

        def tick() -> None:
            while True:
                node.tasks.sleep(10)
                log.append(round(sim.elapsed_ms()))

        node.start("ticks", tick)
        sim.run(until_ms=35)
        assert log == [10, 20, 30]
        assert sim.elapsed_ms() == 35
        sim.run(until_ms=50.5)
        assert log == [10, 20, 30, 40, 50]


def test_a_run_until_a_time_gets_there_even_when_all_tasks_have_ended():
    with Simulation(1) as sim:
        acts: list[str] = []
        sim.node("a").start("short", lambda: None)
        sim.after(20, lambda: acts.append("act"))
        sim.run(until_ms=30)
        assert (acts, sim.elapsed_ms()) == (["act"], 30)


def test_a_run_until_something_holds_fails_when_it_never_does():
    with Simulation(1) as sim:
        node, done = sim.node("a"), []
        node.start("works", lambda: [node.tasks.sleep(100), done.append(1)])
        sim.run_until(lambda: bool(done), within_ms=200)
        with pytest.raises(SimulationError, match="not reached within 200 ms; waiting: nobody"):
            sim.run_until(lambda: len(done) > 1, within_ms=200)


def test_a_task_that_never_rests_meets_the_step_limit():
    with Simulation(1, steps_max=1000) as sim:

        def spin() -> None:
            while True:
                sim.pause("spin")

        sim.node("a").start("spins", spin)
        with pytest.raises(SimulationError, match="more than 1000 steps"):
            sim.run()


def test_quiet_is_when_only_far_timers_remain():
    with Simulation(1) as sim:
        node = sim.node("a")

        def beat() -> None:
            for _ in range(5):
                node.tasks.sleep(100)
            while True:
                node.tasks.sleep(5000)

        node.start("beats", beat)
        sim.run_until_quiet(horizon_ms=1000)
        assert 500 <= sim.elapsed_ms() < 501
        with pytest.raises(SimulationError, match="not quiet within 60000 ms"):
            sim.run_until_quiet(horizon_ms=6000, within_ms=60_000)


def parked_reader(sim: Simulation, *, notifies: bool, timeout_ms: int | None) -> None:
    """A reader parks until it is told to stop; the mutant forgets to tell it."""
    node, stopped = sim.node("a"), []
    condition = node.tasks.condition()

    def read() -> None:
        with condition:
            while not stopped:
                condition.wait(timeout_ms)

    def stop() -> None:
        node.tasks.sleep(10)
        with condition:
            stopped.append(True)
            if notifies:
                condition.notify_all()

    node.start("reads", read)
    node.start("stops", stop)
    node.start("idles", lambda: node.tasks.event().wait())
    sim.run_until_quiet(horizon_ms=1000)


def test_s10_a_park_without_a_wakeup_is_found_at_quiescence():
    def scenario(sim: Simulation) -> None:
        parked_reader(sim, notifies=False, timeout_ms=None)

    report = try_seeds(scenario, range(20), failures_max=20)
    assert len(report.failures) == 20
    assert "a/reads waited on a condition that was already true" in str(report.failures[0])


@pytest.mark.parametrize(("notifies", "timeout_ms"), [(True, None), (True, 5000), (False, 5000)])
def test_s10_a_notified_or_timed_park_is_fine(notifies, timeout_ms):
    def scenario(sim: Simulation) -> None:
        parked_reader(sim, notifies=notifies, timeout_ms=timeout_ms)

    run_seeds(scenario, range(20))


def test_s10_a_wait_for_an_event_that_is_set_is_found():
    with Simulation(1) as sim:
        node = sim.node("a")
        event = node.tasks.event()
        node.start("waits", event.wait)
        sim.run(until_ms=1)
        event._is_set = True
        with pytest.raises(SimulationError, match="a/waits waits for an event that is set"):
            sim.run_until_quiet()


def test_s10_a_wait_on_something_false_is_fine_and_still_waits_afterwards():
    with Simulation(1) as sim:
        node, ready = sim.node("a"), []
        condition = node.tasks.condition()

        def wait() -> None:
            with condition:
                while not ready:
                    condition.wait()

        tasks = [node.start("waits", wait) for _ in range(3)]
        sim.run_until_quiet()
        sim.run_until_quiet()
        assert not any(task.done() for task in tasks)


def test_a_call_runs_beside_the_others_and_answers():
    with Simulation(1) as sim:
        node = sim.node("a")

        def beat() -> None:
            while True:
                node.tasks.sleep(1)

        node.start("beats", beat)
        assert sim.call(node, lambda: [node.tasks.sleep(5), "answer"][1]) == "answer"
        with pytest.raises(KeyError):
            sim.call(node, lambda: {}["x"])
        sim.after(3, node.crash)
        with pytest.raises(SimulatedCrash):
            sim.call(node, lambda: node.tasks.sleep(100))


def test_a_task_cannot_run_its_own_simulation():
    with Simulation(1) as sim:
        task = sim.node("a").start("inner", sim.run, expect=(InvariantError,))
        sim.run()
        assert "cannot be run from its own task" in str(task.error)


def test_the_store_clock_moves_with_time_and_jumps_alone():
    with Simulation(1) as sim:
        node = sim.node("a")
        start_ms = node.clock.monotonic_ms()
        node.start("sleeps", lambda: node.tasks.sleep(100))
        sim.after(50, lambda: sim.store_clock.jump(-3_600_000))
        sim.run()
        assert sim.now_ms() == EPOCH_MS + 100 - 3_600_000
        assert node.clock.monotonic_ms() == start_ms + 100


def test_a_pause_outside_of_tasks_only_leaves_a_line():
    with Simulation(1) as sim:
        sim.pause("put x")
        sim.note("look")
        assert [line.split("  ")[-1] for line in sim.trace_lines()] == [
            "outside: put x",
            "outside: look",
        ]
        assert sim.steps == 0


def test_a_delayed_pause_takes_its_time():
    with Simulation(1) as sim:
        sim.node("a").start("calls", lambda: sim.pause("slow put", 30_000))
        sim.run()
        assert round(sim.elapsed_ms()) == 30_000


def test_closing_kills_what_still_waits_and_runs_its_finally_blocks():
    unwound = []
    with Simulation(1) as sim:
        node = sim.node("a")

        def wait() -> None:
            try:
                node.tasks.event().wait()
            finally:
                unwound.append("yes")

        node.start("waits", wait)
        sim.run(until_ms=1)
    assert unwound == ["yes"]
    assert not node.alive
