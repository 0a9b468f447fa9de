"""What a shard must hold at each time, going by what its writers were told. Pure.

Appends that counted are in; those that did not are out; those of unknown fate are in or out as a
whole. So whatever a reader saw must be explained by the first kind and some of the third.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from strandline.testing.history import NO_TIME, Append, History, Result

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SHOWN = 4


class Oracle:
    """The updates of one shard, and which appends of unknown fate were seen."""

    def __init__(self, shard: str, appends: Iterable[Append]) -> None:
        self.shard = shard
        mine = [each for each in appends if each.shard == shard and each.updates]
        sure = [each for each in mine if each.result is Result.APPLIED]
        self._updates = sorted(
            (update for each in sure for update in each.updates), key=lambda update: update[1]
        )
        self._times = [time for _, time, _ in self._updates]
        self.unknown = [each for each in mine if each.result is Result.UNKNOWN]
        self._absent: defaultdict[int, int] = defaultdict(lambda: NO_TIME)
        self._present: dict[int, int] = {}

    def explain(self, content: Mapping[str, int], upto: int, *, after: int = NO_TIME) -> str:
        """Why the sum of all updates in `(after, upto]` can't be this; empty if it can."""
        rest = Counter(content)
        first, last = bisect_right(self._times, after), bisect_right(self._times, upto)
        for row, _, diff in self._updates[first:last]:
            rest[row] -= diff
        for number, call in enumerate(self.unknown):
            due = [u for u in call.updates if u[1] == NO_TIME or after < u[1] <= upto]
            inside = any(diff > 0 and rest[row] > 0 for row, _, diff in due)
            if inside:
                for row, _, diff in due:
                    rest[row] -= diff
            if due and after == NO_TIME:
                self._observe(number, upto, inside=inside)
        return _differences(rest)

    def contradictions(self) -> list[str]:
        """Appends of unknown fate that were in at one time and out at a later one."""
        return [
            f"{self.shard}: the append of {self.unknown[number].by} that started at "
            f"{self.unknown[number].start} is in as of {at} and out as of {self._absent[number]}"
            for number, at in self._present.items()
            if self._absent[number] >= at
        ]

    def presence(self, group: str) -> set[bool]:
        """Whether the unknown appends of a group were seen to be in, out, or both."""
        found: set[bool] = set()
        for number, call in enumerate(self.unknown):
            if call.group == group:
                found |= {True} if number in self._present else set()
                found |= {False} if self._absent[number] != NO_TIME else set()
        return found

    def _observe(self, number: int, as_of: int, *, inside: bool) -> None:
        if inside:
            self._present[number] = min(as_of, self._present.get(number, as_of))
        else:
            self._absent[number] = max(as_of, self._absent[number])


def oracles(history: History) -> dict[str, Oracle]:
    return {shard: Oracle(shard, history.appends) for shard in history.shards()}


def _differences(rest: Mapping[str, int]) -> str:
    wrong = sorted((row, count) for row, count in rest.items() if count)
    if not wrong:
        return ""
    shown = ", ".join(
        f"{row} is {'missing' if count < 0 else 'too many'} ({count:+d})"
        for row, count in wrong[:_SHOWN]
    )
    return shown + (f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else "")
