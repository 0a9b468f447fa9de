"""Simulated events and conditions: what the tasks of one simulated process wait on.

They belong to the process that made them, like memory: a task of another process that uses
one gets an `InvariantError`, and so does misuse that would hang or corrupt a real program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import InvariantError, invariant

if TYPE_CHECKING:
    from types import TracebackType

    from strandline.testing.scheduler import Scheduler
    from strandline.testing.task import Life, SimulatedTask


class SimulatedEvent:
    """The Event port."""

    def __init__(self, scheduler: Scheduler, life: Life) -> None:
        self._scheduler = scheduler
        self._life = life
        self._is_set = False
        self._waiters: list[SimulatedTask] = []

    def set(self) -> None:
        self._scheduler.check_owner(self._life, "an event")
        self._is_set = True
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._scheduler.wake(task)

    def clear(self) -> None:
        self._scheduler.check_owner(self._life, "an event")
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_ms: int | None = None) -> bool:
        task = self._scheduler.must_be_task("wait for an event")
        self._scheduler.check_owner(self._life, "an event")
        self._scheduler.pause("event")
        if self._is_set:
            return True
        self._waiters.append(task)
        was_set = self._scheduler.block("event wait", timeout_ms, self)
        if not was_set and task in self._waiters:
            self._waiters.remove(task)
        return was_set


class SimulatedCondition:
    """The Condition port. Whoever lets go wakes all who want in; the seed says who gets it."""

    def __init__(self, scheduler: Scheduler, life: Life) -> None:
        self._scheduler = scheduler
        self._life = life
        self._held = False
        self._owner: SimulatedTask | None = None
        self._lockers: list[SimulatedTask] = []
        self._waiters: list[SimulatedTask] = []

    def __enter__(self) -> bool:
        self._scheduler.check_owner(self._life, "a condition")
        task = self._scheduler.current
        invariant(not self._held_by(task), f"a condition was entered twice by task {task}")
        self._scheduler.pause("lock")
        self._acquire(task)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._must_hold()
        self._release()

    def wait(self, timeout_ms: int | None = None) -> bool:
        task = self._scheduler.must_be_task("wait for a condition")
        self._must_hold()
        self._release()
        self._waiters.append(task)
        notified = self._scheduler.block("condition wait", timeout_ms, self)
        if task in self._waiters:
            self._waiters.remove(task)
        self._acquire(task)
        return notified

    def notify_all(self) -> None:
        self._must_hold()
        waiters, self._waiters = self._waiters, []
        for task in waiters:
            self._scheduler.wake(task)

    def waits_for_notice(self, task: SimulatedTask) -> bool:
        """Whether the task waits to be notified, rather than for the lock."""
        return task in self._waiters

    def _held_by(self, task: SimulatedTask | None) -> bool:
        return self._held and self._owner is task

    def _must_hold(self) -> None:
        self._scheduler.check_owner(self._life, "a condition")
        task = self._scheduler.current
        if not self._held_by(task):
            raise InvariantError(f"a condition was used by task {task} without holding it")

    def _acquire(self, task: SimulatedTask | None) -> None:
        while self._held:
            if task is None:
                raise InvariantError("a condition is held by a task and was entered from outside")
            self._lockers.append(task)
            self._scheduler.block("lock wait", None, self)
        self._held, self._owner = True, task

    def _release(self) -> None:
        self._held, self._owner = False, None
        lockers, self._lockers = self._lockers, []
        for task in lockers:
            self._scheduler.wake(task)
