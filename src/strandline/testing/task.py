"""A simulated task, and the life of the simulated process that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable

    import greenlet

    from strandline.testing.scheduler import Scheduler


class SimulatedCrash(BaseException):
    """The process of this task was killed; not an `Exception`, so that no handler survives it."""


@dataclass(eq=False, slots=True)
class Life:
    """Whether the tasks of one process may run, and when it is to die."""

    name: str
    dead: bool = False
    suspensions: int = 0
    parked: list[SimulatedTask] = field(default_factory=list)
    waits_left: int | None = None
    crash_chance: float = 0.0


@dataclass(eq=False, slots=True)
class SimulatedTask:
    """The Task port: one greenlet of one process."""

    scheduler: Scheduler
    life: Life
    name: str
    number: int
    run: Callable[[], None]
    expected: tuple[type[BaseException], ...] = ()
    error: BaseException | None = None
    ended: bool = False
    # A blocked task waits for `waits_on`; `wait_number` tells its timers from stale ones.
    blocked: bool = False
    timed: bool = False
    timed_out: bool = False
    waits_on: object = None
    waits_for: str = "to be run"
    wait_number: int = 0
    joiners: list[SimulatedTask] = field(default_factory=list)
    # The greenlet is made at the first step, as a child of the hub of that moment.
    glet: greenlet.greenlet | None = None

    def __str__(self) -> str:
        return f"{self.life.name}/{self.name}"

    def done(self) -> bool:
        return self.ended or self.life.dead

    def join(self, timeout_ms: int | None = None) -> bool:
        scheduler = self.scheduler
        invariant(scheduler.current is not self, f"task {self} joins itself")
        scheduler.pause("join")
        if not self.done():
            joiner = scheduler.must_be_task("join")
            self.joiners.append(joiner)
            scheduler.block("join wait", timeout_ms, self)
            self.joiners.remove(joiner)
        return self.done()
