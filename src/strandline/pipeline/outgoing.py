"""The changes of one collection as its sink takes them: whole transactions, in order of time.

A sink that has everything up to `after` gets what comes later, each time once, settled and
consolidated. A sink that has nothing yet begins with the whole content as of the oldest time that
can be read, which is one transaction at that time.

While a view's query raises, its error collection has rows, and the view can't be read at those
times: its sink waits, and what changed meanwhile comes with the first time at which all is well.
What is held in memory is what was listed and not yet delivered: a transaction's changes, and
while catching up about one fetch budget of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from strandline.connectors.sink import BATCH_ROWS, NOTHING_YET
from strandline.errors import SinceError, SinkStoppedError
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import consolidate
from strandline.reading.events import Progress, Updates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from strandline.handles.shard import Shard
    from strandline.model.frontier import Time
    from strandline.reading.subscribe import Subscription


@dataclass(frozen=True, slots=True)
class Transaction:
    """The changes at one time: the columns and `_diff`, at least one row."""

    t: Time
    before: Time
    """The last transaction with changes before this one, as far as it was seen."""
    rows: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In pieces of bounded size."""
        yield from self.rows.to_batches(max_chunksize=BATCH_ROWS)


class Outgoing:
    """Follows a collection, and its error collection if it has one. Close it."""

    def __init__(
        self,
        shard: Shard,
        errors: Shard | None,
        after: Time,
        hold: str,
        columns: Sequence[str] | None = None,
    ) -> None:
        """`columns` are those that the sink knows: the collection may get more."""
        self._shards = [each for each in (shard, errors) if each is not None]
        self._hold = hold
        self.reached = after
        """Every transaction up to here was handed over, or has no changes."""
        self.raising = ""
        """Why the collection can't be read at the newest time that was seen; empty if it can."""
        self._before = after
        self._wrong: dict[str, int] = {}
        self._held: list[pa.Table] = []
        """What changed since the view can't be read."""
        self._follows: list[_Following] = []
        start = self._start(after)
        try:
            for each in self._shards:
                seen = columns if each is shard else None
                follow = _Following(each, start, seen, snapshot=after == NOTHING_YET)
                self._follows.append(follow)
        except BaseException:
            self.close()
            raise
        self._due: Iterator[Transaction] = iter(())

    def next(self, wait_ms: int) -> Transaction | None:
        """The next transaction with changes; `None` if there is none for now."""
        found = next(self._due, None)
        if found is None:
            self._due = self._settled(wait_ms)
            found = next(self._due, None)
        return found

    def delivered(self, t: Time) -> None:
        """The target has everything up to t: nobody has to keep what was before, durably."""
        for each in self._shards:
            each.hold(self._hold, t)

    def close(self) -> None:
        for each in self._follows:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, after: Time) -> Time:
        """Hold what is to be read before anything is read, and say from where on that is."""
        oldest = max(each.state().readable_from() for each in self._shards)
        if after == NOTHING_YET:
            holds = [each.state().holds.get(self._hold) for each in self._shards]
            after = max([oldest, *(hold.since for hold in holds if hold is not None)])
        elif oldest > after:
            raise SinkStoppedError(
                f"its target is at {after}, and {self._shards[0].name} can be read from {oldest} "
                "on: what was in between is merged; publish to a new target"
            )
        try:
            self.delivered(after)
        except SinceError:
            return self._start(NOTHING_YET if self.reached == NOTHING_YET else after)
        return after

    def _settled(self, wait_ms: int) -> Iterator[Transaction]:
        """All transactions up to the common frontier of what is followed."""
        for each in self._follows:
            wait_ms = 0 if each.poll(wait_ms) else wait_ms
        end = min(each.frontier for each in self._follows)
        rows = self._follows[0].taken(end)
        errors = self._follows[1].taken(end) if len(self._follows) > 1 else {}
        for t in sorted({*rows, *errors}):
            self._count(errors.get(t))
            self._held += [rows[t]] if t in rows else []
            if self._held and not self._wrong:
                held, self._held = pa.concat_tables(self._held), []
                whole = consolidate(held)
                if whole.num_rows:
                    found = Transaction(t, self._before, whole)
                    yield found
                    self._before = self.reached = t
            elif self._wrong:
                self._held = [consolidate(pa.concat_tables(self._held))] if self._held else []
        self.raising = next(iter(self._wrong), "")
        if not self._wrong:
            self.reached = max(self.reached, end - 1)

    def _count(self, errors: pa.Table | None) -> None:
        """Keep the errors that there are; the text of one is told."""
        for row in [] if errors is None else errors.to_pylist():
            diff = row.pop(DIFF_COLUMN)
            text = ", ".join(f"{value}" for value in row.values())
            self._wrong[text] = self._wrong.get(text, 0) + diff
        self._wrong = {text: count for text, count in self._wrong.items() if count}


class _Following:
    """One subscription, its updates by time."""

    def __init__(
        self, shard: Shard, start: Time, columns: Sequence[str] | None, *, snapshot: bool
    ) -> None:
        self._subscription: Subscription = shard.subscribe(
            start, snapshot=snapshot, columns=columns
        )
        self.frontier = start if snapshot else start + 1
        """Every time before it has arrived."""
        self._tables: list[pa.Table] = []

    def poll(self, wait_ms: int) -> bool:
        """Take what there is; whether the frontier moved. Waits for the first of it only."""
        moved = False
        while (event := self._subscription.poll(wait_ms)) is not None:
            wait_ms = 0
            if isinstance(event, Updates):
                self._tables.append(event.rows)
            elif isinstance(event, Progress):
                end = event.frontier.time
                moved = moved or (end is not None and end > self.frontier)
                self.frontier = max(self.frontier, self.frontier if end is None else end)
                return moved
        return moved

    def taken(self, end: Time) -> dict[Time, pa.Table]:
        """The updates before `end`, by time; they are no longer kept here."""
        if not self._tables:
            return {}
        whole = pa.concat_tables(self._tables)
        early = pc.less(whole[TIME_COLUMN], end)
        rest = whole.filter(pc.invert(early))
        self._tables = [rest] if rest.num_rows else []
        whole = whole.filter(early)
        times = pc.unique(whole[TIME_COLUMN]).to_pylist()
        return {
            t: whole.filter(pc.equal(whole[TIME_COLUMN], t)).drop_columns([TIME_COLUMN])
            for t in times
        }

    def close(self) -> None:
        self._subscription.close()
