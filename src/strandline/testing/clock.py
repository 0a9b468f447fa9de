"""Clocks of simulated processes and of the simulated store, with the ways clocks misbehave.

Both are read from simulation time, which only the scheduler moves. Sleeps and timeouts last
their span of simulation time whatever these clocks show, so a clock and a timer may disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH_MS = 1_700_000_000_000
"""Where the store's clock starts."""


class SimulatedClock:
    """The clock of one process: it may drift, freeze and jump ahead, and never goes back.

    It goes on while its process is suspended, as it does for a stopped process. A machine
    that sleeps is `freeze`, then `thaw`.
    """

    def __init__(self, now_us: Callable[[], int], *, start_ms: int = 0, drift_ppm: int = 0) -> None:
        self._now_us = now_us
        # What the clock showed, and when, at the last change of its course.
        self._base_us = start_ms * 1000
        self._since_us = now_us()
        self._drift_ppm = drift_ppm
        self._frozen = False

    def monotonic_ms(self) -> int:
        return self._shown_us() // 1000

    def jump(self, ahead_ms: int) -> None:
        """Skip ahead; the port promises that this clock never goes back."""
        if ahead_ms < 0:
            raise ValueError(f"a monotonic clock cannot jump by {ahead_ms} ms")
        self._base_us += ahead_ms * 1000

    def drift(self, parts_per_million: int) -> None:
        """From now on run this much too fast (or, below zero, too slow)."""
        self._change_course()
        self._drift_ppm = parts_per_million

    def freeze(self) -> None:
        self._change_course()
        self._frozen = True

    def thaw(self) -> None:
        self._change_course()
        self._frozen = False

    def _change_course(self) -> None:
        self._base_us = self._shown_us()
        self._since_us = self._now_us()

    def _shown_us(self) -> int:
        if self._frozen:
            return self._base_us
        passed_us = self._now_us() - self._since_us
        return self._base_us + passed_us * (1_000_000 + self._drift_ppm) // 1_000_000


class StoreClock:
    """The clock that `Consensus.now_ms` shows; it may jump both ways, like any wall clock."""

    def __init__(self, now_us: Callable[[], int], *, start_ms: int = EPOCH_MS) -> None:
        self._now_us = now_us
        self._offset_us = start_ms * 1000

    def now_ms(self) -> int:
        return (self._now_us() + self._offset_us) // 1000

    def jump(self, by_ms: int) -> None:
        self._offset_us += by_ms * 1000
