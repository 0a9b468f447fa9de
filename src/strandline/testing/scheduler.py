"""Runs the tasks of a simulated history one at a time, in an order that the seed chooses.

A task is a greenlet. It runs undisturbed from one wait to the next; the hub (whoever called
`step`) then chooses who goes on:

    start ─► ready ─► running ─┬─ pause ─────────► ready
               ▲               ├─ pause, delayed ► asleep ── due ──► ready
               │               └─ block ─────────► blocked ─ woken or due ─┐
               └────────────────────────────────────────────────────────────┘

When nobody is ready, time jumps to the next timer. A step costs a microsecond, so a task that
never sleeps cannot stop time. Killing throws `SimulatedCrash` into the tasks of a process.
"""

from __future__ import annotations

import heapq
from contextlib import suppress
from typing import TYPE_CHECKING

import greenlet

from strandline.errors import InvariantError, invariant
from strandline.testing.streams import stream
from strandline.testing.task import Life, SimulatedCrash, SimulatedTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.testing.picking import Picker
    from strandline.testing.trace import Trace

STEP_US = 1


class Scheduler:
    """The hub: ready tasks, timers, and simulation time."""

    def __init__(self, seed: int, trace: Trace, picker: Picker) -> None:
        self.now_us = 0
        self.steps = 0
        self.current: SimulatedTask | None = None
        self.living: dict[int, SimulatedTask] = {}
        self.failures: list[tuple[SimulatedTask, BaseException]] = []
        self._trace = trace
        self._picker = picker
        self._ties = stream(seed, "timers")
        self._crashes = stream(seed, "crashes")
        self._ready: list[SimulatedTask] = []
        self._dying: list[SimulatedTask] = []
        self._timers: list[tuple[int, float, int, SimulatedTask | Callable[[], None], int]] = []
        self._timer_count = 0
        self._hub: greenlet.greenlet | None = None

    # What simulated ports call.

    def start(
        self,
        life: Life,
        name: str,
        run: Callable[[], None],
        expected: tuple[type[BaseException], ...] = (),
    ) -> SimulatedTask:
        if life.dead:
            raise self._crash(life)
        number = self._trace.name(f"{life.name}/{name}")
        task = SimulatedTask(self, life, name, number, run, expected)
        self.living[number] = task
        self._trace.add(self.now_us, number, "start")
        self._make_ready(task)
        return task

    def pause(self, label: str, delay_ms: float = 0.0) -> None:
        """Let the seed choose who runs next, or who dies; outside of tasks, only take note."""
        task = self.current
        if task is None:
            self._trace.add(self.now_us, 0, label)
            return
        self._leave(task, label)
        if delay_ms > 0:
            task.blocked = task.timed = True
            task.wait_number += 1
            self._set_timer(delay_ms, task, task.wait_number)
        else:
            self._make_ready(task)
        self._switch()

    def block(self, label: str, timeout_ms: float | None, waits_on: object) -> bool:
        """Wait to be woken; `False` if the time ran out first."""
        task = self.must_be_task(label)
        self._leave(task, label)
        task.blocked, task.timed, task.waits_on = True, timeout_ms is not None, waits_on
        task.wait_number += 1
        if timeout_ms is not None:
            self._set_timer(timeout_ms, task, task.wait_number)
        self._switch()
        task.waits_on = None
        return not task.timed_out

    def wake(self, task: SimulatedTask) -> None:
        """End a `block`; a task that is not blocked any more has been woken already."""
        if task.blocked:
            task.blocked = task.timed_out = False
            self._make_ready(task)

    def must_be_task(self, wish: str) -> SimulatedTask:
        task = self.current
        if task is None:
            raise InvariantError(f"{wish}: only a task can wait; start one, or use Simulation.call")
        return task

    def check_owner(self, life: Life, what: str) -> None:
        """Refuse a task that reaches into the memory of another process, or a dead one."""
        task = self.current
        if task is None:
            return
        if task.life.dead:
            raise self._crash(task.life)
        invariant(task.life is life, f"{what} of process {life.name} was used by task {task}")

    # What faults and drivers call.

    def note(self, label: str) -> None:
        """Put a line into the trace without giving up control."""
        self._trace.add(self.now_us, 0 if self.current is None else self.current.number, label)

    def at(self, delay_ms: float, act: Callable[[], None]) -> None:
        """Call `act` from the hub at that time; it must not wait."""
        self._set_timer(delay_ms, act, 0)

    def kill(self, life: Life) -> None:
        """End all tasks of a process before anybody else runs; its own caller ends here."""
        if not life.dead:
            life.dead = True
            self.note(f"crash {life.name}")
            self._ready = [task for task in self._ready if task.life is not life]
            self._dying += [task for task in self.living.values() if task.life is life]
        if self.current is not None and self.current.life is life:
            raise self._crash(life)

    def suspend(self, life: Life, duration_ms: float) -> None:
        """Run none of its tasks for this long; overlapping suspensions end with the last."""
        life.suspensions += 1
        self.note(f"suspend {life.name}")
        life.parked += [task for task in self._ready if task.life is life]
        self._ready = [task for task in self._ready if task.life is not life]
        self.at(duration_ms, lambda: self._resume(life))

    # What the simulation calls.

    def step(self, limit_us: float) -> bool:
        """Run one task until it waits; `False` if nothing can happen until `limit_us`."""
        if self._dying:
            self._bury()
        if not self._ready:
            due_us = self.next_due_us()
            if due_us is None or due_us > limit_us:
                return False
            self.now_us = max(self.now_us, due_us)
        elif self.now_us > limit_us:
            return False
        self._fire_timers()
        if self._ready:
            self._resume_task(self._ready.pop(self._picker.pick(self._ready)))
        return True

    def idle(self) -> bool:
        return not self._ready and not self._dying

    def next_due_us(self) -> int | None:
        """When the next timer is due that somebody still waits for."""
        timers = self._timers
        while timers and self._stale(timers[0][3], timers[0][4]):
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    # How it is done.

    def _leave(self, task: SimulatedTask, label: str) -> None:
        """Before control passes: take note, and die here if the process is to die."""
        life = task.life
        if life.dead:
            raise self._crash(life)
        self._trace.add(self.now_us, task.number, label)
        task.waits_for = label
        if life.waits_left is not None:
            life.waits_left -= 1
            if life.waits_left < 0:
                self.kill(life)
        if life.crash_chance and self._crashes.random() < life.crash_chance:
            self.kill(life)

    def _crash(self, life: Life) -> SimulatedCrash:
        return SimulatedCrash(f"process {life.name} was killed")

    def _switch(self) -> None:
        hub = self._hub
        invariant(hub is not None, "a simulated task runs outside of its scheduler")
        hub.switch()  # type: ignore[union-attr]

    def _make_ready(self, task: SimulatedTask) -> None:
        if task.life.suspensions:
            task.life.parked.append(task)
        else:
            self._ready.append(task)

    def _set_timer(
        self, delay_ms: float, target: SimulatedTask | Callable[[], None], wait_number: int
    ) -> None:
        self._timer_count += 1
        due_us = self.now_us + max(0, round(delay_ms * 1000))
        entry = (due_us, self._ties.random(), self._timer_count, target, wait_number)
        heapq.heappush(self._timers, entry)

    def _stale(self, target: SimulatedTask | Callable[[], None], wait_number: int) -> bool:
        if not isinstance(target, SimulatedTask):
            return False
        return not target.blocked or target.wait_number != wait_number or target.life.dead

    def _fire_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now_us:
            _, _, _, target, wait_number = heapq.heappop(timers)
            if not isinstance(target, SimulatedTask):
                target()
            elif not self._stale(target, wait_number):
                target.blocked = False
                target.timed_out = True
                self._make_ready(target)
        if self._dying:
            self._bury()

    def _resume(self, life: Life) -> None:
        life.suspensions -= 1
        if not life.suspensions and not life.dead:
            self.note(f"resume {life.name}")
            self._ready += life.parked
            life.parked = []

    def _resume_task(self, task: SimulatedTask) -> None:
        self.steps += 1
        self.now_us += STEP_US
        self._hub = greenlet.getcurrent()
        if task.glet is None:
            task.glet = greenlet.greenlet(lambda: self._body(task))
        self.current = task
        task.glet.switch()
        self.current = None

    def _body(self, task: SimulatedTask) -> None:
        try:
            task.run()
        except SimulatedCrash:
            # Whoever raised it meant the process; no task of it may outlive another.
            with suppress(SimulatedCrash):
                self.kill(task.life)
        except greenlet.GreenletExit:
            pass
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            task.error = error
            if not isinstance(error, task.expected):
                self.failures.append((task, error))
        finally:
            self._end(task)

    def _end(self, task: SimulatedTask) -> None:
        task.ended = True
        del self.living[task.number]
        self._trace.add(self.now_us, task.number, "end")
        for joiner in task.joiners:
            self.wake(joiner)

    def _bury(self) -> None:
        """Throw the crash into each task of a killed process; ports refuse what it does then."""
        while self._dying:
            task = self._dying.pop(0)
            if task.ended:
                continue
            task.blocked = False
            if task.glet is None:
                self._end(task)
                continue
            self._hub = greenlet.getcurrent()
            self.current = task
            task.glet.throw(self._crash(task.life))
            self.current = None
