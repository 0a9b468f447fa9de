"""The real clock, chance and threads behind the ports of `model`.

The only module that imports `time`, `random`, `secrets` or `threading`: everything else
takes a port, so that a simulated history can replace all of them.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from typing import TYPE_CHECKING

from strandline.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from strandline.model.tasks import Condition, Event, Task


class SystemClock:
    """The machine's clocks."""

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for stores in this process that have no clock of their own."""
        return time.time_ns() // 1_000_000


class SystemRandom:
    """Chance from the operating system; a forked child draws other tokens than its parent."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def token(self) -> str:
        return secrets.token_hex(16)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)


class SystemTask:
    """A daemon thread: it never keeps the interpreter from ending."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    @property
    def name(self) -> str:
        return self._thread.name

    def done(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_ms: int | None = None) -> bool:
        invariant(self._thread is not threading.current_thread(), f"task {self.name} joins itself")
        self._thread.join(_seconds(timeout_ms))
        return self.done()


class SystemEvent:
    """A flag of this process."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout_ms: int | None = None) -> bool:
        return self._event.wait(_seconds(timeout_ms))


class SystemCondition:
    """A lock with a place to wait; misuse raises at once instead of hanging."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        # Only the owner ever sees its own ident here, so it may be read without the lock.
        self._owner = 0

    def __enter__(self) -> bool:
        invariant(self._owner != threading.get_ident(), "a condition was entered twice")
        self._condition.acquire()
        self._owner = threading.get_ident()
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._must_hold()
        self._owner = 0
        self._condition.release()

    def wait(self, timeout_ms: int | None = None) -> bool:
        self._must_hold()
        self._owner = 0
        try:
            return self._condition.wait(_seconds(timeout_ms))
        finally:
            self._owner = threading.get_ident()

    def notify_all(self) -> None:
        self._must_hold()
        self._condition.notify_all()

    def _must_hold(self) -> None:
        invariant(self._owner == threading.get_ident(), "a condition was used without holding it")


class SystemTasks:
    """Tasks as threads."""

    def start(self, name: str, run: Callable[[], None]) -> Task:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return SystemTask(thread)

    def sleep(self, duration_ms: float) -> None:
        time.sleep(max(0.0, duration_ms) / 1000)

    def event(self) -> Event:
        return SystemEvent()

    def condition(self) -> Condition:
        return SystemCondition()


def _seconds(timeout_ms: int | None) -> float | None:
    """`None` is for ever, and so is whatever the platform cannot count to."""
    if timeout_ms is None:
        return None
    return min(max(0, timeout_ms) / 1000, threading.TIMEOUT_MAX)
