"""Streaming reads of `format("strandline")`: offsets are frontiers.

    {"shard": "s…", "frontier": 8}                      all versions before 8 have been read
    {"shard": "s…", "frontier": 0, "snapshot": true}    nothing yet: begin with the whole table

The first batch of a stream without startingVersion is the table as of the batch's last version;
every other batch is the versions between two frontiers. The reader's process lives as long as the
query: its lease keeps the versions that are not read yet, and the parts of a batch until Spark
says that the batch is done. Nothing keeps them while the query is stopped but the table's
retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from strandline.errors import BoundsError, CorruptionError, UsageError
from strandline.model.frontier import valid_time
from strandline.model.ids import printable
from strandline.reading.listing import check_since
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described, pinned_view
from strandline.spark.source_cast import arrow_of, as_spark
from strandline.spark.source_fetch import fetch_streamed
from strandline.spark.source_plan import admit, plan_changes, plan_snapshot
from strandline.spark.source_read import BATCH_ROWS, Piecework, checked_columns
from strandline.spark.source_rows import (
    CHANGE_COLUMNS,
    change_updates,
    changes,
    inserted,
    snapshot_rows,
    stamped,
)
from strandline.spark.source_store import (
    instants_of,
    last_version,
    open_store,
    task_blob,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.model.frontier import Time
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.view import View
    from strandline.shard.lease import Pin, ReadLease
    from strandline.spark.source_options import StreamRead


class _Live:
    """What the process of a running query holds."""

    def __init__(self, read: StreamRead) -> None:
        self.store: Store = open_store(read.place)
        self.shard: Shard = self.store.shard(read.place.table)
        self.lease: ReadLease = self.store.leases.reader_from(
            self.shard.machine, since=None, lease_ms=None, purpose="stream of Spark"
        )
        self.pins: list[tuple[Time, Pin]] = []
        """What batches that are not done yet read, with the frontier where each ends."""

    def done(self, frontier: Time) -> None:
        """Let go of what nobody will ask for again."""
        for end, pin in self.pins:
            if end <= frontier:
                pin.give_back()
        self.pins = [(end, pin) for end, pin in self.pins if end > frontier]
        since = max(frontier - 1, 0)
        if since > (self.lease.since or 0):
            self.lease.downgrade(since)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The rows of a table as they come, or its changes."""

    def __init__(self, read: StreamRead, schema: StructType) -> None:
        self._read = read
        self._schema = schema
        self._target: Time | None = None
        self._held: _Live | None = None

    def __getstate__(self) -> dict[str, object]:
        """Spark sends a copy to tasks, which hold nothing."""
        return {**self.__dict__, "_held": None}

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        view = self._view()
        start = self._read.start
        if start is None:
            return {**self._offset(0), "snapshot": True}
        newest = last_version(view)
        if start > (0 if newest is None else newest + 1):
            raise BoundsError(
                f"startingVersion {start} of table {view.state.name} does not exist: its newest "
                f"is {newest}"
            )
        check_since(view.state, max(start - 1, 0))
        return self._offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        if self._read.max_rows is not None:
            return ReadMaxRows(self._read.max_rows)
        if self._read.max_versions is not None:
            # Spark's limits are rows, files and bytes; a version is to us what a file is to it.
            return ReadMaxFiles(self._read.max_versions)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802 - Spark's name
        before = self._checked(start)
        view = pinned_view(self._live().lease)
        try:
            newest = last_version(view)
            upper = before if newest is None else max(before, newest + 1)
            if self._target is not None:
                upper = max(before, min(upper, self._target))
            if upper <= before:
                return start
            if not isinstance(limit, ReadAllAvailable):
                upper = self._admitted(view, before, upper, snapshot="snapshot" in start)
            return self._offset(upper)
        finally:
            view.pin.give_back()

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        newest = last_version(self._view())
        return self._offset(0 if newest is None else newest + 1)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        newest = last_version(self._view())
        self._target = 0 if newest is None else newest + 1

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        after, upto = self._checked(start), self._checked(end)
        if upto <= after:
            return []
        live = self._live()
        view = pinned_view(live.lease)
        live.pins.append((upto, view.pin))
        if "snapshot" in start:
            check_since(view.state, upto - 1)
            after, plan, bounds = upto - 1, plan_snapshot, Bounds(as_of=upto - 1)
        else:
            plan, bounds = plan_changes, Bounds(after=after, upto=upto)
        works = plan(self._described(view, bounds), bytes_max=self._read.partition_bytes)
        tasks = [Piecework(work, 0) for work in works]
        if self._read.feed:
            instants = instants_of(live.shard.machine, view.state, after, upto - 1)
            return [task.tell(instants) for task in tasks]
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piecework):
            return
        wanted = arrow_of(self._schema)
        for rows in self._rows(partition):
            yield from as_spark(rows, wanted).to_batches(max_chunksize=BATCH_ROWS)

    def commit(self, end: dict[str, object]) -> None:
        self._live().done(self._checked(end))

    def stop(self) -> None:
        if self._held is not None:
            self._held.store.close()
            self._held = None

    def _rows(self, partition: Piecework) -> Iterator[pa.Table]:
        work = partition.work()
        first = work.pieces[0] if work.pieces else work.against[0]
        fetch = fetch_streamed(task_blob(self._read.place.store))
        time = first.as_of
        found = change_updates(work, fetch)
        if time is not None:
            found = (stamped(rows, time) for rows in snapshot_rows(work, fetch))
        for updates in found:
            if self._read.feed:
                yield changes(updates, first.schema, partition.instants())
            else:
                yield inserted(updates, first.shard)

    def _described(self, view: View, bounds: Bounds) -> list[PartDescriptor]:
        schema = view.state.schema
        named = [name for name in self._schema.names if name not in CHANGE_COLUMNS]
        request = Request.parse(checked_columns(named, schema), None, schema)
        return described(self._live().shard.machine, view.state, request, bounds).parts

    def _admitted(self, view: View, start: Time, upper: Time, *, snapshot: bool) -> Time:
        bounds = Bounds(after=start, upto=upper)
        if snapshot:
            # The oldest there can be is as of `since`, whose own changes can't be listed.
            start, bounds = view.state.readable_from(), Bounds(as_of=upper - 1)
        # Only rows have to be looked up: lists of parts are fetched for them.
        return admit(
            () if self._read.max_rows is None else self._described(view, bounds),
            start,
            upper,
            max_rows=self._read.max_rows,
            max_versions=self._read.max_versions,
            snapshot=snapshot,
        )

    def _view(self) -> View:
        """The table as it is now; the pin goes back at once, since nothing is fetched."""
        view = pinned_view(self._live().lease)
        view.pin.give_back()
        return view

    def _live(self) -> _Live:
        if self._held is None:
            self._held = _Live(self._read)
        return self._held

    def _offset(self, frontier: Time) -> dict[str, object]:
        return {"shard": self._live().shard.id, "frontier": frontier}

    def _checked(self, offset: Mapping[str, object]) -> Time:
        """The frontier of an offset, if it is one of this table."""
        shard = self._live().shard
        found = offset.get("shard")
        if "frontier" not in offset or not isinstance(found, str):
            raise CorruptionError(f"offset {printable(offset)} is not one of a Strandline table")
        if found != shard.id:
            raise UsageError(
                f"the checkpoint belongs to another table: to shard {printable(found)}, and "
                f"{shard.name} is {shard.id}, maybe created anew; use a new checkpointLocation"
            )
        return valid_time(offset["frontier"], "frontier")
