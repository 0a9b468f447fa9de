"""Backoff as a plain value: how long to wait before trying again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.model.clock import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow from `first_ms` by `factor` up to `cap_ms`, each spread at random.

    A wait lies in `[(1 - spread) * w, (1 + spread) * w]` with
    `w = min(cap_ms, first_ms * factor ** attempt)`, so that callers that failed together do
    not come back together. How often to try is the caller's decision, not this value's.

    >>> [Backoff(first_ms=10, factor=2, cap_ms=50).middle(attempt) for attempt in range(4)]
    [10.0, 20.0, 40.0, 50.0]
    """

    first_ms: float
    factor: float
    cap_ms: float
    spread: float = 0.5

    def __post_init__(self) -> None:
        if not (0 < self.first_ms <= self.cap_ms and self.factor >= 1 and 0 <= self.spread <= 1):
            raise ValueError(f"not a backoff: {self}")

    def middle(self, attempt: int) -> float:
        """The wait after this many earlier attempts, in milliseconds, before it is spread."""
        # The power is taken only where it stays below the cap: a large one overflows.
        if attempt * math.log(self.factor) >= math.log(self.cap_ms / self.first_ms):
            return float(self.cap_ms)
        return self.first_ms * float(self.factor**attempt)

    def delay(self, attempt: int, uniform: Callable[[float, float], float]) -> float:
        """The wait after this many earlier attempts, in milliseconds, spread by `uniform`."""
        middle = self.middle(attempt)
        return uniform(middle * (1 - self.spread), middle * (1 + self.spread))

    def delays(self, random: Random) -> Iterator[float]:
        """All waits in turn, without end."""
        return (self.delay(attempt, random.uniform) for attempt in count())
