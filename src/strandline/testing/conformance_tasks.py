"""What every implementation of Tasks and Clock must show; call it from inside a task or thread.

The checks wait on events, never for a fixed time; where a timeout must run out, they ask only
that it was not too early.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from strandline.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.clock import Clock
    from strandline.model.tasks import Condition, Tasks

_SHORT_MS = 20
_LONG_MS = 20_000
_ADDS = 50


def check_tasks(tasks: Tasks, clock: Clock) -> None:
    """Check both ports through what a caller can observe."""
    _check_clock(tasks, clock)
    _check_start_and_join(tasks, clock)
    _check_event(tasks, clock)
    _check_condition_excludes(tasks)
    _check_condition_waits(tasks, clock)
    _check_condition_misuse(tasks)


def _check_clock(tasks: Tasks, clock: Clock) -> None:
    before = clock.monotonic_ms()
    assert clock.monotonic_ms() >= before, "the clock went back"
    tasks.sleep(_SHORT_MS)
    assert clock.monotonic_ms() - before >= _SHORT_MS - 1, "a sleep was too short"
    tasks.sleep(0)


def _check_start_and_join(tasks: Tasks, clock: Clock) -> None:
    go, log = tasks.event(), list[str]()

    def run() -> None:
        go.wait()
        log.append("ran")

    task = tasks.start("joined", run)
    assert task.name == "joined"
    assert not task.done(), "a task ended before it could"
    before = clock.monotonic_ms()
    assert task.join(_SHORT_MS) is False, "a task was joined before its end"
    assert clock.monotonic_ms() - before >= _SHORT_MS - 1, "a join gave up too early"
    go.set()
    assert task.join(_LONG_MS) is True, "a task that may end was not joined"
    assert task.done()
    assert log == ["ran"]
    assert task.join() is True, "joining again is harmless"


def _check_event(tasks: Tasks, clock: Clock) -> None:
    event = tasks.event()
    assert not event.is_set()
    before = clock.monotonic_ms()
    assert event.wait(_SHORT_MS) is False, "an event that is not set was seen"
    assert clock.monotonic_ms() - before >= _SHORT_MS - 1, "an event wait gave up too early"
    assert event.wait(0) is False
    assert event.wait(-1) is False, "a time that has run out is no time, not for ever"
    woken: list[bool] = []
    waiters = [tasks.start("waiter", lambda: woken.append(event.wait())) for _ in range(3)]
    event.set()
    assert all(waiter.join(_LONG_MS) for waiter in waiters), "set must wake all who wait"
    assert woken == [True] * 3
    assert event.is_set()
    assert event.wait(0) is True
    event.clear()
    assert not event.is_set()
    assert event.wait(0) is False


def _check_condition_excludes(tasks: Tasks) -> None:
    condition, inside, worst = tasks.condition(), [0], [0]

    def add() -> None:
        for _ in range(_ADDS):
            with condition:
                inside[0] += 1
                worst[0] = max(worst[0], inside[0])
                tasks.sleep(0)
                inside[0] -= 1

    adders = [tasks.start("adder", add) for _ in range(3)]
    assert all(adder.join(_LONG_MS) for adder in adders)
    assert worst == [1], "two tasks held one condition"


def _check_condition_waits(tasks: Tasks, clock: Clock) -> None:
    condition, turn, answers = tasks.condition(), [0], list[bool]()

    def take_turn() -> None:
        with condition:
            while turn[0] != 1:
                condition.wait()
            answers.append(condition.wait(_LONG_MS))

    with condition:
        before = clock.monotonic_ms()
        assert condition.wait(_SHORT_MS) is False, "nobody notified"
        assert clock.monotonic_ms() - before >= _SHORT_MS - 1, "a wait gave up too early"
    waiters = [tasks.start("waiter", take_turn) for _ in range(2)]
    with condition:
        turn[0] = 1
        condition.notify_all()
    while not all(waiter.done() for waiter in waiters):
        with condition:
            condition.notify_all()
        tasks.sleep(1)
    assert answers == [True, True], "notify_all must wake all who wait"


def _check_condition_misuse(tasks: Tasks) -> None:
    condition = tasks.condition()
    _must_refuse(lambda: condition.wait(0), "waiting without holding")
    _must_refuse(condition.notify_all, "notifying without holding")
    with condition:
        _must_refuse(lambda: _enter(condition), "entering twice")
    with contextlib.suppress(KeyError), condition:
        raise KeyError("leaves")
    with condition:
        assert condition.wait(0) is False, "an error must let go of the lock"


def _enter(condition: Condition) -> None:
    with condition:
        raise AssertionError("a condition is not re-entrant")


def _must_refuse(misuse: Callable[[], object], what: str) -> None:
    try:
        misuse()
    except InvariantError:
        return
    raise AssertionError(f"{what} must raise InvariantError")
