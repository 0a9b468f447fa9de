"""The changes of one collection as its sink takes them: whole transactions, in order of time.

A sink that has everything up to `after` gets what comes later, each time once, settled and
consolidated. A sink that has nothing yet begins with the whole content as of the oldest time that
can be read, which is one transaction at that time; one that replaces something may be empty.

While a view's query raises, its error collection has rows, and the view can't be read at those
times: its sink waits, and what changed meanwhile comes with the first time at which all is well.
A sink may ask for less: what changed within an interval then comes as one transaction, at its end.
What is held in memory is bounded (`pending`): the rest of a large transaction waits on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from strandline.connectors.sink import BATCH_ROWS, NOTHING_YET
from strandline.errors import SinceError, SinkStoppedError, StoreError, invariant
from strandline.ingest.spill import TemporarySpill
from strandline.model.ids import printable
from strandline.model.schema import DIFF_COLUMN
from strandline.pipeline.pending import Pending
from strandline.reading.events import Progress, Updates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    import pyarrow as pa

    from strandline.handles.shard import Shard
    from strandline.model.frontier import Time
    from strandline.reading.subscribe import Subscription


@dataclass(frozen=True, slots=True)
class Transaction:
    """The changes at one time: the columns and `_diff`, at least one row.

    There is none in a first one that replaces something by nothing.
    """

    t: Time
    before: Time
    """The last transaction with changes before this one, as far as it was seen."""
    pieces: Iterator[pa.Table]
    """They come once, and lazily."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In pieces of bounded size."""
        for each in self.pieces:
            yield from each.to_batches(max_chunksize=BATCH_ROWS)

    def drop(self) -> None:
        """It is not wanted: the target has it."""
        for _ in self.pieces:
            continue


@dataclass(frozen=True, slots=True)
class Wish:
    """How a sink wants its changes."""

    columns: pa.Schema | None = None
    """Those that it was told of, all if none are named: the collection may get more and wider."""
    key: Sequence[str] = ()
    """Changes of one key come next to each other."""
    every_ms: int = 0
    """Of one transaction to the next; what is in between comes together."""
    replaces: bool = False
    """Whether it has what an older lineage left: if it begins here, its first transaction comes
    even if the collection is empty, and nothing else would ever tell it so."""
    since: Time = 0
    """Before that the collection was not yet, or was another one: nothing begins there."""
    most: int = 0
    """So many come together, however long is left; 0: any number."""


class Outgoing:
    """Follows a collection, and its error collection if it has one. Close it."""

    def __init__(
        self, shard: Shard, errors: Shard | None, after: Time, hold: str, wish: Wish | None = None
    ) -> None:
        wish = wish or Wish()
        env = shard.machine.env
        self._shards = [each for each in (shard, errors) if each is not None]
        self._hold = hold
        self.reached = after
        """Every transaction up to here was handed over, or has no changes."""
        self.raising = ""
        """Why the collection can't be read at the newest time that was seen; empty if it can."""
        self.seen = after
        """That time."""
        self._before = after
        self._wrong: dict[str, int] = {}
        self._clock, self._every_ms, self._most = env.clock, wish.every_ms, wish.most
        self._rested_ms = env.clock.monotonic_ms() - wish.every_ms
        self._spill = TemporarySpill()
        self._follows: list[_Following] = []
        self.held = NOTHING_YET
        """What was before is not kept for it."""
        self._since = wish.since
        start = self._start(after)
        self._owed = start if wish.replaces and after == NOTHING_YET else None
        """When a first transaction is due, with rows or without."""
        try:
            for each in self._shards:
                mine = wish if each is shard else Wish()
                pending = Pending(self._spill.blob, env.random, mine.key)
                follow = _Following(each, start, mine, pending, snapshot=after == NOTHING_YET)
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
        self.held = max(self.held, t)

    def close(self) -> None:
        for each in self._follows:
            each.close()
        self._spill.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, after: Time) -> Time:
        """Hold what is to be read before anything is read, and say from where on that is."""
        oldest = max(each.state().readable_from() for each in self._shards)
        if after == NOTHING_YET:
            holds = [each.state().holds.get(self._hold) for each in self._shards]
            after = max([oldest, self._since, *(hold.since for hold in holds if hold is not None)])
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
        if self._resting() and not 0 < self._most <= end - 1 - self.reached:
            return
        rows, *errors = [each.pending for each in self._follows]
        for pending in (rows, *errors) if self._every_ms else ():
            # Of an interval only the end is seen: a query that raised in between does not matter.
            pending.merge(end - 1)
        times = {time for each in (rows, *errors) for time in each.times() if time < end}
        if self._owed is not None and self._owed < end:
            times.add(end - 1 if self._every_ms else self._owed)
        for t in sorted(times):
            self._count(pending.take(t) for pending in errors)
            if not self._wrong:
                yield from self._transaction(rows, t)
        self.raising, self.seen = next(iter(self._wrong), ""), end - 1
        if self._wrong:
            rows.merge(end - 1)
        else:
            self.reached = max(self.reached, end - 1)

    def _transaction(self, rows: Pending, t: Time) -> Iterator[Transaction]:
        """What changed up to t and was not handed over yet, if that is anything."""
        rows.merge(t)
        pieces = rows.take(t)
        first = next(pieces, None)
        if first is None and self._owed is None:
            return
        self._owed = None
        whole = iter(()) if first is None else chain((first,), pieces)
        yield Transaction(t, self._before, whole)
        invariant(next(whole, None) is None, f"all of transaction {t} was taken")
        self._before = self.reached = t
        self._rested_ms = self._clock.monotonic_ms()

    def _resting(self) -> bool:
        """Whether the last transaction of a sink that wants fewer was too short a time ago."""
        return self._clock.monotonic_ms() - self._rested_ms < self._every_ms

    def _count(self, errors: Iterator[Iterator[pa.Table]]) -> None:
        """Keep the errors that there are; the text of one is told."""
        for row in (row for pieces in errors for each in pieces for row in each.to_pylist()):
            diff = row.pop(DIFF_COLUMN)
            text = ", ".join(f"{value}" for value in row.values())
            self._wrong[text] = self._wrong.get(text, 0) + diff
        self._wrong = {text: count for text, count in self._wrong.items() if count}


class _Following:
    """One subscription, and its updates that are not handed over yet."""

    def __init__(
        self,
        shard: Shard,
        start: Time,
        wish: Wish,
        pending: Pending,
        *,
        snapshot: bool,
    ) -> None:
        self._name, self._columns = shard.name, wish.columns
        names = None if wish.columns is None else wish.columns.names
        self._subscription: Subscription = shard.subscribe(start, snapshot=snapshot, columns=names)
        self.frontier = start if snapshot else start + 1
        """Every time before it has arrived."""
        self.pending = pending

    def poll(self, wait_ms: int) -> bool:
        """Take what there is; whether the frontier moved. Waits for the first of it only."""
        moved = False
        while (event := self._subscription.poll(wait_ms)) is not None:
            wait_ms = 0
            if isinstance(event, Updates):
                self._check(event.rows.schema)
                self.pending.add(event.rows)
            elif isinstance(event, Progress):
                end = event.frontier.time
                moved = moved or (end is not None and end > self.frontier)
                self.frontier = max(self.frontier, self.frontier if end is None else end)
                return moved
        return moved

    def _check(self, have: pa.Schema) -> None:
        for each in self._columns or ():
            if have.field(each.name).type != each.type:
                raise StoreError(
                    f"column {printable(each.name)} of {self._name} is {have.field(each.name).type}"
                    f" by now, and was {each.type} when its sink was opened: it is opened again"
                )

    def close(self) -> None:
        self._subscription.close()
