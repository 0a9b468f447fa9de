"""The handle through which rows get into a shard.

    check rows (pure) ─► stage: inline, parts or chunks ─► commit `Append` ─► Appended
                                                                    ├───────► UpperMismatch
                                                                    └───────► Repeated

Rows are durable before the append is committed, and an append counts as a whole or not at all.
What a lost race left behind is deleted where it is certain that nothing refers to it, and is
otherwise an orphan under the writer's id.

Only an append with a transaction, `txn=(application, batch)`, can be `Repeated`: that very batch,
or a later one of the application, has counted before. Then nothing is appended.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, overload

from strandline.errors import BoundsError, InvariantError, SchemaError, UsageError
from strandline.handles.stage import Prepared, Stage
from strandline.handles.verify import check_settled
from strandline.model.frontier import TIME_MAX, Frontier, Time
from strandline.model.ids import SeqNo
from strandline.model.schema import TIME_COLUMN
from strandline.parts.rows import Checked, check_interval, check_rows, restamped, to_table
from strandline.shard import command as c
from strandline.shard.decide_append import repeated
from strandline.shard.machine import raise_refusal
from strandline.shard.txn import Txn, valid_txn
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from strandline.model.digest import Digest
    from strandline.parts.part import Batch
    from strandline.shard.command import Repeated, UpperMismatch
    from strandline.shard.lease import WriteLease
    from strandline.shard.machine import Machine
    from strandline.shard.state import State

# Constant, not growing: whoever has lost most would otherwise wait longest, and starve.
_CONTENTION = Backoff(first_ms=1, factor=1.0, cap_ms=1, spread=1.0)


@dataclass(frozen=True, slots=True)
class Appended:
    """The append counts: it is durable, and its times are settled."""

    seqno: SeqNo
    upper: Frontier
    instant_ms: int
    """When, by the store's clock."""
    rows: int


@dataclass(frozen=True, slots=True)
class _Through:
    """The timeline by which an append comes, the epoch of its owner, and whose batch it is."""

    timeline: str | None = None
    epoch: int = 0
    txn: Txn | None = None


class Writer:
    """Appends to one shard, under a lease that the process renews. Any task may use it.

        with shard.writer() as writer:
            writer.append(rows)

    Its appends go one by one, in the order in which they were called.
    """

    def __init__(
        self, machine: Machine, lease: WriteLease, nudge: Callable[[], None] = lambda: None
    ) -> None:
        self._machine = machine
        self._lease = lease
        self._nudge = nudge
        self._stage = Stage(machine.env, machine.name, lease.id)
        self._turn = machine.env.tasks.condition()
        self._busy = False

    @property
    def id(self) -> str:
        return self._lease.id

    @overload
    def compare_and_append(
        self, rows: object, *, lower: Time, upper: Time | Frontier | None, epoch: int = ...
    ) -> Appended | UpperMismatch: ...
    @overload
    def compare_and_append(
        self,
        rows: object,
        *,
        lower: Time,
        upper: Time | Frontier | None,
        epoch: int = ...,
        txn: Txn | tuple[str, int] | None,
    ) -> Appended | UpperMismatch | Repeated: ...
    def compare_and_append(
        self,
        rows: object,
        *,
        lower: Time,
        upper: Time | Frontier | None,
        epoch: int = 0,
        txn: Txn | tuple[str, int] | None = None,
    ) -> Appended | UpperMismatch | Repeated:
        """Settle `[lower, upper)` with these rows if `lower` is the shard's upper.

        Otherwise nothing happens, and the answer is the upper as it is: another writer has
        moved it, or none has yet. `upper=None` closes the shard. Rows without `_time` are at
        the only time of the interval, rows without `_diff` are insertions. A batch that counted
        before is `Repeated`, wherever the upper is.
        """
        through = _Through(epoch=epoch, txn=None if txn is None else valid_txn(txn))
        with self._alone():
            return self._append_at(rows, lower, upper, through)

    def append_through(
        self,
        timeline: str,
        epoch: int,
        rows: object,
        *,
        lower: Time,
        upper: Time | Frontier | None,
    ) -> Appended | UpperMismatch:
        """The same for the owner of the timeline that the shard is attached to.

        What it appends is invisible until the timeline commits it.
        """
        with self._alone():
            return _of_no_batch(self._append_at(rows, lower, upper, _Through(timeline, epoch)))

    def commit_parts_through(
        self,
        timeline: str,
        epoch: int,
        batch: Batch,
        digests: Mapping[Time, Digest],
        *,
        lower: Time,
        upper: Time | Frontier | None,
    ) -> Appended | UpperMismatch:
        """`commit_parts` for whoever moves the timeline that the shard is attached to."""
        through = _Through(timeline, epoch)
        return _of_no_batch(self._commit_parts(batch, digests, (lower, upper), through))

    @overload
    def append(self, rows: object) -> Appended: ...
    @overload
    def append(self, rows: object, *, txn: Txn | tuple[str, int] | None) -> Appended | Repeated: ...
    def append(
        self, rows: object, *, txn: Txn | tuple[str, int] | None = None
    ) -> Appended | Repeated:
        """Append at the next time, whichever that is by then; returns once it counts.

        Other writers that do the same only delay it: it looks again and tries again, for ever.
        Rows carry no `_time`; they may carry `_diff`.

        With `txn=(application, batch)` the rows count once, however often and from whichever
        process they come: a batch that is not newer than the application's newest is `Repeated`,
        and `ReplicaDivergedError` says that the newest one had other rows.
        """
        batch = None if txn is None else valid_txn(txn)
        with self._alone():
            # The time of a batch that counted before does not matter; there may be none left.
            lower = self._next_time() if batch is None else 0
            checked = self._checked_next(rows, lower)
            if batch is None:
                return self._append_next(checked, lower, _Through())
            known = self._counted_before(batch, checked)
            if known is not None:
                return known
            lower = self._next_time()
            return self._append_next(restamped(checked, lower), lower, _Through(txn=batch))

    def advance(self, upper: Time | Frontier | None) -> Frontier:
        """Settle all times before `upper` without rows; `None` closes the shard.

        Returns the shard's upper, which another writer may have moved further.
        """
        target = Frontier.of(upper, "upper")
        with self._alone():
            while True:
                state = self._living(_Through())
                if target <= state.upper:
                    state = self._machine.refresh()
                if target <= state.upper:
                    return state.upper
                nothing = Checked.nothing(state.schema)
                # The upper that was compared, not a newer one: that may be past the target.
                lower = state.upper.time or 0
                outcome = self._stage_and_commit(nothing, lower, target, _Through())
                if isinstance(outcome, Appended):
                    return outcome.upper

    def verify(
        self, rows: object, *, lower: Time, upper: Time | Frontier | None, uncommitted: bool = False
    ) -> Frontier:
        """Raise `ReplicaDivergedError` if the settled rows of `[lower, upper)` are not these.

        For a replica that was told `UpperMismatch`: the same rows may have been written by a
        peer. Returns how far it could compare; times from there on are not settled yet.
        `uncommitted` compares with what a timeline has not committed, too.
        """
        begin, end = check_interval(lower, upper)
        self._lease.check()
        checked = self._checked(rows, begin, end)
        return check_settled(
            self._machine, checked.digests, lower=begin, upper=end, uncommitted=uncommitted
        )

    def prepare(self, rows: object, *, lower: Time, upper: Time | Frontier | None) -> Prepared:
        """Make rows durable without appending them yet; `commit` does it, at any later time."""
        begin, end = check_interval(lower, upper)
        with self._alone():
            checked = self._checked(rows, begin, end)
            return self._stage.prepare(checked, self._machine.state, lower=begin, upper=end)

    def commit(self, prepared: Prepared) -> Appended | UpperMismatch:
        """Append what was prepared; twice is the same as once, until the next append.

        What was prepared stays, whatever comes of it: after an answer that got lost nobody can
        tell here whether its objects are needed. Those that are not go with the writer.
        """
        with self._alone():
            if prepared.writer != self.id:
                raise UsageError(
                    f"shard {self._machine.name}: this was prepared by writer {prepared.writer}; "
                    "commit it there, where its objects are protected"
                )
            return _of_no_batch(self._commit(prepared, _Through()))

    @overload
    def commit_parts(
        self,
        batch: Batch,
        digests: Mapping[Time, Digest],
        *,
        lower: Time,
        upper: Time | Frontier | None,
    ) -> Appended | UpperMismatch: ...
    @overload
    def commit_parts(
        self,
        batch: Batch,
        digests: Mapping[Time, Digest],
        *,
        lower: Time,
        upper: Time | Frontier | None,
        txn: Txn | tuple[str, int] | None,
    ) -> Appended | UpperMismatch | Repeated: ...
    def commit_parts(
        self,
        batch: Batch,
        digests: Mapping[Time, Digest],
        *,
        lower: Time,
        upper: Time | Frontier | None,
        txn: Txn | tuple[str, int] | None = None,
    ) -> Appended | UpperMismatch | Repeated:
        """Append parts and chunks that others have put for this writer, under its id.

        `digests` are those of their rows at each time; together they must add up to the batch.
        What was put for a batch that turns out to be `Repeated` goes with the writer;
        `Shard.txn` tells before anything is put.
        """
        through = _Through(txn=None if txn is None else valid_txn(txn))
        return self._commit_parts(batch, digests, (lower, upper), through)

    def _commit_parts(
        self,
        batch: Batch,
        digests: Mapping[Time, Digest],
        bounds: tuple[Time, Time | Frontier | None],
        through: _Through,
    ) -> Appended | UpperMismatch | Repeated:
        begin, end = check_interval(*bounds)
        self._stage.check_count(len(digests))
        state = self._machine.state
        own = f"{state.id}/{self.id}/"
        for key in batch.object_keys():
            if not key.startswith(own):
                raise UsageError(f"shard {self._machine.name}: {key} does not lie under {own}")
        token = self._machine.env.random.token()
        whole = Prepared(self.id, token, begin, end, batch, dict(digests))
        with self._alone():
            return self._commit(whole, through)

    def check(self) -> None:
        """Raise if the writer was closed, or its lease is known to be lost."""
        self._lease.check()

    def close(self) -> None:
        """Give the lease back; what is being appended ends first. Repeating it is harmless."""
        if not self._machine.env.home.is_here():
            return
        with self._turn:
            while self._busy:
                self._turn.wait()
            self._busy = True
        try:
            self._lease.close()
        finally:
            self._end_turn()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Writer {self.id} of {self._machine.name}>"

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._machine.env.home.check()
        with self._turn:
            while self._busy:
                self._turn.wait()
            self._busy = True
        try:
            self._lease.check()
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        with self._turn:
            self._busy = False
            self._turn.notify_all()

    def _append_at(
        self, rows: object, lower: Time, upper: Time | Frontier | None, through: _Through
    ) -> Appended | UpperMismatch | Repeated:
        begin, end = check_interval(lower, upper)
        if through.txn is None:
            self._living(through)
        checked = self._checked(rows, begin, end)
        known = None if through.txn is None else self._counted_before(through.txn, checked)
        if known is not None:
            return known
        state = self._living(through)
        if through.timeline is None and state.upper.time != begin:
            # Rows that can't count are not worth being put.
            state = self._machine.refresh()
            if state.upper.time != begin and self.id in state.writers:
                self._machine.env.metrics.add("append_mismatches", self._machine.name)
                return c.UpperMismatch(state.upper)
        return self._stage_and_commit(checked, begin, end, through)

    def _append_next(self, checked: Checked, lower: Time, through: _Through) -> Appended | Repeated:
        env = self._machine.env
        pauses_ms = _CONTENTION.delays(env.random)
        while True:
            outcome = self._stage_and_commit(checked, lower, Frontier(lower + 1), through)
            if not isinstance(outcome, c.UpperMismatch):
                return outcome
            env.tasks.sleep(next(pauses_ms))
            # The upper has moved during the pause, if others are busy; an old one would lose.
            self._machine.refresh()
            lower = self._next_time()
            checked = restamped(checked, lower)

    def _counted_before(self, txn: Txn, checked: Checked) -> Repeated | None:
        """Look before anything is put: what comes again should cost as little as it can."""
        known = repeated(self._machine.refresh(), txn, checked.total)
        if not isinstance(known, c.Repeated):
            raise_refusal(self._machine.name, c.Unchanged() if known is None else known)
            return None
        self._machine.env.metrics.add("append_repeats", self._machine.name)
        return known

    def _stage_and_commit(
        self, checked: Checked, lower: Time, upper: Frontier, through: _Through
    ) -> Appended | UpperMismatch | Repeated:
        prepared = self._stage.prepare(
            checked, self._machine.state, lower=lower, upper=upper, epoch=through.epoch
        )
        outcome = self._commit(prepared, through)
        if not isinstance(outcome, Appended):
            # A repeated batch too: had it been this very append, its token would have shown it.
            self._stage.discard(prepared)
        return outcome

    def _living(self, through: _Through) -> State:
        """The newest state this process knows, if appends may come this way at all."""
        state = self._machine.state
        if state.timeline != through.timeline or state.dropped:
            state = self._machine.refresh()
        if state.timeline is not None and through.timeline is None:
            raise UsageError(
                f"shard {state.name} is attached to timeline {state.timeline} and takes appends "
                "only through it: stage the rows with the timeline's owner"
            )
        return state

    def _next_time(self) -> Time:
        state = self._living(_Through())
        if state.upper.time is None:
            state = self._machine.refresh()
        if state.upper.time is None:
            raise BoundsError(f"shard {state.name} is closed: nothing can be appended to it")
        if state.upper.time >= TIME_MAX:
            raise BoundsError(f"shard {state.name} is at {state.upper}: there is no time after it")
        return state.upper.time

    def _checked_next(self, rows: object, lower: Time) -> Checked:
        table = to_table(rows, self._machine.state.schema)
        if TIME_COLUMN in table.column_names:
            raise BoundsError(
                f"shard {self._machine.name}: append chooses the time itself; leave {TIME_COLUMN} "
                "out, or use compare_and_append"
            )
        return self._checked(table, lower, Frontier(lower + 1))

    def _checked(self, rows: object, lower: Time, upper: Frontier) -> Checked:
        """The rows under the newest schema: the one this process knows may be older."""
        schema = self._machine.state.schema
        try:
            return check_rows(rows, schema, lower=lower, upper=upper)
        except SchemaError:
            newest = self._machine.refresh().schema
            if newest.version == schema.version:
                raise
            return check_rows(rows, newest, lower=lower, upper=upper)

    def _commit(self, prepared: Prepared, through: _Through) -> Appended | UpperMismatch | Repeated:
        env, name = self._machine.env, self._machine.name
        command = c.Append(
            writer=prepared.writer,
            token=prepared.token,
            lower=prepared.lower,
            upper=prepared.upper,
            batch=prepared.batch,
            digests=prepared.digests,
            now_ms=env.patient(env.consensus.now_ms, shard=name),
            epoch=through.epoch,
            timeline=through.timeline,
            txn=through.txn,
        )
        outcome, state = self._machine.commit(command)
        if isinstance(outcome, c.UpperMismatch):
            env.metrics.add("append_mismatches", name)
            return outcome
        if isinstance(outcome, c.Repeated):
            env.metrics.add("append_repeats", name)
            return outcome
        raise_refusal(name, outcome)
        env.metrics.add("appends", name)
        env.metrics.add("append_rows", name, prepared.rows)
        self._nudge()
        seqno = state.writers[prepared.writer].seqno
        return Appended(SeqNo(seqno), prepared.upper, _instant(state, prepared), prepared.rows)


def _of_no_batch(outcome: Appended | UpperMismatch | Repeated) -> Appended | UpperMismatch:
    """What comes of an append without a transaction."""
    if isinstance(outcome, c.Repeated):
        raise InvariantError("R24: an append that is no batch was taken for one")
    return outcome


def _instant(state: State, prepared: Prepared) -> int:
    """When the append was settled: an answer that came late may show a later version."""
    for moment in reversed(state.moments):
        if prepared.upper.settled(moment.time):
            return moment.instant_ms
    return state.instant_ms
