"""The Clock and Random ports: where time and chance come from."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """A clock of this process. It never goes back; nothing durable depends on it.

    Durable instants come from `Consensus.now_ms`, the store's own clock.
    """

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; the time a machine sleeps may not count."""
        ...


class Random(Protocol):
    """Chance, from one seed, so that a simulated history can be repeated."""

    def token(self) -> str:
        """32 hex digits that nobody else will draw."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number between the two, for spreading retries and heartbeats."""
        ...
