"""A clock around functions of ours: how much of a time goes into some of its steps."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Clocked:
    """Functions with a clock around them, by the name of what they are part of.

    A call inside of another one that is clocked counts for the outer one alone, so that the
    seconds of all names may be added up. Use it with `with`, in one thread.
    """

    def __init__(self, places: Mapping[str, Sequence[tuple[object, str]]]) -> None:
        self.seconds = dict.fromkeys(places, 0.0)
        self._real = [
            (name, owner, attribute, getattr(owner, attribute))
            for name, calls in places.items()
            for owner, attribute in calls
        ]
        self._inside = False

    def __enter__(self) -> Self:
        for name, owner, attribute, call in self._real:
            setattr(owner, attribute, self._around(name, call))
        return self

    def __exit__(self, *_: object) -> None:
        for _, owner, attribute, call in self._real:
            setattr(owner, attribute, call)

    def reset(self) -> None:
        self.seconds = dict.fromkeys(self.seconds, 0.0)

    def _around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*args: object, **named: object) -> Any:  # noqa: ANN401 - whatever it gives
            if self._inside:
                return call(*args, **named)
            self._inside = True
            begin = time.perf_counter()
            try:
                return call(*args, **named)
            finally:
                self.seconds[name] += time.perf_counter() - begin
                self._inside = False

        return clocked
