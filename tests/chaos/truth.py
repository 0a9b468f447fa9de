"""What was settled in the store, from its first time on, seen by one reader that is never killed.

It subscribes to every shard before anything is written and so learns the time of every update
before history is merged. It is a reader of the system under test like any other: what it says
is compared with what the writers were told, with every snapshot, and with the store's end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import numpy as np
from tests.chaos.content import COLUMNS, NOTHING, RETAIN, SHARDS, Digest, digest_of, digest_of_table
from tests.chaos.journal import now

import strandline
from strandline.handles.store import Store
from strandline.shard.settings import Settings

PATIENT = Settings(lease_ms=60_000)


class Settled:
    """The digests of all times of one shard, in order."""

    def __init__(self) -> None:
        self.frontier = 0
        self.at: defaultdict[int, Digest] = defaultdict(lambda: NOTHING)
        self.updates: defaultdict[int, int] = defaultdict(int)
        """How many updates there are at each time."""
        self._ends: list[int] = []
        self._sums: list[Digest] = [NOTHING]

    def add(self, ids: np.ndarray, times: np.ndarray, diffs: np.ndarray) -> None:
        for time in np.unique(times).tolist():
            mine = times == time
            self.at[time] += digest_of(ids[mine], diffs[mine])
            self.updates[time] += int(mine.sum())

    def advance(self, frontier: int) -> None:
        for time in range(self.frontier, frontier):
            if time in self.at:
                self._ends.append(time)
                self._sums.append(self._sums[-1] + self.at[time])
        self.frontier = max(self.frontier, frontier)

    def as_of(self, time: int) -> Digest:
        """The digest of all rows as of a time that is settled."""
        return self._sums[bisect_right(self._ends, time)]


class Witness:
    """Follows all shards of a store, which it creates."""

    def __init__(self, url: str) -> None:
        self.store: Store = strandline.open(url, settings=PATIENT, upkeep=False)
        self.shards = {}
        self.settled = {name: Settled() for name in SHARDS}
        for name, key in SHARDS.items():
            shard = self.store.shard(name, schema=COLUMNS, key=key)
            shard.retain(RETAIN[name])
            self.shards[name] = shard
        self._streams = {name: shard.subscribe(0) for name, shard in self.shards.items()}
        self.wrong: list[str] = []

    def follow(self) -> None:
        """Take in what has come since; does not wait."""
        for name, stream in self._streams.items():
            while (event := stream.poll(timeout_ms=0)) is not None:
                self._take(name, event)

    def catch_up(self, deadline_s: float = 60) -> None:
        """Take in all that is settled now."""
        end = now() + int(deadline_s * 1e9)
        for name, shard in self.shards.items():
            upper = shard.upper.time or 0
            while self.settled[name].frontier < upper and now() < end:
                event = self._streams[name].poll(timeout_ms=200)
                if event is not None:
                    self._take(name, event)
            if self.settled[name].frontier < upper:
                frontier = self.settled[name].frontier
                self.wrong.append(f"{name}: the witness is stuck at {frontier}, upper is {upper}")

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def _take(self, name: str, event: object) -> None:
        settled = self.settled[name]
        if isinstance(event, strandline.Updates):
            digest_of_table(event.rows)
            if len(event.times) and event.times.min() < settled.frontier:
                self.wrong.append(f"{name}: rows at {event.times.min()} after {settled.frontier}")
            settled.add(event.rows["id"].to_numpy(), event.times, event.diffs)
        elif isinstance(event, strandline.Progress):
            frontier = event.frontier.time or 0
            if frontier < settled.frontier:
                self.wrong.append(f"{name}: {settled.frontier} moved back to {frontier}")
            settled.advance(frontier)
