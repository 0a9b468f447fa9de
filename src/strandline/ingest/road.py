"""How commands become updates of a shard: the port, and the road that needs nothing but Arrow.

A road looks old rows of touched keys up as of the time before the interval, takes the difference
and appends it. Who loses the race compares: what is settled must be what it computed, by digest,
or two replicas disagree and this one stops. A road of your own may compute elsewhere (`Options`);
for more rows than one process takes there are pipelines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from strandline.errors import LeaseLostError, MaybeAppliedError, SinceError
from strandline.handles.write import Appended
from strandline.model.engine import Rules
from strandline.parts.lookup import key_columns
from strandline.parts.upsert import resolve

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.handles.shard import Shard
    from strandline.handles.write import Writer
    from strandline.model.frontier import Frontier, Time
    from strandline.model.schema import Schema

_WHOLE_ROWS = 1_000
"""A shard with no more updates than this is read whole: conditions would cost more."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of an attempt to settle an interval."""

    upper: Frontier
    """How far the shard is settled now."""
    won: bool
    """Whether it was this attempt that counted."""
    rows: int = 0
    """Updates that were appended."""


class Road(Protocol):
    """Settles intervals of one shard."""

    def settle(self, commands: pa.Table | None, lower: Time, end: Frontier) -> Settled:
        """Append what the commands of `[lower, end)` mean, if `lower` is the shard's upper.

        Otherwise, as far as somebody else has settled these times, `ReplicaDivergedError` says
        that it was with other rows. Nothing is known of an attempt that raises anything else:
        it may be made again.
        """
        ...

    def compare(self, commands: pa.Table | None, lower: Time, end: Frontier) -> Frontier:
        """Compare what was settled in `[lower, end)`; how far that could be done.

        `SinceError` says that the history that it takes has been merged.
        """
        ...

    def close(self) -> None:
        """Give back what the road holds."""
        ...


class ArrowRoad:
    """Everything in this process."""

    def __init__(self, shard: Shard, rules: Rules | None = None, *, epoch: int = 0) -> None:
        self._shard = shard
        self._rules = rules or Rules()
        self._epoch = epoch
        self._lent: Writer | None = None

    def settle(self, commands: pa.Table | None, lower: Time, end: Frontier) -> Settled:
        updates = self._computed(commands, lower)
        try:
            outcome = self._writer().compare_and_append(
                updates, lower=lower, upper=end, epoch=self._epoch
            )
        except LeaseLostError:
            self._lent = None
            raise
        except MaybeAppliedError:
            # Whoever it was, these times are either settled with the same rows or still open.
            return Settled(self._verified(updates, lower, end), won=False)
        if isinstance(outcome, Appended):
            return Settled(outcome.upper, won=True, rows=outcome.rows)
        self._checked(updates, lower, end)
        return Settled(outcome.upper, won=False)

    def compare(self, commands: pa.Table | None, lower: Time, end: Frontier) -> Frontier:
        return self._verified(self._computed(commands, lower), lower, end)

    def close(self) -> None:
        if self._lent is not None:
            self._lent.close()
            self._lent = None

    def _checked(self, updates: pa.Table, lower: Time, end: Frontier) -> None:
        """Stop if a peer has settled something else; merged history can't be compared."""
        try:
            self._verified(updates, lower, end)
        except SinceError:
            self._shard.machine.env.metrics.add("ingest_unverified", self._shard.name)

    def _verified(self, updates: pa.Table, lower: Time, end: Frontier) -> Frontier:
        try:
            return self._writer().verify(updates, lower=lower, upper=end)
        except LeaseLostError:
            self._lent = None
            raise

    def _computed(self, commands: pa.Table | None, lower: Time) -> pa.Table:
        schema = self._shard.machine.state.schema
        if commands is None or not commands.num_rows:
            return schema.updates().empty_table()
        old = self._old_rows(commands, schema, lower)
        return resolve(commands, old, schema, self._rules).updates

    def _old_rows(self, commands: pa.Table, schema: Schema, lower: Time) -> pa.Table:
        """The rows that the keys of the commands hold before `lower`, and maybe some others."""
        if not lower:
            return schema.arrow().empty_table()
        with self._shard.snapshot(lower - 1) as whole:
            if sum(part.piece.rows for part in whole.parts()) <= _WHOLE_ROWS:
                return whole.to_arrow()
        keys = key_columns(commands, schema)
        wanted = [(name, "in", keys.column(name).to_pylist()) for name in keys.column_names]
        with self._shard.snapshot(lower - 1, filter=wanted) as some:
            return some.to_arrow()

    def _writer(self) -> Writer:
        if self._lent is None:
            self._lent = self._shard.writer("ingest")
        return self._lent
