"""Which steps of a frontier are worth telling: every one, except while catching up. Pure.

A reader that starts far behind would report thousands of steps that nobody waits for. Until the
upper that was seen at the start is reached, a step is told only once `budget` bytes of rows were
given out since the last one; from then on, every step is told. Rows are never held back, and a
step that is left out is contained in the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier


class Coalescer:
    """The steps of one reader.

    >>> from strandline.model.frontier import Frontier
    >>> steps = Coalescer(Frontier(0), target=Frontier(3), budget=100)
    >>> steps.step(Frontier(1)), steps.step(Frontier(3)), steps.step(Frontier(4))
    (None, Frontier(time=3), Frontier(time=4))
    """

    def __init__(self, start: Frontier, *, target: Frontier, budget: int) -> None:
        self._told = start
        self._target = target
        self._budget = budget
        self._bytes = 0

    @property
    def told(self) -> Frontier:
        """The last step that was told."""
        return self._told

    def emitted(self, size: int) -> None:
        """This many bytes of rows were given out."""
        self._bytes += size

    def step(self, frontier: Frontier, *, final: bool = False) -> Frontier | None:
        """The step to tell now that the frontier is here, if any.

        A `final` step is told in any case: the frontier will stay there.
        """
        if frontier <= self._told:
            return None
        catching_up = self._told < self._target and frontier < self._target
        if catching_up and self._bytes < self._budget and not final:
            return None
        self._told = frontier
        self._bytes = 0
        return frontier
