"""The binding shard: which offsets of a source belong to which time, agreed on by all replicas.

    source: partition 0 up to 41, partition 1 up to 7      every replica sees something like it
          │  bind: compare_and_append(lower = upper)       one of them wins, the others adopt
          ▼
    time 12: (0, 41) (1, 7)                                the same for all, for ever

A row `(partition, bound)` is the partition's newest binding; it replaces the one before. Times
come from the shard alone, never from a process: the next one there is, or the store's clock if
that is further. So clocks that disagree change nothing, and equal offsets have equal times
wherever they are read (S31).

A critical hold keeps the history readable that its users have not settled yet: nobody has to be
alive for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pyarrow as pa

from strandline.errors import LeaseLostError, SinceError, StalledError
from strandline.ingest.timetable import Timetable
from strandline.model.frontier import Frontier
from strandline.reading.events import Progress, Updates

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from strandline.handles.store import Store
    from strandline.handles.write import Writer
    from strandline.ingest.timetable import Position
    from strandline.model.frontier import Time
    from strandline.reading.subscribe import Subscription

BINDINGS = pa.schema([("partition", pa.string()), ("bound", pa.int64())])

_WAIT_MS = 1_000
"""How long new bindings that are known to exist are waited for in one go."""
_ATTEMPTS = 8
_MOVE_TIMES = 64
_MOVE_CLOCK_TIMES = 60_000
"""The hold is moved when that lets go of so many times, or milliseconds: each move is a commit."""


class Bindings:
    """One process's view of a binding shard. Close it, or use it with `with`."""

    def __init__(
        self, store: Store, name: str, *, times: Literal["next", "clock"] = "next"
    ) -> None:
        self.shard = store.shard(name, BINDINGS, ("partition",))
        self.known = Timetable()
        self._env = store.env
        self._by_clock = times == "clock"
        self._lent: Writer | None = None
        self._subscription: Subscription | None = None
        self._heard: list[tuple[Time, str, int]] = []
        """Bindings of times that are not complete yet."""
        self._held: Time | None = None

    def refresh(self, needed: Frontier = Frontier(0)) -> Frontier:
        """Learn what has been agreed on; how far bindings are known now.

        Times before `needed` do not matter to the caller, and may be known only roughly.
        """
        upper = self.shard.upper
        self.known.forget(needed)
        deadline = self._env.clock.monotonic_ms() + _WAIT_MS
        while self.known.upper < upper:
            left = deadline - self._env.clock.monotonic_ms()
            if left <= 0:
                break
            self._learn(needed, upper, left)
        return self.known.upper

    def bind(
        self,
        latest: Mapping[str, int],
        *,
        needed: Frontier = Frontier(0),
        at_least: Frontier = Frontier(0),
    ) -> Frontier:
        """Agree on a time for what a source offers and has no time yet; how far they are known.

        The time is not before `at_least`: a target that is further would take it for LATE.
        """
        for _ in range(_ATTEMPTS):
            upper = self.refresh(needed)
            offered = self.known.beyond(latest)
            if not offered or upper.time is None or at_least.time is None:
                break
            self._append(offered, upper.time, at_least.time)
        return self.known.upper

    def hold(self, name: str, since: Time) -> None:
        """Keep what is bound from `since` on apart, for `name`; moves forward, and rarely."""
        step = _MOVE_CLOCK_TIMES if self._by_clock else _MOVE_TIMES
        if self._held is None or since >= self._held + step:
            self.shard.hold(name, since, note="times that its ingest has not settled yet")
            self._held = since

    def close(self) -> None:
        """Let go of everything but the hold."""
        self._unsubscribe()
        if self._lent is not None:
            self._lent.close()
            self._lent = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, offered: Position, upper: Time, at_least: Time) -> None:
        time = self._next_time(upper, at_least)
        bound = self.known.position()
        old = [(name, bound[name], -1) for name in offered if name in bound]
        new = [(name, stop, 1) for name, stop in offered.items()]
        names, bounds, diffs = zip(*old, *new, strict=True)
        rows = pa.table(
            {
                "partition": pa.array(names, pa.string()),
                "bound": pa.array(bounds, pa.int64()),
                "_time": pa.array([time] * len(names), pa.int64()),
                "_diff": pa.array(diffs, pa.int64()),
            }
        )
        try:
            # Whoever wins, the next look tells what was agreed on.
            self._writer().compare_and_append(rows, lower=upper, upper=time + 1)
        except LeaseLostError:
            self._lent = None
            raise

    def _next_time(self, upper: Time, at_least: Time) -> Time:
        """Past everything that was bound; by the store's clock, which is the same for all."""
        time = max(upper, at_least)
        if not self._by_clock:
            return time
        return max(time, self._env.patient(self._env.consensus.now_ms, shard=self.shard.name))

    def _learn(self, needed: Frontier, upper: Frontier, wait_ms: int) -> None:
        try:
            event = self._following(needed, upper).poll(wait_ms)
        except (LeaseLostError, StalledError, SinceError):
            # It stands still for good: begin a new one, where we are.
            self._unsubscribe()
            raise
        if isinstance(event, Updates):
            rows = event.rows.to_pylist()
            self._heard += [
                (row["_time"], row["partition"], row["bound"]) for row in rows if row["_diff"] > 0
            ]
        elif isinstance(event, Progress):
            # Updates come in any order; only those that are complete may be learned.
            upper = event.frontier
            self.known.learn(each for each in self._heard if upper.settled(each[0]))
            self._heard = [each for each in self._heard if not upper.settled(each[0])]
            self.known.settled(upper)

    def _following(self, needed: Frontier, upper: Frontier) -> Subscription:
        """The bindings from the oldest time on that matters, or that we do not know yet."""
        if self._subscription is None:
            start = max(needed, self.known.upper)
            # Where even the end of what is bound is not needed, its last state is enough.
            as_of = max(min(start, upper).last() or 0, self._oldest())
            self._subscription = self.shard.subscribe(as_of)
            self.known.begins(as_of)
        return self._subscription

    def _oldest(self) -> Time:
        since = self.shard.since.time
        return 0 if since is None else since

    def _unsubscribe(self) -> None:
        self._heard.clear()
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _writer(self) -> Writer:
        if self._lent is None:
            self._lent = self.shard.writer("bindings")
        return self._lent
