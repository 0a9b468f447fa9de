"""Calls that are recorded: what a client of a shard did, and what it was told.

    error of an append                               recorded as
    ----------------------------------------------   -----------
    the process died, `MaybeAppliedError`            UNKNOWN
    `UpperMismatch`                                  MISMATCH
    any other error of ours                          REFUSED: it says that nothing happened

Rows are unique: each has an id that no other append uses, so whatever is read can be traced to
the append that wrote it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import MaybeAppliedError
from strandline.handles.write import Appended
from strandline.shard.command import Repeated, UpperMismatch
from strandline.testing.checkers import HistoryError
from strandline.testing.history import NO_TIME, Append, Read, Result, Seen, Stream
from strandline.testing.observer import number, row_text, update_list
from strandline.testing.task import SimulatedCrash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.handles.shard import Shard
    from strandline.handles.write import Writer
    from strandline.model.frontier import Frontier
    from strandline.reading.snapshot import Snapshot
    from strandline.testing.history import Update
    from strandline.testing.world import Host, World

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string()), ("x", pa.float64())])
WIDER = pa.schema([*SCHEMA, ("note", pa.string())])
_LATER_MS = 3_000
_UNDECIDED = (MaybeAppliedError, SimulatedCrash)


class Client:
    """One process as a user of the store, with everything it does written down."""

    def __init__(self, process: Host) -> None:
        self.process = process
        self.world: World = process.world
        self.random = process.random
        self.by = process.name

    # Rows.

    def fresh(self, count: int, *, lower: int = NO_TIME, upper: int = 0) -> list[dict[str, object]]:
        """Rows that nobody else has, at random times of `[lower, upper)` if there are any."""
        found: list[dict[str, object]] = []
        for _ in range(count):
            self.world.rows += 1
            row: dict[str, object] = {
                "id": self.world.rows,
                "value": self.random.choice(("red", "green", "blue", None)),
                "x": self.random.choice((None, float("nan"), self.random.random())),
                "_diff": self.random.choice((1, 1, 1, 2)),
            }
            if lower != NO_TIME:
                row["_time"] = self.random.randrange(lower, upper)
            found.append(row)
        return found

    def table(self, shard: Shard, rows: Sequence[dict[str, object]]) -> pa.Table:
        """The rows under the schema that this process knows."""
        own = [(name, pa.int64()) for name in ("_time", "_diff") if rows and name in rows[0]]
        return pa.Table.from_pylist(list(rows), schema=pa.schema([*shard.schema, *own]))

    # Appends.

    def append_batch(
        self, writer: Writer, shard: Shard, rows: list[dict[str, object]], txn: tuple[str, int]
    ) -> Appended | Repeated:
        """Append a batch of an application."""
        start = self.world.now_us()
        result = Result.REFUSED
        bounds: tuple[int | None, int | None] = (None, None)
        try:
            outcome = writer.append(self.table(shard, rows), txn=txn)
            result = Result.REPEATED if isinstance(outcome, Repeated) else Result.APPLIED
            if isinstance(outcome, Appended):
                bounds = (number(outcome.upper.time) - 1, number(outcome.upper.time))
        except _UNDECIDED:
            result = Result.UNKNOWN
            raise
        finally:
            updates = _at(rows, bounds[0])
            name = f"batch {txn[1]} of {txn[0]}"
            self._record(shard.name, start, result, bounds, updates, batch=name)
        return outcome

    def append(
        self, writer: Writer, shard: Shard, rows: list[dict[str, object]], label: str = ""
    ) -> int | None:
        """Append at the next time; the time it got, or `None`."""
        start = self.world.now_us()
        result, upper = Result.REFUSED, None
        try:
            upper = writer.append(self.table(shard, rows)).upper.time
            result = Result.APPLIED
        except _UNDECIDED:
            result = Result.UNKNOWN
            raise
        finally:
            lower = None if upper is None else upper - 1
            self._record(label or shard.name, start, result, (lower, upper), _at(rows, lower))
        return lower

    def compare_and_append(
        self, writer: Writer, shard: Shard, rows: list[dict[str, object]], bounds: tuple[int, int]
    ) -> bool:
        """Append at exactly these bounds; whether it counted."""
        start = self.world.now_us()
        result, seen = Result.REFUSED, None
        lower, upper = bounds
        try:
            outcome = writer.compare_and_append(self.table(shard, rows), lower=lower, upper=upper)
            result = Result.APPLIED
            if isinstance(outcome, UpperMismatch):
                result, seen = Result.MISMATCH, number(outcome.upper.time)
        except _UNDECIDED:
            result = Result.UNKNOWN
            raise
        finally:
            self._record(shard.name, start, result, bounds, _at(rows, lower), seen)
        return result is Result.APPLIED

    def commit(
        self, timeline: str, bounds: tuple[int, int], staged: dict[str, list[dict[str, object]]],
        call: Callable[[], object],
    ) -> None:  # fmt: skip
        """An owner's commit: what was staged becomes visible in all shards, or in none."""
        start = self.world.now_us()
        group = f"{timeline} {bounds[0]} by {self.by} at {start}"
        result = Result.REFUSED
        try:
            call()
            result = Result.APPLIED
        except _UNDECIDED:
            result = Result.UNKNOWN
            raise
        finally:
            self._record(f"timeline {timeline}", start, result, bounds, ())
            for shard, rows in staged.items():
                updates = _at(rows, bounds[0])
                self._record(shard, start, result, (bounds[0], bounds[0] + 1), updates, group=group)

    def abandon(self, staged: dict[str, list[dict[str, object]]], time: int) -> None:
        """What an owner staged and never committed must never be seen."""
        for shard, rows in staged.items():
            updates = _at(rows, time)
            self._record(shard, self.world.now_us(), Result.REFUSED, (time, time + 1), updates)

    # Reads.

    def read(self, shard: Shard, as_of: int | None, *, lag_ms: float = 0.0) -> Read:
        """A snapshot, read after a while."""
        start = self.world.now_us()
        with shard.snapshot(as_of, timeout_ms=_LATER_MS) as snapshot:
            self.process.sleep(lag_ms)
            content = self._content(snapshot)
            read = Read(shard.name, self.by, start, self.world.now_us(), snapshot.as_of, content)
        self.world.history.reads.append(read)
        return read

    def read_reborn(self, shard: Shard) -> None:
        """A snapshot of a shard that may be dropped at any moment, and come back as another."""
        before, start = shard.state().id, self.world.now_us()
        with shard.snapshot(timeout_ms=_LATER_MS) as snapshot:
            content = self._content(snapshot)
            as_of = snapshot.as_of
        if shard.state().id == before:
            label = self.world.observer.label_of(before)
            read = Read(label, self.by, start, self.world.now_us(), as_of, content)
            self.world.history.reads.append(read)

    def read_some(self, shard: Shard, read: Read) -> None:
        """A filtered read must give exactly the rows that match."""
        column = self.random.choice(("id", "id", "x"))
        bound = self.random.randrange(1, self.world.rows + 2) if column == "id" else 0.5
        op = self.random.choice((">=", "<=", "=", ">", "<"))
        with shard.snapshot(
            read.as_of, columns=["id"], filter=[(column, op, bound)], timeout_ms=_LATER_MS
        ) as snapshot:
            found = Counter(snapshot.to_arrow().column("id").to_pylist())
        expected: Counter[int] = Counter()
        for text, count in read.content.items():
            row = dict(cell.split("=") for cell in text.split())
            if column in row and _OPS[op](_sortable(row[column]), bound):
                expected[int(row["id"])] += count
        if found != expected:
            raise HistoryError(
                f"{shard.name} as of {read.as_of}, {column} {op} {bound}: "
                f"{dict(found - expected)} too many, {dict(expected - found)} missing"
            )

    def look(self, shard: Shard, what: str) -> int:
        """The upper or since of a shard."""
        start = self.world.now_us()
        frontier: Frontier = shard.upper if what == "upper" else shard.since
        value = number(frontier.time)
        seen = Seen(shard.name, self.by, what, start, self.world.now_us(), value)
        self.world.history.seen.append(seen)
        return value

    def stream(self, shard: Shard, as_of: int, *, snapshot: bool, until: int | None) -> Stream:
        found = Stream(shard.name, self.by, as_of, snapshot, until)
        self.world.history.streams.append(found)
        return found

    def _content(self, snapshot: Snapshot) -> Counter[str]:
        if self.random.random() < 0.5:
            return Counter(row_text(row) for row in snapshot.to_arrow().to_pylist())
        found: Counter[str] = Counter()
        for row, _, diff in update_list(snapshot.updates()):
            found[row] += diff
        return found

    def _record(  # noqa: PLR0913, PLR0917 - what an append is
        self,
        shard: str,
        start: int,
        result: Result,
        bounds: tuple[int | None, int | None],
        updates: tuple[Update, ...],
        seen: int | None = None,
        group: str = "",
        batch: str = "",
    ) -> None:  # fmt: skip
        now = self.world.now_us()
        self.world.sim.sometimes(result.name)
        self.world.history.appends.append(
            Append(shard, self.by, start, now, result, *bounds, updates, seen, group, batch)
        )


def _at(rows: list[dict[str, object]], lower: int | None) -> tuple[Update, ...]:
    """The rows as updates; those without a time are at `lower`."""
    otherwise = NO_TIME if lower is None else lower
    return tuple(
        (row_text(row), _whole(row.get("_time", otherwise)), _whole(row.get("_diff", 1)))
        for row in rows
    )


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _sortable(text: str) -> float:
    """NaN is greater than every number, as filters have it."""
    return float("inf") if text == "nan" else float(text)


_OPS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "=": lambda a, b: a == b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}
