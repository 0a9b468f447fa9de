"""Roles that upsert one stream of commands together, and what must come of it.

The stream follows from the seed alone, so every replica can read it again after a crash, and the
judge knows it too. What time each offset got is taken from the binding shard as it was committed;
the rest is a dict that goes through times and offsets one by one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import LeaseLostError, ReplicaDivergedError, SinceError, StoreError
from strandline.ingest.bindings import Bindings
from strandline.ingest.feed import BoundFeed
from strandline.ingest.health import Health
from strandline.ingest.upserter import Options, Upserter
from strandline.store.memory import MemoryBlob
from strandline.testing.checkers import HistoryError
from strandline.testing.streams import stream

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from strandline.handles.shard import Shard
    from strandline.ingest.timetable import Position, Taken
    from strandline.testing.roles import Role
    from strandline.testing.world import Host, World

TABLE, BINDINGS, ERRORS = "t", "t_bindings", "t_errors"
COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
RAW = pa.schema(
    [
        *COLUMNS,
        ("_delete", pa.bool_()),
        ("_error", pa.string()),
        ("_partition", pa.string()),
        ("_offset", pa.int64()),
    ]
)
_PATIENCE_MS = 45_000
"""How long a replica may need in times of peace."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of the stream."""

    due_ms: float
    """From when on the source offers it, in simulation time."""
    partition: str
    offset: int
    key: int | None
    value: str | None
    """`None` deletes."""
    error: str | None = None

    def row(self) -> dict[str, object]:
        return {
            "k": self.key,
            "v": self.value,
            "_delete": self.value is None and self.error is None,
            "_error": self.error,
            "_partition": self.partition,
            "_offset": self.offset,
        }


@dataclass(frozen=True, slots=True)
class Topic:
    """A stream of commands in a few partitions."""

    entries: tuple[Entry, ...]

    @classmethod
    def from_seed(cls, seed: int, *, lasts_ms: float) -> Topic:
        """Few keys, so that commands meet; bursts, deletions, and some that are no rows."""
        chance = stream(seed, "topic")
        partitions = chance.randrange(1, 4)
        keys = chance.choice((1, 3, 8))
        dues = sorted(chance.choice((1.0, 0.2)) * chance.uniform(0, lasts_ms) for _ in range(60))
        offsets: Counter[str] = Counter()
        found = []
        for number, due_ms in enumerate(dues[: chance.randrange(5, 61)]):
            partition = str(chance.randrange(partitions))
            key: int | None = chance.randrange(keys)
            value, error = f"v{number % 7}", None
            kind = chance.random()
            if kind < 0.2:
                value = None  # type: ignore[assignment]  # a deletion
            elif kind < 0.3:
                value, error = None, f"no number: {number}"  # type: ignore[assignment]
            elif kind < 0.35:
                key = None
            found.append(Entry(due_ms, partition, offsets[partition], key, value, error))
            offsets[partition] += 1
        return cls(tuple(found))

    def ends(self, now_ms: float | None = None) -> Position:
        """Up to where each partition can be read by then."""
        due = [each for each in self.entries if now_ms is None or each.due_ms <= now_ms]
        return dict(Counter(each.partition for each in due))

    def read(self, taken: Taken) -> pa.Table:
        rows = [
            each.row()
            for each in self.entries
            if each.partition in taken
            and taken[each.partition][0] <= each.offset < taken[each.partition][1]
        ]
        return pa.Table.from_pylist(rows, schema=RAW)


class TopicTap:
    """The stream as one process reads it, in an order that is its own."""

    def __init__(self, process: Host, topic: Topic, *, wrong: bool = False) -> None:
        self._process = process
        self._topic = topic
        self._wrong = wrong

    def latest(self) -> Position:
        self._process.node.tasks.sleep(self._process.random.uniform(0, 5))
        return self._topic.ends(self._process.world.sim.elapsed_ms())

    def read(self, taken: Taken) -> pa.Table:
        rows = self._topic.read(taken).to_pylist()
        self._process.random.shuffle(rows)
        if self._wrong:
            rows = [{**row, "v": f"{row['v']}!"} for row in rows]
        return pa.Table.from_pylist(rows, schema=RAW)

    def close(self) -> None:
        """Nothing is held."""


def upserting(topic: Topic, *, read_only: bool = False, wrong: bool = False) -> Role:
    """A replica that follows the stream to its end, and never needs to be started again."""

    def run(process: Host) -> None:
        table, bindings = _opened(process)
        tap = TopicTap(process, topic, wrong=wrong)
        rows_max = process.random.choice((1, 4, 1_000))
        feed = BoundFeed(tap, bindings, name=TABLE, rows_max=rows_max)
        options = Options(
            errors=ERRORS,
            read_only=read_only,
            audits=process.random.random() < 0.3,
            limit_bytes=process.random.choice((1, 200, 1_000_000)),
            memory_bytes=process.random.choice((1, 300, 1_000_000)),
            pause_ms=20,
            spill=MemoryBlob(),
        )
        upserter = _upserter(process, table, feed, options)
        process.node.tasks.start("ending", lambda: _end(process, upserter, bindings, topic))
        try:
            status = upserter.run()
        except ReplicaDivergedError:
            process.world.sim.sometimes("a replica diverged")
            if not wrong:
                raise
            return
        _check_ended(process, upserter, status.restarts, wrong=wrong)

    return run


def _check_ended(process: Host, upserter: Upserter, restarts: int, *, wrong: bool) -> None:
    metrics = process.store.env.metrics
    if restarts:
        raise HistoryError(f"{process.name} was started again {restarts} times")
    unseen = sum(metrics.value("ingest_unverified", name) for name in (TABLE, ERRORS))
    if wrong and upserter.upper.time and _committed(process.world, TABLE) and not unseen:
        raise HistoryError(f"{process.name} computed something else and was not told")
    for name in ("ingest_lost", "ingest_won", "ingest_dropped", "ingest_spilled_bytes"):
        if metrics.value(name, TABLE):
            process.world.sim.sometimes(name)


def _opened(process: Host) -> tuple[Shard, Bindings]:
    while True:
        try:
            table = process.store.shard(TABLE, COLUMNS, ("k",))
            by_clock = stream(process.world.sim.seed, "times").random() < 0.5
            times: Literal["next", "clock"] = "clock" if by_clock else "next"
            return table, Bindings(process.store, BINDINGS, times=times)
        except StoreError:
            process.sleep(100)


def _upserter(process: Host, table: Shard, feed: BoundFeed, options: Options) -> Upserter:
    while True:
        try:
            return Upserter(process.store, table, feed, options)
        except StoreError:
            process.sleep(100)


def _end(process: Host, upserter: Upserter, bindings: Bindings, topic: Topic) -> None:
    """Stop it once peace has come and everything is settled; that must not take long."""
    begin: float | None = None
    while True:
        process.node.tasks.sleep(50)
        status = upserter.status()
        if status.health not in (Health.RUNNING, Health.STALLED):
            return
        if process.running():
            continue
        now = process.world.sim.elapsed_ms()
        begin = now if begin is None else begin
        everything = not bindings.known.beyond(topic.ends())
        if everything and bindings.known.upper <= upserter.upper:
            upserter.stop()
            return
        if now - begin > _PATIENCE_MS:
            raise HistoryError(f"{process.name} does not get on: {status}")


def keeper() -> Role:
    """Merges and collects what the replicas write, as eagerly as it may."""

    def run(process: Host) -> None:
        table, bindings = _opened(process)
        bindings.close()
        while process.running():
            process.sleep(200)
            try:
                for name in (TABLE, BINDINGS):
                    shard = process.store.shard(name)
                    shard.retain("2 versions")
                    process.store.upkeep.run_once(shard.machine)
            except (StoreError, LeaseLostError, SinceError):
                continue
        table.state()

    return run


# ---- what must come of it


def judge(world: World, topic: Topic) -> None:
    """Raise unless both collections are what the stream says, at every time."""
    bound = sorted(_bindings(world))
    for end in topic.ends().items():
        if end not in {(partition, stop) for _, partition, stop in bound}:
            raise HistoryError(f"offsets of {end[0]} up to {end[1]} were never bound")
    timed = [(_time_of(each, bound), each) for each in topic.entries]
    rows: dict[object, str] = {}
    wrong: dict[object, str] = {}
    table, errors = _committed(world, TABLE), _committed(world, ERRORS)
    for time in sorted({time for time, _, _ in bound}):
        mine = [each for at, each in timed if at == time]
        for each in sorted(mine, key=lambda each: (each.partition, each.offset)):
            apply(each, rows, wrong)
        for name, updates, expected in ((TABLE, table, rows), (ERRORS, errors, wrong)):
            _compare(name, time, updates, expected)
    last = max((time for time, _, _ in bound), default=-1)
    for name in (TABLE, ERRORS):
        if not world.observer.states[name].upper.settled(last):
            raise HistoryError(f"{name} was not settled up to {last}, where its input ends")


def apply(entry: Entry, rows: dict[object, str], wrong: dict[object, str]) -> None:
    """What one command makes of the table and of its errors, both as texts of rows."""
    at = f"{entry.partition},{entry.offset}"
    if entry.key is None:
        error = entry.error or "a column of the key is null"
        wrong[f"null key at {at}"] = f"key=null key at {at} error={error} at={at}"
    elif entry.error is not None:
        wrong[entry.key] = f"key={entry.key} error={entry.error} at={at}"
    else:
        wrong.pop(entry.key, None)
        rows.pop(entry.key, None)
        if entry.value is not None:
            rows[entry.key] = f"k={entry.key} v={entry.value}"


def _bindings(world: World) -> Iterable[tuple[int, str, int]]:
    for row, time, diff in _committed(world, BINDINGS):
        if diff > 0:
            partition, bound = (word.partition("=")[2] for word in row.split())
            yield time, partition, int(bound)


def _committed(world: World, name: str) -> list[tuple[str, int, int]]:
    return [u for each in world.history.committed if each.shard == name for u in each.updates]


def _time_of(entry: Entry, bound: list[tuple[int, str, int]]) -> int:
    return next(t for t, p, stop in bound if p == entry.partition and stop > entry.offset)


def _compare(
    name: str, time: int, updates: list[tuple[str, int, int]], expected: dict[object, str]
) -> None:
    found: Counter[str] = Counter()
    for row, at, diff in updates:
        if at <= time:
            found[row] += diff
    actual = {row: count for row, count in found.items() if count}
    if actual != dict(Counter(expected.values())):
        raise HistoryError(
            f"{name} at {time} holds {sorted(actual.items())}, not {sorted(expected.values())}"
        )
