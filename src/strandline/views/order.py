"""Views in an order in which each comes after what it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def in_order(reads: Mapping[str, tuple[str, ...]]) -> tuple[list[str], list[str]]:
    """Names so that each comes after what it reads, and those that wait for each other in vain.

    Among those that could come next the first by name does, so the order of declaration has no
    meaning. What is read and not among the names counts as there.

    >>> in_order({"b": ("a",), "a": (), "c": ("d",), "d": ("c",)})
    (['a', 'b'], ['c', 'd'])
    """
    placed: list[str] = []
    waiting = dict(sorted(reads.items()))
    while waiting:
        ready = next(
            (name for name, needs in waiting.items() if not any(each in waiting for each in needs)),
            None,
        )
        if ready is None:
            return placed, list(waiting)
        placed.append(ready)
        del waiting[ready]
    return placed, []


def cycle_of(names: list[str], reads: Mapping[str, tuple[str, ...]]) -> list[str]:
    """One round trip among names that all wait for each other, its first name again at the end.

    >>> cycle_of(["c", "d", "e"], {"c": ("d",), "d": ("c",), "e": ("d",)})
    ['c', 'd', 'c']
    """
    path = [names[0]]
    while True:
        following = next(each for each in reads[path[-1]] if each in names)
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
