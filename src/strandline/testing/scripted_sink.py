"""A target in memory that does as it is told: it fences, fails, loses replies, forgets.

    target = ScriptedTarget()
    sink = ScriptedSink(target, delivered)

Like a broker's transactions: a handle that is prepared shuts out every earlier one, changes and
progress count together at the commit, and a commit whose answer was lost may land later, but not
after somebody else was prepared. What a transaction is, and whether it came before, the target
does not ask: that is for publishers to know.

One that does not fence is like a catalog of tables: a handle that is prepared shuts out nobody,
and a commit counts if nothing was committed since it was begun, however late it lands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.sink import NOTHING_YET, Delivered, Progress, ReadBack, filled
from strandline.errors import SinkError, SinkFencedError
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LATE = "late"
"""What a script says of a commit that lands later, if at all."""


@dataclass(frozen=True)
class Landed:
    """One committed transaction."""

    t: int
    epoch: int
    rows: list[dict[str, object]]


@dataclass
class Log:
    """What a target has under one address."""

    landed: list[Landed] = field(default_factory=list)
    progress: Progress | None = None
    generation: int = 0
    fenced: int = 0
    late: list[tuple[int, Progress | None, Landed]] = field(default_factory=list)


class ScriptedTarget:
    """Shared by all handles, whatever processes they are in."""

    def __init__(self, *, fences: bool = True) -> None:
        self.logs: dict[str, Log] = {}
        self.fences = fences

    def log(self, what: Delivered) -> Log:
        return self.logs.setdefault(what.address.digest, Log())

    def land(self) -> None:
        """Let what was late land now, if its sender was not shut out meanwhile."""
        for log in self.logs.values():
            late, log.late = log.late, []
            for generation, at, landed in late:
                if generation == log.generation and (self.fences or at == log.progress):
                    log.landed.append(landed)
                    log.progress = Progress(landed.t, landed.epoch)

    def forget_all(self) -> None:
        """Lose all progress, and nothing else (S82)."""
        for log in self.logs.values():
            log.progress = None

    def forget(self, what: Delivered) -> None:
        """Lose the progress under one address, and nothing else."""
        self.log(what).progress = None


class ScriptedSink:
    """A handle. `before` is called with the name of each step: it may raise, or say `LATE`."""

    def __init__(
        self,
        target: ScriptedTarget,
        what: Delivered,
        before: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._target = target
        self._log = target.log(what)
        self._schema = what.columns.append(pa.field(DIFF_COLUMN, pa.int64(), nullable=False))
        self._before = before
        self._generation = -1
        self._known: Progress | None = None
        """What was there when it was read, or is by what this handle committed."""

    def prepare(self) -> None:
        self._before("prepare")
        self._log.generation += self._target.fences
        self._generation = self._log.generation
        self._before("prepared")

    def progress(self) -> Progress | None:
        self._before("progress")
        self._known = self._log.progress
        return self._known

    def found(self, at: Progress) -> None:
        self._before("found")
        self._check()
        self._log.progress = self._known = self._log.progress or at
        self._before("reply")

    def deliver(self, t: int, epoch: int, changes: Iterable[pa.RecordBatch]) -> None:
        at = self._log.progress if self._target.fences else self._known
        batches = filled(t, changes, first=at is not None and at.t == NOTHING_YET)
        self._before("begin")
        self._check()
        rows: list[dict[str, object]] = []
        for batch in batches:
            self._before("record")
            rows += batch.to_pylist()
        self._before("flush")
        landed = Landed(t, epoch, rows)
        if self._before("commit") == LATE:
            self._log.late.append((self._generation, at, landed))
            raise SinkError("the commit was not answered")
        self._check()
        if not self._target.fences and at != self._log.progress:
            self._log.fenced += 1
            raise SinkFencedError("something was committed since")
        self._log.landed.append(landed)
        self._log.progress = self._known = Progress(t, epoch)
        self._before("reply")

    def read_back(self) -> ReadBack | None:
        at = self._log.progress
        if at is None:
            return None
        landed = [pa.RecordBatch.from_pylist(each.rows, self._schema) for each in self._log.landed]
        return ReadBack(at, iter(landed))

    def close(self) -> None:
        self._generation = -1

    def _check(self) -> None:
        if self._generation != self._log.generation:
            self._log.fenced += 1
            raise SinkFencedError("another handle was prepared since")
