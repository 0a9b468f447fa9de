"""A shard as its users hold it: names, frontiers, and the handles that read and write.

Everything that is given back is a context manager. A handle never has to be called to stay
alive. Reads without `as_of` are of the newest settled time; a shard without one is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from strandline.errors import NotFoundError, SchemaError, SinceError, UsageError
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier, Time, valid_time
from strandline.model.ids import printable, valid_id, valid_name
from strandline.model.schema import Schema
from strandline.reading.snapshot import Snapshot, take_snapshot
from strandline.reading.subscribe import Subscription, start_subscription
from strandline.shard import command as c
from strandline.shard.frontiers import visible, wait_past
from strandline.shard.machine import raise_refusal
from strandline.shard.retention import parse_retention
from strandline.shard.term import TermHold, valid_term
from strandline.shard.txn import valid_app

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import pyarrow as pa

    from strandline.model.tasks import Event
    from strandline.parts.filters import FilterSpec
    from strandline.shard.cancel import Cancel
    from strandline.shard.lease import ReadLease
    from strandline.shard.leases import Leases
    from strandline.shard.machine import Machine
    from strandline.shard.state import Retention, State
    from strandline.upkeep.upkeep import Upkeep


class Reader:
    """Holds a shard's history readable from `since` on, for as long as it is open.

        with shard.reader(since=7) as reader:
            reader.snapshot(as_of=7).to_arrow()

    The hold is a lease that the process renews; a reader that dies lets go by itself.
    """

    def __init__(self, shard: Shard, lease: ReadLease) -> None:
        self._shard = shard
        self._lease = lease

    @property
    def id(self) -> str:
        return self._lease.id

    @property
    def since(self) -> Time:
        """The oldest time this reader keeps readable."""
        return self._lease.since or 0

    def downgrade(self, since: Time, *, durable: bool = False) -> None:
        """Give up the right to tell times before `since` apart. Never undone.

        Returns at once and takes effect within a quarter of a lease; with `durable=True` it
        returns when the store knows.
        """
        self._lease.downgrade(valid_time(since, "since"), durable=durable)

    def snapshot(
        self,
        as_of: Time | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterSpec | None = None,  # noqa: A002 - the word that users of Parquet readers know
        timeout_ms: int | None = None,
        cancel: Cancel | None = None,
    ) -> Snapshot:
        self._lease.check()
        try:
            return self._shard.snapshot(
                as_of, columns=columns, filter=filter, timeout_ms=timeout_ms, cancel=cancel
            )
        except SinceError:
            # What a reader holds is not merged: look whether it still holds anything (S48).
            self._lease.state_from(0)
            raise

    def clone(self, purpose: str = "") -> Reader:
        """A reader of its own that holds what this one holds."""
        return Reader(self._shard, self._lease.clone(purpose))

    def close(self) -> None:
        """Give the hold back; returns once the store knows. Repeating it is harmless."""
        self._lease.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shard:
    """A durable collection of updates that many processes may write and read at once."""

    def __init__(self, machine: Machine, leases: Leases, upkeep: Upkeep) -> None:
        self.machine = machine
        self.id = machine.state.id
        self._leases = leases
        self._upkeep = upkeep

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def schema(self) -> pa.Schema:
        """The columns, without `_time` and `_diff`."""
        return self.machine.state.schema.arrow()

    @property
    def key(self) -> tuple[str, ...]:
        return self.machine.state.schema.key

    @property
    def upper(self) -> Frontier:
        """How far the shard is settled, read from the store."""
        upper, _ = visible(self.machine, self.id)
        return upper

    @property
    def since(self) -> Frontier:
        """From which time on reads are exact, read from the store."""
        return self.state().since

    def state(self) -> State:
        """The newest version of the shard's metadata."""
        return self._same(self.machine.refresh())

    def writer(self, purpose: str = "") -> Writer:
        """A leased writer. Close it, or use it with `with`."""
        self.state()
        lease = self._leases.writer(self.machine, purpose=purpose)
        return Writer(self.machine, lease, nudge=lambda: self._upkeep.nudge(self.machine))

    def reader(
        self, since: Time | None = None, *, lease_ms: int | None = None, purpose: str = ""
    ) -> Reader:
        """Keep history readable from `since` on; without it, from where it is readable now."""
        if since is not None:
            valid_time(since, "since")
        self.state()
        lease = self._leases.reader_from(
            self.machine, since=since, lease_ms=lease_ms, purpose=purpose
        )
        return Reader(self, lease)

    def term_reader(
        self, since: Time | None = None, *, term_ms: int, purpose: str = ""
    ) -> TermHold:
        """Keep history readable from `since` on for `term_ms`, whether or not this process lives.

        For whoever plans a read and is gone when it happens. Nobody renews it; once the store's
        clock has reached its end, any process's upkeep drops it, and never before. What reads
        under it after that fails, like every reader whose lease was lost.
        """
        if since is not None:
            valid_time(since, "since")
        self.state()
        return self._leases.term_reader(
            self.machine, since=since, term_ms=valid_term(term_ms), purpose=purpose
        )

    def end_term(self, hold_id: str) -> None:
        """Give a term back before its end, from any process. Repeating it is harmless."""
        reader = self.state().readers.get(valid_id(hold_id, "r"))
        if reader is not None and reader.until_ms is None:
            raise UsageError(
                f"shard {self.name}: reader {hold_id} has no term, its process keeps it alive"
            )
        if reader is not None:
            self.machine.demand(c.Release(readers=(hold_id,)))

    def snapshot(
        self,
        as_of: Time | datetime | None = None,
        *,
        columns: Sequence[str] | None = None,
        filter: FilterSpec | None = None,  # noqa: A002 - the word that users of Parquet readers know
        timeout_ms: int | None = None,
        cancel: Cancel | None = None,
    ) -> Snapshot:
        """The rows as of a time, that time included, or as of an instant.

        Waits until the time is settled; `timeout_ms` and `cancel` end the wait. The same time
        gives the same rows for ever, until `since` passes it.
        """
        self.state()
        return take_snapshot(
            self.machine,
            self._leases,
            as_of,
            columns=columns,
            filter=filter,
            timeout_ms=timeout_ms,
            cancel=cancel,
        )

    def listen(self, as_of: Time | None = None, until: Time | None = None) -> Subscription:
        """Every update after `as_of`, with the frontiers that say how far it has come."""
        return self.subscribe(as_of, until=until, snapshot=False)

    def subscribe(  # noqa: PLR0913 - each is a choice of the caller's, and most are left out
        self,
        as_of: Time | None = None,
        *,
        until: Time | None = None,
        snapshot: bool = True,
        columns: Sequence[str] | None = None,
        filter: FilterSpec | None = None,  # noqa: A002 - the word that users of Parquet readers know
        on_error: Literal["raise", "signal", "halt"] | Callable[[Exception], None] = "raise",
        start_signal: Event | None = None,
        workers: int = 1,
    ) -> Subscription:
        """The rows as of a time, then every update after it; the two meet without gap."""
        self.state()
        return start_subscription(
            self.machine,
            self._leases,
            as_of,
            until=until,
            snapshot=snapshot,
            columns=columns,
            filter=filter,
            on_error=on_error,
            start_signal=start_signal,
            workers=workers,
        )

    def wait_past(
        self, time: Time, *, timeout_ms: int | None = None, cancel: Cancel | None = None
    ) -> Frontier:
        """Wait until `time` is settled, and return the upper."""
        upper, _ = wait_past(
            self.machine,
            valid_time(time),
            timeout_ms=timeout_ms,
            cancel=cancel,
            shard_id=self.id,
        )
        return upper

    def hold(self, name: str, since: Time, *, epoch: int = 0, note: str = "") -> None:
        """Place or move a critical hold: it does not expire, and a higher epoch fences it."""
        valid_name(name, "hold")
        self.machine.demand(c.Hold(name, valid_time(since, "since"), epoch, note))

    def release_hold(self, name: str, *, epoch: int = 0) -> None:
        self.machine.demand(c.Unhold(valid_name(name, "hold"), epoch))

    def txn(self, app: str) -> int | None:
        """The newest batch of an application that counted here, or `None`.

        A batch up to it will be `Repeated`, so there is no need to compute it again.
        """
        mark = self.state().txns.get(valid_app(app))
        return None if mark is None else mark.batch

    def forget_txn(self, app: str) -> int | None:
        """Forget an application, and return its newest batch, or `None` if it is not known.

        From then on every batch of that name is new, also one that counted before: do this only
        for an application that will not come back. One that appends meanwhile is not forgotten,
        and `ConflictError` says so.
        """
        mark = self.state().txns.get(valid_app(app))
        if mark is None:
            return None
        self.machine.demand(c.ForgetTxn(app, mark.seqno))
        return mark.batch

    def fence(self, epoch: int) -> None:
        """Refuse appends of every epoch below this one, for ever."""
        self.machine.demand(c.Fence(epoch))

    def retain(self, rule: str | Retention) -> None:
        """How much history stays readable: `'1h'`, `'7d'`, `'100 versions'`, `'forever'`."""
        retention = parse_retention(rule) if isinstance(rule, str) else rule
        self.machine.demand(c.Retain(retention))

    def evolve(self, schema: pa.Schema) -> None:
        """Take a new schema: new nullable columns and wider types; all else is refused."""
        while True:
            current = self.state().schema
            wanted: Schema = current.evolve(schema)
            if wanted == current:
                return
            outcome, _ = self.machine.commit(c.Evolve(current.version, wanted))
            if not isinstance(outcome, c.Stale):
                raise_refusal(self.name, outcome)
                return

    def compact(self, *, full: bool = False) -> None:
        """Merge what is due now, or with `full` everything, instead of waiting for upkeep."""
        self._upkeep.compact(self.machine, full=full)

    def _same(self, state: State) -> State:
        """A handle belongs to one shard, not to whatever has its name later."""
        if state.id != self.id:
            raise NotFoundError(f"shard {self.name} was dropped and created anew: open it again")
        if state.dropped:
            raise NotFoundError(f"shard {self.name} was dropped")
        return state

    def __repr__(self) -> str:
        state = self.machine.state
        return f"<Shard {state.name} since={state.since} upper={state.upper} {state.seqno}>"

    def _repr_html_(self) -> str:
        state = self.machine.state
        columns = ", ".join(f"{f.name} {f.type}" for f in state.schema.fields)
        rows = sum(batch.rows for batch in state.batches)
        facts = [
            ("shard", state.name),
            ("columns", columns),
            ("key", ", ".join(state.schema.key) or "none"),
            ("since, upper", f"{state.since}, {state.upper}"),
            ("updates", f"{rows:,}"),
            ("parts", f"{sum(batch.part_count for batch in state.batches):,}"),
        ]
        return html_table(facts)


def html_table(facts: Sequence[tuple[str, str]]) -> str:
    """Two columns of text, escaped, for notebooks."""
    rows = "".join(f"<tr><th>{_escaped(k)}</th><td>{_escaped(v)}</td></tr>" for k, v in facts)
    return f"<table>{rows}</table>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _same_columns(ours: Schema, theirs: Schema) -> bool:
    return [(f.name, f.type) for f in ours.fields] == [(f.name, f.type) for f in theirs.fields]


def check_same(state: State, schema: pa.Schema | None, key: Sequence[str]) -> None:
    """An existing shard must be what its opener thinks it is."""
    if key and tuple(key) != state.schema.key:
        raise SchemaError(
            f"shard {state.name} has the key {state.schema.key}, not {printable(tuple(key))}"
        )
    if schema is not None and not _same_columns(state.schema, Schema.create(schema)):
        raise SchemaError(
            f"shard {state.name} exists with other columns ({', '.join(state.schema.names)}); "
            "open it without a schema, or change it with evolve()"
        )
