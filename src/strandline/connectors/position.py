"""How far a source was taken, and the ranges that were taken from it.

    connector  partition                   offsets
    ---------  --------------------------  -----------------------------------------
    kafka      "0", "1", …                 of records
               "topic"                     none; empty at a number that stands for its id
    files      path below the folder, "@"  of bytes; a file is taken whole, and once
               and a hash of the content
    generator  "0"                         of rows
    shard      "t"                         times
    push       "staged"                    of rows

Ranges are half-open, so an empty one resumes where it is: [6, 6) at 6, [0, 0) at 0 (S77).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import BoundsError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

Position = dict[str, int]
"""The next offset of each partition; one that is missing was not begun."""


class Range(msgspec.Struct, frozen=True):
    """What is taken from a source at once: `[start, stop)` of each partition.

    >>> taken = Range({"0": (3, 5), "1": (6, 6)})
    >>> taken.rows, taken.after({"0": 3, "2": 9})
    (2, {'0': 5, '2': 9, '1': 6})
    """

    parts: dict[str, tuple[int, int]]

    def __post_init__(self) -> None:
        for partition, (start, stop) in self.parts.items():
            if not 0 <= start <= stop:
                raise BoundsError(
                    f"partition {printable(partition)} can't be taken from {start} to {stop}"
                )

    @property
    def rows(self) -> int:
        """How many offsets there are: rows at most, as some sources have gaps."""
        return sum(stop - start for start, stop in self.parts.values())

    @property
    def empty(self) -> bool:
        return self.rows == 0

    def follows(self, position: Mapping[str, int]) -> bool:
        """Whether it begins where `position` ends, in every partition that had begun."""
        return all(
            position.get(partition, start) == start for partition, (start, _) in self.parts.items()
        )

    def after(self, position: Mapping[str, int]) -> Position:
        """The position once this range is taken, too."""
        if not self.follows(position):
            broken = min(
                partition
                for partition, (start, _) in self.parts.items()
                if position.get(partition, start) != start
            )
            raise BoundsError(
                f"partition {printable(broken)} was taken up to {position[broken]}, so it can't "
                f"go on at {self.parts[broken][0]}"
            )
        return {**position, **{each: stop for each, (_, stop) in self.parts.items()}}

    def filled(self) -> Range:
        """The same without partitions of which nothing is taken."""
        return Range({each: span for each, span in self.parts.items() if span[0] < span[1]})
