"""Replicas of one ingest in a simulated store, and the plain dict that they are compared with.

script = Script()
one = Replica(place.open("one"), script)
script.give((5, "k0", 1, "a"), frontier=11)
place.sim.run_until(lambda: one.upper == 11)
one.check()                               # not restarted, and as the dict says at every time
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from strandline.handles.write import Writer
from strandline.ingest.feed import Polled, Want
from strandline.ingest.health import Health
from strandline.ingest.upserter import Options, Upserter
from strandline.model.frontier import Frontier
from strandline.store.memory import MemoryBlob

from .conftest import Place, Process

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.string())])
COMMANDS = pa.schema(
    [*COLUMNS, ("_time", pa.int64()), ("_delete", pa.bool_()), ("_order0", pa.int64())]
)

Command = tuple[int, str, int, str | None]
"""Time, key, order, value; no value deletes."""


class Script:
    """One stream of commands, in the order in which they arrive, and how far it is complete."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.frontier = 0

    def give(self, *commands: Command, frontier: int | None = None) -> None:
        self.commands += commands
        self.frontier = self.frontier if frontier is None else frontier

    def content(self, time: int) -> dict[str, str]:
        """What each key holds at a time: commands one by one, by time and order."""
        rows: dict[str, str] = {}
        for at, key, _, value in sorted(self.commands, key=lambda each: (each[0], each[2])):
            if at <= time:
                rows.pop(key, None)
                if value is not None:
                    rows[key] = value
        return rows


def table(commands: list[Command]) -> pa.Table:
    rows = [
        {"k": key, "v": value, "_time": time, "_delete": value is None, "_order0": order}
        for time, key, order, value in commands
    ]
    return pa.Table.from_pylist(rows, schema=COMMANDS)


class ScriptFeed:
    """The script as one replica reads it: no further than its pace allows."""

    def __init__(self, script: Script, pace: Callable[[], int] | None = None) -> None:
        self.script = script
        self.pace = pace or (lambda: len(script.commands))
        self.wants: list[Want] = []
        self._given = 0

    def poll(self, want: Want) -> Polled:
        self.wants.append(want)
        stop = max(self._given, min(self.pace(), len(self.script.commands)))
        found = self.script.commands[self._given : stop]
        self._given = stop
        left = [time for time, *_ in self.script.commands[stop:]]
        frontier = Frontier(min([self.script.frontier, *left]))
        return Polled(table(found) if found else None, frontier)

    def close(self) -> None:
        """Nothing is held."""


class Replica:
    """One process with an ingest that runs until the test ends."""

    def __init__(
        self, process: Process, script: Script, *, feed: object = None, **options: object
    ) -> None:
        self.process = process
        self.script = script
        self.feed = feed or ScriptFeed(script)
        settings = {"pause_ms": 10, "spill": MemoryBlob(), **options}

        def build() -> Upserter:
            shard = process.store.shard("t", COLUMNS, ["k"])
            return Upserter(process.store, shard, self.feed, Options(**settings))

        self.upserter = process.call(build)
        self.task = process.node.start("ingest", self.upserter.run, expect=(Exception,))

    @property
    def upper(self) -> int | None:
        """How far it has come, as it saw last."""
        return self.upserter.upper.time

    @property
    def health(self) -> Health:
        return self.upserter.status().health

    def count(self, name: str) -> float:
        return self.process.metrics.value(name, "t")

    def rows(self, time: int) -> dict[str, str]:
        found = self.process.call(lambda: self.upserter.table.shard.snapshot(time).to_arrow())
        assert found.num_rows == len(set(found.column("k").to_pylist())), "a key is there twice"
        return dict(zip(*(found.column(name).to_pylist() for name in ("k", "v")), strict=True))

    def updates(self, after: int, last: int) -> list[tuple[int, str, str, int]]:
        """(time, key, value, diff) of every update in `(after, last]`."""

        def read() -> list[tuple[int, str, str, int]]:
            with self.upserter.table.shard.listen(after, until=last + 1) as subscription:
                found = [event.rows for event in subscription if hasattr(event, "rows")]
            return sorted(
                (row["_time"], row["k"], row["v"], row["_diff"])
                for rows in found
                for row in rows.to_pylist()
            )

        return self.process.call(read)

    def check(self, *, start: int = 0) -> None:
        """S35: it was never started again; and at every time it says what the dict says."""
        status = self.upserter.status()
        assert status.restarts == 0
        assert status.health is Health.RUNNING, str(status)
        assert self.upper is not None
        for time in range(start, self.upper):
            assert self.rows(time) == self.script.content(time), f"at {time}"


def peer(process: Process) -> Writer:
    """A writer beside all ingests, for a peer whose every move the test decides."""
    return process.call(lambda: process.store.shard("t", COLUMNS, ["k"]).writer("a peer"))


def settle(
    process: Process, writer: Writer, rows: list[dict[str, object]], interval: range
) -> None:
    """The peer settles an interval with these updates, in one go."""
    assert settled(process, writer, rows, interval) == Frontier(interval.stop)


def settled(
    process: Process, writer: Writer, rows: list[dict[str, object]], interval: range
) -> Frontier:
    """The same where somebody else may do so first: the upper after it."""
    schema = pa.schema([*COLUMNS, ("_time", pa.int64()), ("_diff", pa.int64())])
    updates = pa.Table.from_pylist(rows, schema=schema)
    outcome = process.call(
        lambda: writer.compare_and_append(updates, lower=interval.start, upper=interval.stop)
    )
    return outcome.upper


def row(time: int, key: str, value: str, diff: int = 1) -> dict[str, object]:
    return {"k": key, "v": value, "_time": time, "_diff": diff}


def opened(place: Place, *names: str) -> list[Process]:
    return [place.open(name) for name in names]
