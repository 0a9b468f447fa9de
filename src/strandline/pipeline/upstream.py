"""Shards that tables are fed from: how their changes are read, and how their history is held.

A pipeline holds a shard that it reads under `source.<pipeline>.<table>`: from before the first
range is sealed on, at what was acknowledged, until the endpoint is removed. Which shards those
are, and ever were, is on record in the store before the first hold, so that nobody has to look
through all shards for what may be held there.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.errors import NotFoundError, SinceError, SourceGoneError, UsageError
from strandline.journal.entries import valid_pipeline
from strandline.journal.log import Journal
from strandline.journal.timeline import timeline_name
from strandline.model.frontier import TIME_MAX
from strandline.model.ids import printable, valid_name
from strandline.model.timeline import PIPELINE
from strandline.parts.consolidate import as_updates, consolidate
from strandline.pipeline.register import Register
from strandline.reading.diagnose import diagnose
from strandline.reading.gather import Failed, gather
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described, pinned_view
from strandline.shard.frontiers import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.connectors.source import Changes
    from strandline.handles.store import Store
    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig
    from strandline.shard.env import Env
    from strandline.shard.state import State

_HOLD = "source"


def hold_name(pipeline: str, endpoint: str) -> str:
    """Under which name a pipeline holds what an endpoint reads."""
    return valid_name(f"{_HOLD}.{pipeline}.{endpoint}", "hold")


class Read(msgspec.Struct, frozen=True, array_like=True):
    """The shards that a pipeline holds, or has held. Grows only: who holds late is found, too."""

    shards: tuple[str, ...] = ()


def read_by(env: Env, pipeline: str) -> Register[Read]:
    return Register(env, f"reads/{valid_pipeline(pipeline)}", "reads", Read)


class Upstream:
    """The changes of a shard. Reads need no name; without one nothing is held."""

    def __init__(
        self,
        store: Store,
        shard: str,
        hold: str = "",
        note: str = "",
        read: Register[Read] | None = None,
    ) -> None:
        self._store = store
        self._shard = store.shard(shard)
        self._hold = hold
        self._note = note
        self._read = read
        self._journal: Journal | None = None

    def schema(self) -> pa.Schema:
        return self._shard.state().schema.arrow()

    def key(self) -> tuple[str, ...]:
        return self._shard.key

    def identity(self) -> int:
        digest = blake2b(self._shard.id.encode(), digest_size=6).digest()
        return int.from_bytes(digest, "big")

    def since(self) -> int:
        return self._shard.state().readable_from()

    def upper(self) -> int:
        upper, _ = visible(self._shard.machine, self._shard.id)
        return TIME_MAX if upper.time is None else upper.time

    def filled(self) -> int:
        upper, state = visible(self._shard.machine, self._shard.id)
        # What lies above is not committed yet.
        stops = [each.upper for each in state.batches if upper.settled(each.upper - 1)]
        return max(stops, default=0)

    def given_up(self) -> str:
        """The shard of a view is that view's until another program of its pipeline is promoted."""
        timeline = self._shard.state().timeline or ""
        if not timeline.startswith(PIPELINE):
            return ""
        if self._journal is None:
            self._journal = Journal(self._store.env, timeline.removeprefix(PIPELINE))
        standing = self._journal.refresh()
        if not standing.epoch or any(
            each.shard == self._shard.name for each in standing.bindings.values()
        ):
            return ""
        name = self._shard.name.removeprefix(f"{standing.pipeline}.").partition(".")[0]
        now = standing.bindings.get(name)
        known = "has no such name" if now is None else f"means {now.shard} by {name}"
        return f"pipeline {standing.pipeline} {known} since another program was promoted"

    def admit(self, start: int, stop: int, rows: int) -> int:
        return admitted(self._shard.state(), (start, stop), rows)

    def changes(self, start: int, stop: int) -> Iterator[pa.Table]:
        """All at once: who has many rows reads them in tasks."""
        try:
            yield self._snapshot(stop - 1) if start == 0 else self._between(start, stop)
        except SinceError as error:
            raise SourceGoneError(
                f"changes from {start} to {stop} can't be read any more: {error}"
            ) from error

    def hold(self, since: int) -> None:
        held = self._shard.state().holds.get(self._hold)
        if held is not None and held.since > since:
            raise SinceError(
                f"shard {self._shard.name} is held from {held.since} on, and not from {since}",
                oldest=held.since,
            )
        if self._hold and held is None:
            if self._read is not None:
                name = self._shard.name
                self._read.change(lambda old: Read(tuple(sorted({*_shards(old), name}))))
            self._shard.hold(self._hold, since, note=self._note)

    def move_hold(self, since: int) -> None:
        held = self._shard.state().holds.get(self._hold)
        if held is not None and held.since < since:
            self._shard.hold(self._hold, since, note=self._note)

    def _snapshot(self, at: int) -> pa.Table:
        with self._shard.snapshot(as_of=at) as snapshot:
            rows = snapshot.to_arrow()
        return as_updates(rows, rows.column_names, time=at)

    def _between(self, start: int, stop: int) -> pa.Table:
        machine = self._shard.machine
        view = pinned_view(self._store.leases.own_reader(machine))
        try:
            request = Request.parse(None, None, view.state.schema)
            bounds = Bounds(after=start, upto=stop)
            parts = described(machine, view.state, request, bounds).parts
            found = gather(self._store.env, self._shard.name, parts)
        finally:
            view.pin.give_back()
        if isinstance(found, Failed):
            raise diagnose(machine, "", found.descriptor, found.error)
        empty = view.state.schema.updates().empty_table()
        tables = [each.select(empty.schema.names) for each in found]
        return consolidate(pa.concat_tables([empty, *tables]))


def admitted(state: State, bounds: tuple[int, int], rows: int) -> int:
    """How far from `start` towards `stop` about so many updates lie; one time at least.

    The rows of a batch of many times are taken to be spread evenly over them. Pure.
    """
    start, stop = bounds
    left = float(rows)
    for batch in state.batches:
        first, end = max(batch.lower, start), min(batch.upper, stop)
        if first >= end:
            continue
        each = batch.rows / (batch.upper - batch.lower)
        if each * (end - first) > left:
            return max(start + 1, first + int(left / each))
        left -= each * (end - first)
    return stop


def upstreams(store: Store, pipeline: str) -> Callable[[str], Callable[[str], Changes]]:
    """How an endpoint of a pipeline opens the shard that it reads."""

    def of(endpoint: str) -> Callable[[str], Changes]:
        def opened(shard: str) -> Changes:
            try:
                hold, read = hold_name(pipeline, endpoint), read_by(store.env, pipeline)
                found = Upstream(store, shard, hold, f"read by {pipeline}", read)
            except NotFoundError as error:
                raise NotFoundError(f"table {endpoint}: {error}") from error
            if store.shard(shard).state().timeline == timeline_name(pipeline):
                raise UsageError(
                    f"table {endpoint} reads shard {printable(shard)}, which this pipeline writes: "
                    "make it a view of that collection"
                )
            return found

        return opened

    return of


def release_removed(rig: Rig, standing: Standing) -> None:
    """Let go of what no endpoint reads any more, wherever that is on record. Whoever joins an epoch
    and each checkpoint does it again, so that no death and nobody who comes late leaves a hold."""
    prefix = hold_name(standing.pipeline, "x").removesuffix("x")
    reads = {
        (hold_name(standing.pipeline, each.name), each.options.get("shard"))
        for each in rig.program.tables
        if each.connector == "strandline" and standing.endpoints.get(each.name) != "removed"
    }
    store = rig.store
    left = [
        (shard, hold)
        for shard in _shards(read_by(store.env, standing.pipeline).read())
        for hold in _holds(store, shard)
        if hold.startswith(prefix)
        and "." not in hold.removeprefix(prefix)
        and (hold, shard) not in reads
    ]
    # A newer program may read it: what it holds was not there before its epoch.
    if left and rig.journal.refresh().epoch == standing.epoch:
        for shard, hold in left:
            with suppress(NotFoundError):
                store.shard(shard).release_hold(hold)


def _shards(read: Read | None) -> tuple[str, ...]:
    return () if read is None else read.shards


def _holds(store: Store, shard: str) -> list[str]:
    """What is held there now; nothing where it was dropped."""
    with suppress(NotFoundError):
        return list(store.shard(shard).state().holds)
    return []
