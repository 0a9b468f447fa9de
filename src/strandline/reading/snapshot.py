"""A shard's rows as of one time: found at once, read when they are asked for.

    with shard.snapshot(as_of=7) as snapshot:
        snapshot.to_pandas()

Whoever takes a snapshot pins its parts first and lists them then. The pin goes back when all
bytes have arrived, or with `close`; rows that were read stay in memory with the snapshot.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import BoundsError, HandleClosedError, InvariantError
from strandline.model.frontier import Time, valid_time
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.consolidate import Overlay, as_updates, consolidate, expand, overlay
from strandline.reading.diagnose import diagnose
from strandline.reading.extract import is_clean
from strandline.reading.frames import for_duckdb, for_polars
from strandline.reading.gather import Failed, gather
from strandline.reading.listing import check_since, newest_time
from strandline.reading.request import Bounds, Request
from strandline.reading.show import html_rows
from strandline.reading.view import Described, described, pinned_view, same_shard, time_at
from strandline.shard.frontiers import wait_past

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import pandas as pd
    import polars as pl

    from strandline.parts.filters import FilterSpec
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.view import View
    from strandline.shard.cancel import Cancel
    from strandline.shard.lease import ReadLease
    from strandline.shard.leases import Leases
    from strandline.shard.machine import Machine
    from strandline.shard.state import State

_SHOWN_ROWS = 10
_SHOWN_READ_MAX = 100_000
"""A notebook shows rows of a snapshot that was not read yet only up to this many."""


class Snapshot:
    """The rows of a shard as of one time; the same for ever, from any process."""

    def __init__(
        self, lease: ReadLease, view: View, as_of: Time, request: Request, cancel: Cancel | None
    ) -> None:
        self.as_of = as_of
        self.shard = view.state.name
        self._lease = lease
        self._pin = view.pin
        self._state = view.state
        self._request = request
        self._cancel = cancel
        self._own_lease = False
        self._closed = False
        self._read: Overlay | None = None
        self._listed: Described = described(lease.machine, view.state, request, Bounds(as_of=as_of))
        self._missing = {part.id for part in self._listed.parts}

    @property
    def schema(self) -> pa.Schema:
        """The columns, without `_time` and `_diff`."""
        return self._request.arrow(self._state.schema)

    def to_arrow(self) -> pa.Table:
        """The rows, each as often as it occurs."""
        return expand(self._rows(), f"shard {self.shard} as of {self.as_of}")

    def to_pandas(self) -> pd.DataFrame:
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        # Polars starts threads when it is imported, which a forked child would not have.
        import polars as pl  # noqa: PLC0415

        frame = pl.from_arrow(for_polars(self.to_arrow()))
        if not isinstance(frame, pl.DataFrame):
            raise InvariantError("a table did not become a frame")
        return frame

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection, name: str | None = None) -> object:
        """Register the rows as a view called `name`, by default the shard's name."""
        view = self.shard if name is None else name
        connection.register(view, for_duckdb(self.to_arrow()))
        return connection.table(f'"{view.replace(chr(34), chr(34) * 2)}"')

    def updates(self) -> pa.Table:
        """The rows with `_time` and `_diff`: one for each distinct row, at `as_of`.

        Unlike the others it also shows rows that were retracted more often than inserted.
        """
        found = self._rows()
        names = self.schema.names
        rest = found.rest.schema
        inserted = [as_updates(table, names).cast(rest) for table in found.clean]
        summed = consolidate(pa.concat_tables([*inserted, found.rest]))
        times = pa.repeat(pa.scalar(self.as_of, pa.int64()), summed.num_rows)
        time_field = self._state.schema.updates().field(len(self._state.schema.names))
        return summed.add_column(len(names), time_field, times)

    def count(self) -> int:
        """How many rows there are; nothing is read where the metadata knows."""
        known = self._read is None and not self._request.spec
        if known and all(part.whole for part in self._listed.parts):
            return sum(part.piece.total.count for part in self._listed.parts)
        found = self._rows()
        rest: int = pc.sum(found.rest.column(DIFF_COLUMN)).as_py() or 0
        return rest + sum(int(table.num_rows) for table in found.clean)

    def parts(self) -> list[PartDescriptor]:
        """What is to be fetched, for workers elsewhere; see `fetch.fetch_part`.

        The snapshot keeps the parts until each was reported with `arrived`, or until `close`.
        """
        self._check_open()
        return list(self._listed.parts)

    def arrived(self, descriptor: PartDescriptor) -> None:
        """The bytes of a part are in hand, wherever that is. Repeating it is harmless."""
        self._missing.discard(descriptor.id)
        if not self._missing:
            self._let_go()

    def close(self) -> None:
        """Let go of parts and rows. Repeating it is harmless."""
        self._closed = True
        self._read = None
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Snapshot of {self.shard} as of {self.as_of}>"

    def _repr_html_(self) -> str:
        size = sum(part.piece.rows for part in self._listed.parts)
        small = self._read is not None or size <= _SHOWN_READ_MAX
        rows = self.to_arrow().slice(0, _SHOWN_ROWS) if small and not self._closed else None
        total = self.count() if not self._closed else None
        return html_rows(f"{self.shard} as of {self.as_of}", self.schema, rows, total)

    def take_over(self, lease: ReadLease) -> None:
        """Close this lease with the snapshot: it was taken for it alone."""
        self._own_lease = lease is self._lease

    def _rows(self) -> Overlay:
        self._check_open()
        if self._read is None:
            self._read = self._fetched()
            self._missing.clear()
            self._let_go()
        return self._read

    def _fetched(self) -> Overlay:
        self._lease.check()
        wanted = [*self._listed.parts, *self._listed.audits]
        machine = self._lease.machine
        found = gather(machine.env, self.shard, wanted, self._cancel)
        if isinstance(found, Failed):
            raise diagnose(machine, self._lease.id, found.descriptor, found.error)
        count = len(self._listed.parts)
        check_audits(machine, self._listed.audits, found[count:])
        clean: list[pa.Table] = []
        tail: list[pa.Table] = [self._empty()]
        for part, table in zip(self._listed.parts, found, strict=False):
            (clean if is_clean(part) else tail).append(table)
        return overlay(clean, pa.concat_tables(tail), self._state.schema.key)

    def _empty(self) -> pa.Table:
        diff = self._state.schema.updates().field(DIFF_COLUMN)
        return pa.schema([*self.schema, diff]).empty_table()

    def _check_open(self) -> None:
        if self._closed:
            raise HandleClosedError(f"{self!r} was closed: take a new one")
        self._lease.machine.env.home.check()
        if self._read is None and self._missing == set() and self._listed.parts:
            raise HandleClosedError(f"all parts of {self!r} were handed on: take a new one")

    def _let_go(self) -> None:
        self._pin.give_back()
        if self._own_lease:
            self._own_lease = False
            self._lease.close()


def check_audits(
    machine: Machine, audits: Sequence[PartDescriptor], found: Sequence[pa.Table]
) -> None:
    """What statistics left out must not hold a row that matches (S17)."""
    for audit, table in zip(audits, found, strict=True):
        machine.env.metrics.add("prune_audits", machine.name)
        if table.num_rows:
            raise InvariantError(
                f"{audit} was left out by its statistics, but {table.num_rows} of its rows match"
            )


def take_snapshot(  # noqa: PLR0913 - each is a word of the public call
    machine: Machine,
    leases: Leases,
    as_of: Time | datetime | None,
    *,
    columns: Sequence[str] | None = None,
    filter: FilterSpec | None = None,  # noqa: A002 - the word that users of Parquet readers know
    timeout_ms: int | None = None,
    cancel: Cancel | None = None,
) -> Snapshot:
    """The rows as of a time; waits until it is settled."""
    lease = leases.own_reader(machine)
    view = pinned_view(lease)
    try:
        request = Request.parse(columns, filter, view.state.schema)
        time = _resolve(machine, view, as_of)
        check_since(view.state, time)
        if view.upper.settled(time):
            return Snapshot(lease, view, time, request, cancel)
    except BaseException:
        view.pin.give_back()
        raise
    view.pin.give_back()
    return _wait(leases, view.state, machine, time, request, (timeout_ms, cancel))


def _wait(
    leases: Leases,
    before: State,
    machine: Machine,
    time: Time,
    request: Request,
    limits: tuple[int | None, Cancel | None],
) -> Snapshot:
    """Hold the time, then wait for it: history must not be merged past it meanwhile (S38).

    What was asked for was understood in the state `before`, so it must stay the same shard.
    """
    timeout_ms, cancel = limits
    lease = leases.reader(machine, since=time, purpose=f"snapshot as of {time}")
    try:
        same_shard(machine.state, before.id)
        wait_past(machine, time, cancel=cancel, timeout_ms=timeout_ms, shard_id=before.id)
        view = pinned_view(lease)
        same_shard(view.state, before.id)
        snapshot = Snapshot(lease, view, time, request, cancel)
    except BaseException:
        lease.close()
        raise
    snapshot.take_over(lease)
    return snapshot


def _resolve(machine: Machine, view: View, as_of: Time | datetime | None) -> Time:
    if as_of is None:
        return newest_time(view.state, view.upper)
    if isinstance(as_of, datetime):
        if as_of.tzinfo is None:
            raise BoundsError(
                f"{as_of.isoformat()} has no time zone, so it is no instant: "
                "write datetime(..., tzinfo=timezone.utc)"
            )
        return time_at(machine, view, int(as_of.timestamp() * 1000))
    return valid_time(as_of, "as_of")
