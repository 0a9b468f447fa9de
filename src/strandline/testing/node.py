"""One simulated process: its tasks, its clock, its chance, and the ways it can suffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.testing.waiting import SimulatedCondition, SimulatedEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.tasks import Condition, Event, Task, Tasks
    from strandline.testing.clock import SimulatedClock
    from strandline.testing.scheduler import Scheduler
    from strandline.testing.streams import SimulatedRandom
    from strandline.testing.task import Life, SimulatedTask


class SimulatedTasks:
    """The Tasks port of one process."""

    def __init__(self, scheduler: Scheduler, life: Life) -> None:
        self._scheduler = scheduler
        self._life = life

    def start(self, name: str, run: Callable[[], None]) -> Task:
        self._scheduler.check_owner(self._life, "tasks")
        return self._scheduler.start(self._life, name, run)

    def sleep(self, duration_ms: float) -> None:
        self._scheduler.must_be_task("sleep")
        self._scheduler.check_owner(self._life, "tasks")
        self._scheduler.pause("sleep", duration_ms)

    def event(self) -> Event:
        return SimulatedEvent(self._scheduler, self._life)

    def condition(self) -> Condition:
        return SimulatedCondition(self._scheduler, self._life)


class Node:
    """What a process has, and what can be done to it. A restart is a new node.

    Give `tasks`, `clock` and `random` to production code; call everything else from the test.
    """

    def __init__(
        self, scheduler: Scheduler, life: Life, clock: SimulatedClock, random: SimulatedRandom
    ) -> None:
        self.tasks: Tasks = SimulatedTasks(scheduler, life)
        self.clock = clock
        self.random = random
        self._scheduler = scheduler
        self._life = life

    @property
    def name(self) -> str:
        return self._life.name

    @property
    def alive(self) -> bool:
        return not self._life.dead

    def start(
        self, name: str, run: Callable[[], None], *, expect: tuple[type[BaseException], ...] = ()
    ) -> SimulatedTask:
        """Start a task from the test; an expected error ends it quietly, as `task.error`."""
        return self._scheduler.start(self._life, name, run, expect)

    def crash(self) -> None:
        """Kill it, as by signal 9: no task of it runs on, and no store call of it takes effect.

        Its frames are unwound by `SimulatedCrash`, so `finally` blocks do run, but every port
        refuses them. Called by a task of the process itself, it does not return.
        """
        self._scheduler.kill(self._life)

    def crash_after(self, waits: int) -> None:
        """Kill it at its next place where control may pass, after this many more of them."""
        self._life.waits_left = waits

    def crash_often(self, chance: float) -> None:
        """From now on kill it with this chance at each place where control may pass."""
        self._life.crash_chance = chance

    def suspend(self, duration_ms: float) -> None:
        """Stop all its tasks for so long, as by SIGSTOP, then let them go on.

        Its clock goes on and its timers expire meanwhile; the tasks learn of it afterwards.
        """
        self._scheduler.suspend(self._life, duration_ms)
