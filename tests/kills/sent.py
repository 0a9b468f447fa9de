"""What a run published, and the judge of it.

What must be there is told by the shard: its changes at every time up to the last that was
published. They are read without anything of the publisher's own (`Outgoing`, `Pending`), and must
add up to the snapshot, which is read another way: what feeds the sink can't excuse its losses.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa

from strandline.handles.shard import Shard
from strandline.reading.events import Updates

Change = tuple[str, int]
"""A row as text, and its diff."""
Rows = Counter[str]
"""Rows as text, each with the sum of its diffs."""


@dataclass(slots=True)
class Sent:
    """What a run did, and what was wrong."""

    messages: int = 0
    transactions: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    losses: int = 0
    reorderings: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @property
    def hard(self) -> int:
        """How often something was killed; to be stopped for a while is not that."""
        return sum(count for kind, count in self.kills.items() if kind.startswith("kill"))

    def facts(self) -> dict[str, float]:
        """All of it, in the order in which people want to see it."""
        return {
            "messages": self.messages,
            "transactions": self.transactions,
            **{f"  {kind}": count for kind, count in sorted(self.kills.items())},
            "duplicates": self.duplicates,
            "losses": self.losses,
            "reorderings": self.reorderings,
            "seconds": round(self.seconds, 1),
            "violations": len(self.wrong),
        }

    def judge(self, shard: Shard, found: dict[int, Counter[Change]]) -> None:
        """Hold what was published, by time, against the shard."""
        self.transactions = len(found)
        if not found:
            return
        upto = max(found)
        changes = changes_of(shard, upto)
        if summed(changes) != rows_of(shard, upto):
            self.wrong.append(f"what the judge read up to {upto} is not what the shard holds then")
        self._compare(found, changes)

    def _compare(self, found: dict[int, Counter[Change]], changes: dict[int, Rows]) -> None:
        for t in sorted({*found, *changes}):
            expected = Counter(list(changes.get(t, Rows()).items()))
            there = found.get(t, Counter())
            lost, extra = expected - there, there - expected
            self.losses += lost.total()
            self.duplicates += extra.total()
            if not expected:
                self.wrong.append(f"{t} was published and has no changes")
            elif lost or extra:
                self.wrong.append(
                    f"{t} lacks {lost.total()} and has {extra.total()} too many of "
                    f"{expected.total()}: {[*lost, *extra][:3]}"
                )


def changes_of(shard: Shard, upto: int) -> dict[int, Rows]:
    """The changes at every time that has some, the first of them with all that was there."""
    found: dict[int, Rows] = {}
    with shard.subscribe(shard.state().readable_from(), until=upto + 1) as subscription:
        for event in subscription:
            if isinstance(event, Updates):
                plain = event.rows.drop_columns(["_time", "_diff"])
                diffs, times = event.diffs.tolist(), event.times.tolist()
                for text, t, diff in zip(texts(plain), times, diffs, strict=True):
                    found.setdefault(t, Rows())[text] += diff
    return {t: rows for t, each in found.items() if (rows := without_zeros(each))}


def rows_of(shard: Shard, t: int) -> Rows:
    with shard.snapshot(as_of=t) as snapshot:
        return Rows(texts(snapshot.to_arrow()))


def summed(changes: dict[int, Rows]) -> Rows:
    total = Rows()
    for each in changes.values():
        total.update(each)
    return without_zeros(total)


def without_zeros(rows: Rows) -> Rows:
    return Rows({text: count for text, count in rows.items() if count})


def texts(rows: pa.Table) -> list[str]:
    return [json.dumps(row, sort_keys=True) for row in rows.to_pylist()]
