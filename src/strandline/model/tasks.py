"""The Tasks port: everything that waits, or runs beside something else.

In production a task is a thread; under the simulator it is a greenlet of a seeded scheduler,
so a simulated history runs the production code line for line. No other module starts threads,
sleeps or locks. Timeouts are in milliseconds; `None` waits for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Task(Protocol):
    """A job that was started and runs beside its starter."""

    @property
    def name(self) -> str: ...

    def done(self) -> bool: ...

    def join(self, timeout_ms: int | None = None) -> bool:
        """Wait for the end of the task; `False` if the time ran out first."""
        ...


class Event(Protocol):
    """A flag that tasks can wait for."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait until it is set; `False` if the time ran out first."""
        ...


class Condition(Protocol):
    """A lock (not re-entrant) with a place to wait; hold it with `with`."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Let go of the lock, wait to be notified, take it again; `False` on timeout."""
        ...

    def notify_all(self) -> None: ...


class Tasks(Protocol):
    """Starts tasks, and makes what they wait on."""

    def start(self, name: str, run: Callable[[], None]) -> Task:
        """Start `run` beside the caller. Its errors are its own business: it must not raise."""
        ...

    def sleep(self, duration_ms: float) -> None: ...

    def event(self) -> Event: ...

    def condition(self) -> Condition: ...
