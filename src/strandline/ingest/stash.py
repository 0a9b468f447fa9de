"""Commands that wait for their time, bounded in memory: what does not fit is spilled to a Blob.

    add       always succeeds and keeps everything: in memory at first
    relieve   spills the latest times, which are needed last, until memory is within its bound
    take      the commands of an interval; what was spilled of it comes back first
    drop      forgets the times before a frontier, and deletes what was spilled of them

Nothing is ever dropped but what is LATE. What a crash leaves of the spill belongs to nobody: the
commands are read again from their source.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import CorruptionError
from strandline.model.frontier import Frontier
from strandline.model.schema import TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.clock import Random
    from strandline.model.frontier import Time
    from strandline.store.blob import Blob


@dataclass(slots=True)
class _Spilled:
    """One object, with commands of some times."""

    key: str
    sizes: dict[Time, int]
    bytes: int


@dataclass(slots=True)
class Stash:
    """The commands that are held for one target."""

    spill: Callable[[], Blob]
    """Where to spill; asked when it is needed first."""
    random: Random
    memory_max: int
    _pieces: dict[Time, list[pa.Table]] = field(default_factory=dict)
    _sizes: dict[Time, int] = field(default_factory=dict)
    """Of what is in memory, by time."""
    _spilled: list[_Spilled] = field(default_factory=list)

    @property
    def memory_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def spilled_bytes(self) -> int:
        return sum(each.bytes for each in self._spilled)

    @property
    def oldest(self) -> Time | None:
        return min(self.sizes(), default=None)

    def sizes(self) -> dict[Time, int]:
        """The times that have commands, with their size in bytes."""
        total = dict(self._sizes)
        for each in self._spilled:
            for time, size in each.sizes.items():
                total[time] = total.get(time, 0) + size
        return total

    def add(self, commands: pa.Table) -> None:
        """Keep commands, each at its `_time`."""
        times = commands.column(TIME_COLUMN).to_numpy()
        order = np.argsort(times, kind="stable")
        found, starts = np.unique(times[order], return_index=True)
        for time, at in zip(found.tolist(), np.split(order, starts[1:]), strict=False):
            # Taken and not sliced: a slice would keep the whole table in memory.
            piece = commands.take(pa.array(at))
            self._pieces.setdefault(time, []).append(piece)
            self._sizes[time] = self._sizes.get(time, 0) + max(1, piece.nbytes)

    def relieve(self) -> int:
        """Spill until memory is within its bound; how many bytes that were. May fail halfway."""
        over = self.memory_bytes - self.memory_max
        if over <= 0:
            return 0
        chosen: dict[Time, int] = {}
        # Somewhat more than needed, so that the next few commands need no object of their own.
        for time in sorted(self._sizes, reverse=True):
            if sum(chosen.values()) >= over + self.memory_max // 4:
                break
            chosen[time] = self._sizes[time]
        rows = pa.concat_tables([each for time in sorted(chosen) for each in self._pieces[time]])
        encoded = _encoded(rows)
        key = f"ingest/{self.random.token()}"
        self.spill().put(key, encoded)
        self._spilled.append(_Spilled(key, chosen, len(encoded)))
        for time in chosen:
            del self._pieces[time], self._sizes[time]
        return len(encoded)

    def take(self, lower: Time, end: Frontier) -> pa.Table | None:
        """All commands with times in `[lower, end)`, which stay until they are dropped."""
        for each in list(self._spilled):
            if any(lower <= time and end.settled(time) for time in each.sizes):
                self._bring_back(each)
        wanted = sorted(time for time in self._pieces if lower <= time and end.settled(time))
        pieces = [each for time in wanted for each in self._pieces[time]]
        return pa.concat_tables(pieces) if pieces else None

    def drop(self, before: Frontier) -> int:
        """Forget what is LATE; how many commands of those in memory that were."""
        late = [time for time in self._pieces if before.settled(time)]
        count = sum(int(each.num_rows) for time in late for each in self._pieces[time])
        for time in late:
            del self._pieces[time], self._sizes[time]
        for each in self._spilled:
            for time in [time for time in each.sizes if before.settled(time)]:
                del each.sizes[time]
        self._sweep()
        return count

    def clear(self) -> None:
        """Forget everything."""
        self.drop(Frontier(None))

    def _bring_back(self, spilled: _Spilled) -> None:
        encoded = self.spill().get(spilled.key)
        if encoded is None:
            raise CorruptionError(
                f"commands that were spilled to {spilled.key} are gone: start again, and they are "
                "read from their source"
            )
        rows = pa.ipc.open_stream(encoded).read_all()
        times = rows.column(TIME_COLUMN).to_numpy()
        kept = np.isin(times, np.array(list(spilled.sizes), np.int64))
        spilled.sizes = {}
        self.add(rows.filter(pa.array(kept)))
        self._sweep()

    def _sweep(self) -> None:
        """Delete objects of which nothing is wanted any more."""
        empty = [each for each in self._spilled if not each.sizes]
        self._spilled = [each for each in self._spilled if each.sizes]
        for each in empty:
            self.spill().delete(each.key)


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
