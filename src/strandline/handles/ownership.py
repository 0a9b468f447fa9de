"""Owning a timeline: staging rows in several shards, and committing them together.

See `timeline` for the order of steps and why every crash between them is safe.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from strandline.errors import (
    BoundsError,
    ConflictError,
    FencedError,
    LeaseLostError,
    MaybeAppliedError,
    NotAppliedError,
    NotFoundError,
    UsageError,
)
from strandline.model.frontier import Frontier, Time, valid_time
from strandline.shard import command as c
from strandline.shard.timeline import ANY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from strandline.handles.write import Writer
    from strandline.shard.machine import Machine
    from strandline.shard.state import State
    from strandline.shard.timeline import PlainTimeline, Tick


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
        self._in_doubt = ""
        self._lost = ""
        self._turn = timeline.env.tasks.condition()
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
        """Append rows to an attached shard at `time`; nobody sees them before `commit`.

        If it can't be told whether they are there, this owner can't commit any more: rows that
        land later must not change what was committed without them. Own the timeline again.
        """
        with self._alone():
            self._stage(shard, rows)

    def commit(self, upper: Time | None = None) -> Tick:
        """Make what was staged visible in all shards at once, and move to the next time.

        If it can't be told whether that happened, this owner is of no more use: what it staged
        then could change what was committed. Own the timeline again, and look where it is.
        """
        with self._alone():
            return self._commit(upper)

    def _stage(self, shard: str, rows: pa.Table) -> None:
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
        self._in_doubt = (
            f"rows staged in shard {shard} may or may not be there; own the timeline again, which "
            "withdraws them, and stage anew"
        )
        try:
            outcome = writer.append_through(
                self._timeline.name, self.epoch, rows, lower=self.time, upper=self.time + 1
            )
        except (UsageError, NotAppliedError, LeaseLostError):
            self._in_doubt = ""
            raise
        self._in_doubt = ""
        if isinstance(outcome, c.UpperMismatch):
            raise FencedError(
                f"shard {shard} has rows at {self.time} that this owner did not append: "
                "another owner has taken over; stop"
            )
        self._staged.add(shard)

    def _commit(self, upper: Time | None) -> Tick:
        target = valid_time(self.time + 1 if upper is None else upper, "upper")
        if target <= self.time:
            raise BoundsError(f"cannot commit up to {target}: the timeline is at {self.time}")
        self._fence_members()
        self._in_doubt = (
            f"{self.time} may or may not be committed; own the timeline again, and look where it is"
        )
        try:
            tick = self._timeline.commit(self.epoch, self.committed, Frontier(target))
        except (ConflictError, NotAppliedError):
            self._in_doubt = ""
            raise
        self._in_doubt = ""
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

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._timeline.env.home.check()
        with self._turn, self._entitled():
            yield

    @contextmanager
    def _entitled(self) -> Iterator[None]:
        """Nothing is tried any more once somebody took over, or while something is in doubt."""
        if self._lost:
            raise FencedError(self._lost)
        if self._in_doubt:
            raise MaybeAppliedError(f"timeline {self._timeline.name}: {self._in_doubt}")
        try:
            yield
        except FencedError as error:
            # That is certain: nothing of this owner counts from here on.
            self._lost, self._in_doubt = str(error), ""
            raise

    def _fence_members(self) -> None:
        for name in self._timeline.listed():
            if name not in self._fenced:
                self._fence(name)

    def _fence(self, name: str) -> None:
        """No older owner appends to this shard any more, and what it left uncommitted goes.

        Somebody may have taken over before we got here, and not have found the shard attached: we
        could stage below what is committed by now. Whoever takes over after this look finds it,
        for it was listed before it was attached.
        """
        try:
            machine = self._machine_of(name)
            state = machine.refresh()
        except NotFoundError:
            return
        if state.dropped or not self._is_attached(machine, state):
            return
        machine.demand(c.Fence(self.epoch))
        machine.demand(c.Withdraw(self.time, self.epoch, self.committed))
        self._timeline.check_epoch(self.epoch)
        self._fenced.add(name)

    def _is_attached(self, machine: Machine, state: State) -> bool:
        """Whether a shard belongs to this timeline; one that is about to is attached here.

        Its attacher may have seen an older epoch, and an older owner could then append to it
        under our eyes. Once it is attached under our epoch, it can't.
        """
        if state.timeline is None:
            asked = self._timeline.listed().get(machine.name, frozenset())
            if asked.isdisjoint((ANY, state.id)):
                return False
            attach = c.Attach(self._timeline.name, self.committed, self.epoch, state.id)
            outcome, _ = machine.commit(attach)
            return isinstance(outcome, (c.Changed, c.Unchanged))
        return state.timeline == self._timeline.name
