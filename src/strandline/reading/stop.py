"""How several workers stop together: nobody gives up times that another still owes. Pure.

    phase       a worker that pressed                    a worker that did not
    ---------   --------------------------------------   ---------------------
    running     -                                        works
    pressed     takes nothing new, keeps what it holds   works
    stopping    drains, then lets go                     -

Rules:

    T1  as long as one worker has not pressed, nobody drains and nobody lets go
    T2  pressing twice is pressing once; a press is never taken back
    T3  when all have pressed, all may drain and let go at once, in any order
"""

from __future__ import annotations

from strandline.errors import invariant


class Stop:
    """The buttons of the workers of one reader."""

    def __init__(self, workers: int) -> None:
        invariant(workers > 0, "a reader has at least one worker")
        self._pressed = [False] * workers

    @property
    def workers(self) -> int:
        return len(self._pressed)

    def press(self, worker: int) -> None:
        self._pressed[worker] = True

    def press_all(self) -> None:
        for worker in range(self.workers):
            self.press(worker)

    def pressed(self, worker: int) -> bool:
        return self._pressed[worker]

    @property
    def all_pressed(self) -> bool:
        return all(self._pressed)

    def may_take(self, worker: int) -> bool:
        """Whether the worker may be given something new."""
        return not self._pressed[worker]

    def may_let_go(self, worker: int) -> bool:
        """Whether the worker may drain its input and give up what it holds."""
        return self._pressed[worker] and self.all_pressed

    def missing(self) -> tuple[int, ...]:
        """Who has not pressed yet."""
        return tuple(w for w, pressed in enumerate(self._pressed) if not pressed)
