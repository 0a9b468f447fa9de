"""Chooses which ready task runs next.

A scheduler that is always fair, or always random, misses histories in which one task is
starved for a while or runs far ahead. So a seed either picks at random throughout, or changes
its way of picking every few steps.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from strandline.testing.task import SimulatedTask

_STRETCH_MAX = 64


class Mode(Enum):
    RANDOM = "any ready task, all alike"
    NEWEST = "the ready task that was started last"
    OLDEST = "the ready task that was started first"
    ROUND_ROBIN = "the task that has been ready for longest"
    STICKY = "the task that became ready last, so mostly the one that just ran"


class Picker:
    """Picks by one fixed mode, or by the stretches that the seed draws."""

    def __init__(self, source: random.Random, mode: Mode | None = None) -> None:
        self._source = source
        self._fixed = mode is not None or source.random() < 0.4
        self._mode = mode if mode is not None else Mode.RANDOM
        self._stretch = 0

    def pick(self, ready: Sequence[SimulatedTask]) -> int:
        """The position of the task that runs next; `ready` is in the order of becoming so."""
        if not self._fixed:
            self._next_in_stretch()
        count = len(ready)
        if count == 1:
            return 0
        match self._mode:
            case Mode.RANDOM:
                return int(self._source.random() * count)
            case Mode.NEWEST:
                return max(range(count), key=lambda i: ready[i].number)
            case Mode.OLDEST:
                return min(range(count), key=lambda i: ready[i].number)
            case Mode.ROUND_ROBIN:
                return 0
            case Mode.STICKY:
                return count - 1

    def _next_in_stretch(self) -> None:
        self._stretch -= 1
        if self._stretch < 0:
            self._stretch = int(self._source.random() * _STRETCH_MAX)
            self._mode = self._source.choice(_MODES)


_MODES = tuple(Mode)
