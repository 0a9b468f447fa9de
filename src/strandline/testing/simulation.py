"""A whole history from one seed: processes, time, chance and faults, run in one thread.

    with Simulation(seed) as sim:
        writer, reader = sim.node("writer"), sim.node("reader")
        writer.start("append", lambda: append(sim.stream("workload"), writer.tasks))
        sim.after(50, writer.crash)
        sim.run()

Production code stays plain and blocking. Control passes only where a simulated port waits:
`sleep`, `Event.wait`, entering a condition or waiting on it, `Task.join`, and `pause`, which
simulated stores call before and after the effect of each call. Everything else that varies is
drawn from the seed, so the same seed gives the same trace, in any process.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Self, TypeVar

from strandline.errors import invariant
from strandline.testing.clock import SimulatedClock, StoreClock
from strandline.testing.node import Node
from strandline.testing.picking import Mode, Picker
from strandline.testing.scheduler import Scheduler
from strandline.testing.streams import SimulatedRandom, stream
from strandline.testing.task import Life, SimulatedCrash, SimulatedTask
from strandline.testing.trace import Trace
from strandline.testing.waiting import SimulatedCondition, SimulatedEvent

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")

_LINES_SHOWN = 30
_TEN_MINUTES_MS = 600_000.0


class SimulationError(AssertionError):
    """A history went wrong; the message ends with its last steps. `seed` repeats it."""

    def __init__(self, message: str, *, seed: int) -> None:
        super().__init__(message)
        self.seed = seed


class Simulation:
    """One history. Use it with `with`: leaving kills what still runs."""

    def __init__(
        self,
        seed: int,
        *,
        steps_max: int = 2_000_000,
        mode: Mode | None = None,
        keep_trace: bool = False,
    ) -> None:
        self.seed = seed
        self.seen: Counter[str] = Counter()
        self._steps_max = steps_max
        self._trace = Trace(keep=keep_trace)
        picker = Picker(stream(seed, "schedule"), mode)
        self._scheduler = Scheduler(seed, self._trace, picker)
        self._lives: list[Life] = []
        self._streams: dict[str, random.Random] = {}
        self.store_clock = StoreClock(self._now_us)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill every process. Call it from outside, like `run`."""
        for life in self._lives:
            self._scheduler.kill(life)
        self._scheduler.step(-1)

    # Chance, time and processes.

    def stream(self, name: str) -> random.Random:
        """This history's generator of that name (`faults`, `workload`, `sizes`, …)."""
        if name not in self._streams:
            self._streams[name] = stream(self.seed, f"stream/{name}")
        return self._streams[name]

    def node(self, name: str, *, drift_ppm: int = 0) -> Node:
        """A new process. A name may come again: for a restart, or for a twin."""
        incarnation = 1 + sum(life.name.split("#")[0] == name for life in self._lives)
        life = Life(name if incarnation == 1 else f"{name}#{incarnation}")
        self._lives.append(life)
        source = stream(self.seed, f"process/{life.name}")
        # No two machines count from the same moment, so their clocks must not be compared.
        start_ms = source.randrange(1_000_000_000)
        clock = SimulatedClock(self._now_us, start_ms=start_ms, drift_ppm=drift_ppm)
        return Node(self._scheduler, life, clock, SimulatedRandom(source))

    def now_ms(self) -> int:
        """The store's clock, for `Consensus.now_ms`; `store_clock.jump` moves it."""
        return self.store_clock.now_ms()

    def elapsed_ms(self) -> float:
        """Simulation time since the beginning; no clock fault touches it."""
        return self._scheduler.now_us / 1000

    def after(self, delay_ms: float, act: Callable[[], None]) -> None:
        """Do something to the world at a later time, such as `node.crash`; it must not wait."""
        self._scheduler.at(delay_ms, act)

    # What simulated stores and checkers call.

    def pause(self, label: str, delay_ms: float = 0.0) -> None:
        """Let the seed choose who runs next, or who dies; with a delay, after that long.

        Stores call it before and after the effect of each call. Outside of tasks it only
        leaves a line in the trace, so a test may look into a store directly.
        """
        self._scheduler.pause(label, delay_ms)

    def note(self, label: str) -> None:
        """Put a line into the trace without giving up control."""
        self._scheduler.note(label)

    def sometimes(self, label: str) -> None:
        """Count that something worth reaching was reached; `run_seeds` adds the counts up."""
        self.seen[label] += 1

    # Running.

    @property
    def steps(self) -> int:
        return self._scheduler.steps

    def run(self, *, until_ms: float | None = None) -> None:
        """Run until all tasks have ended, or until that simulation time.

        Raise the first error that a task did not expect. Without a time limit, tasks that
        wait for each other for ever are an error too.
        """
        limit_us = math.inf if until_ms is None else until_ms * 1000
        while self._step(limit_us):
            if until_ms is None and self._all_ended():
                return
        if until_ms is not None:
            self._scheduler.now_us = max(self._scheduler.now_us, round(limit_us))
        elif not self._all_ended():
            raise self._failed("tasks wait for ever: " + self._who_waits())

    def run_until(self, reached: Callable[[], bool], *, within_ms: float = _TEN_MINUTES_MS) -> None:
        """Run until something holds; fail if it does not within this much simulation time."""
        limit_us = self._scheduler.now_us + within_ms * 1000
        while not reached():
            if not self._step(limit_us):
                raise self._failed(
                    f"not reached within {within_ms:g} ms; waiting: {self._who_waits()}"
                )

    def run_until_quiet(
        self, *, horizon_ms: float = 1000.0, within_ms: float = _TEN_MINUTES_MS
    ) -> None:
        """Run until nobody will do anything for `horizon_ms`, then look for lost wake-ups.

        At that moment no task may wait for something that is already true (S10): a set
        event, or a condition that, looked at again, lets the task go on. Waits with a
        timeout look again by themselves and are left alone.
        """
        limit_us = self._scheduler.now_us + within_ms * 1000
        while not self._quiet(horizon_ms):
            if not self._step(limit_us):
                raise self._failed(f"not quiet within {within_ms:g} ms")
        self._check_waits()

    def call(self, node: Node, run: Callable[[], T], *, within_ms: float = _TEN_MINUTES_MS) -> T:
        """Run `run` as a task of that process, the others beside it, and return its answer."""
        answers: list[T] = []
        task = node.start("call", lambda: answers.append(run()), expect=(Exception,))
        self.run_until(task.done, within_ms=within_ms)
        if task.error is not None:
            raise task.error
        if not answers:
            raise SimulatedCrash(f"process {node.name} was killed during a call")
        return answers[0]

    # Looking back.

    def trace_hash(self) -> str:
        """Equal for two runs exactly when they were the same history."""
        return self._trace.digest()

    def trace_lines(self, count: int | None = None) -> list[str]:
        return self._trace.lines(count)

    # How it is done.

    def _now_us(self) -> int:
        return self._scheduler.now_us

    def _all_ended(self) -> bool:
        return not self._scheduler.living

    def _quiet(self, horizon_ms: float) -> bool:
        if not self._scheduler.idle():
            return False
        due_us = self._scheduler.next_due_us()
        return due_us is None or due_us > self._scheduler.now_us + horizon_ms * 1000

    def _step(self, limit_us: float) -> bool:
        invariant(self._scheduler.current is None, "a simulation cannot be run from its own task")
        went_on = self._scheduler.step(limit_us)
        if self._scheduler.failures:
            task, error = self._scheduler.failures[0]
            raise self._failed(f"task {task} raised {error!r}") from error
        if self._scheduler.steps > self._steps_max:
            raise self._failed(f"more than {self._steps_max} steps: a task may never rest")
        return went_on

    def _check_waits(self) -> None:
        waiting = [
            task for task in self._scheduler.living.values() if task.blocked and not task.timed
        ]
        for task in waiting:
            on = task.waits_on
            if isinstance(on, SimulatedEvent) and on.is_set():
                raise self._failed(f"task {task} waits for an event that is set")
            if isinstance(on, SimulatedCondition) and on.waits_for_notice(task):
                self._look_again(task, on)

    def _look_again(self, task: SimulatedTask, condition: SimulatedCondition) -> None:
        """A wake-up without a cause is always legal, and must lead back to the same wait."""
        self._scheduler.note(f"look again: {task}")
        self._scheduler.wake(task)
        while not self._scheduler.idle():
            self._step(math.inf)
        if task.done() or task.waits_on is not condition:
            raise self._failed(f"task {task} waited on a condition that was already true")

    def _who_waits(self) -> str:
        waiting = [f"{task} ({task.waits_for})" for task in self._scheduler.living.values()]
        return ", ".join(waiting) or "nobody"

    def _failed(self, what: str) -> SimulationError:
        lines = "\n".join(self._trace.lines(_LINES_SHOWN))
        return SimulationError(f"seed {self.seed}: {what}\nlast steps:\n{lines}", seed=self.seed)
