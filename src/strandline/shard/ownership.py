"""Owning a timeline: staging rows in several shards, and committing them together.

See `timeline` for the order of steps and why every crash between them is safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from strandline.errors import BoundsError, FencedError, NotFoundError, UsageError
from strandline.model.frontier import Frontier, Time
from strandline.shard import command as c

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from strandline.shard.machine import Machine
    from strandline.shard.timeline import PlainTimeline, Tick
    from strandline.shard.write import Writer


class TimelineOwner:
    """The right to move a timeline, until somebody takes over.

        with store.timeline("shop").own() as owner:
            owner.stage(orders, new_orders)
            owner.stage(stock, changes)
            owner.commit()

    What was staged and not committed is invisible, and gone once the next owner comes.
    """

    def __init__(
        self,
        timeline: PlainTimeline,
        machine_of: Callable[[str], Machine],
        writer_of: Callable[[str], Writer],
    ) -> None:
        self._timeline = timeline
        self._machine_of = machine_of
        self._writer_of = writer_of
        self._writers: dict[str, Writer] = {}
        self._fenced: set[str] = set()
        self._staged: set[str] = set()
        tick = timeline.raise_epoch()
        self.epoch = tick.epoch
        self.committed = Frontier(tick.upper)
        self._fence_members()

    @property
    def time(self) -> Time:
        """The time at which the next commit will be visible."""
        if self.committed.time is None:
            raise BoundsError(f"timeline {self._timeline.name} is closed")
        return self.committed.time

    def stage(self, shard: str, rows: pa.Table) -> None:
        """Append rows to an attached shard at `time`; nobody sees them before `commit`."""
        if shard in self._staged:
            raise UsageError(
                f"shard {shard} has rows at {self.time} already: commit first, or stage all its "
                "rows at once"
            )
        if shard not in self._fenced:
            self._fence(shard)
        writer = self._writers.get(shard)
        if writer is None:
            writer = self._writers[shard] = self._writer_of(shard)
        outcome = writer.append_through(
            self._timeline.name, self.epoch, rows, lower=self.time, upper=self.time + 1
        )
        if isinstance(outcome, c.UpperMismatch):
            raise FencedError(
                f"shard {shard} has rows at {self.time} that this owner did not append: "
                "another owner has taken over; stop"
            )
        self._staged.add(shard)

    def commit(self, upper: Time | None = None) -> Tick:
        """Make what was staged visible in all shards at once, and move to the next time."""
        target = self.time + 1 if upper is None else upper
        if target <= self.time:
            raise BoundsError(f"cannot commit up to {target}: the timeline is at {self.time}")
        self._fence_members()
        tick = self._timeline.commit(self.epoch, self.committed, Frontier(target))
        self.committed = Frontier(target)
        self._staged.clear()
        return tick

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _fence_members(self) -> None:
        for name in self._timeline.members():
            if name not in self._fenced:
                self._fence(name)

    def _fence(self, name: str) -> None:
        """No older owner appends to this shard any more, and what it left uncommitted goes."""
        try:
            machine = self._machine_of(name)
            state = machine.refresh()
        except NotFoundError:
            return
        if state.dropped or state.timeline != self._timeline.name:
            return
        machine.demand(c.Fence(self.epoch))
        machine.demand(c.Withdraw(self.time, self.epoch, self.committed))
        self._fenced.add(name)
