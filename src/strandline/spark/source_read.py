"""Batch reads of `format("strandline")`: a snapshot, or the changes of some versions.

planner    hold for a term ─► list ─► divide into tasks      (`partitions`)
task       fetch ─► add up what may be retracted ─► Arrow     (`read`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql.datasource import DataSourceReader, InputPartition

from strandline.errors import SchemaError
from strandline.parts.part import Part
from strandline.reading.descriptor import decode_descriptor, encode_descriptor
from strandline.reading.listing import check_since, newest_time
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described, pinned_view, time_at
from strandline.spark.source_cast import arrow_of, as_spark
from strandline.spark.source_fetch import fetch_held
from strandline.spark.source_plan import Way, Work, plan_changes, plan_snapshot
from strandline.spark.source_rows import (
    CHANGE_COLUMNS,
    Instants,
    change_updates,
    changes,
    snapshot_rows,
)
from strandline.spark.source_store import (
    check_settled,
    instants_of,
    last_version,
    planning,
    task_blob,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.reading.view import View
    from strandline.shard.lease import ReadLease
    from strandline.spark.source_options import Feed, Scan

BATCH_ROWS = 65_536


class Piecework(InputPartition):
    """What one task reads, as it travels: descriptors are sealed bytes, the rest plain values."""

    def __init__(self, work: Work, lease_ms: int) -> None:
        self.way = work.way.value
        self.pieces = [encode_descriptor(each) for each in work.pieces]
        self.against = [encode_descriptor(each) for each in work.against]
        self.lo, self.hi = work.lo, work.hi
        self.lease_ms = lease_ms
        self.times: list[int] = []
        self.instants_ms: list[int] = []

    def work(self) -> Work:
        return Work(
            Way(self.way),
            tuple(decode_descriptor(each) for each in self.pieces),
            tuple(decode_descriptor(each) for each in self.against),
            self.lo,
            self.hi,
        )

    def instants(self) -> Instants:
        return Instants(np.array(self.times, np.int64), np.array(self.instants_ms, np.int64))

    def tell(self, instants: Instants) -> Piecework:
        self.times, self.instants_ms = instants.listed()
        return self


@dataclass(frozen=True, slots=True)
class _Listed:
    """What a planner found."""

    works: list[Work]
    instants: Instants | None = None


class SnapshotReader(DataSourceReader):
    """The rows of a table as of one version."""

    def __init__(self, scan: Scan, schema: StructType) -> None:
        self._scan = scan
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        scan = self._scan
        with planning(scan.place, scan.lease_ms) as hold:
            works = self._listed(hold.lease)
            hold.needed = _needs_objects(works)
        # Spark makes a task of its own for a list without any.
        return [Piecework(work, scan.lease_ms) for work in works]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piecework):  # An empty table has one task, with nothing.
            return
        wanted = arrow_of(self._schema)
        fetch = fetch_held(task_blob(self._scan.place.store), partition.lease_ms)
        for rows in snapshot_rows(partition.work(), fetch):
            yield from as_spark(rows, wanted).to_batches(max_chunksize=BATCH_ROWS)

    def _listed(self, lease: ReadLease) -> list[Work]:
        scan, machine = self._scan, lease.machine
        view = pinned_view(lease)
        names = checked_columns(self._schema.names, view.state.schema)
        time = self._time(lease, view)
        if time is None:
            return []
        while not view.upper.settled(time):
            # Its timeline was asked again, and was committed to between the two looks.
            view.pin.give_back()
            view = pinned_view(lease)
        request = Request.parse(names, None, view.state.schema)
        found = described(machine, view.state, request, Bounds(as_of=time))
        return plan_snapshot(found.parts, bytes_max=scan.partition_bytes)

    def _time(self, lease: ReadLease, view: View) -> Time | None:
        scan = self._scan
        if scan.timestamp is not None:
            return time_at(lease.machine, view, int(scan.timestamp.timestamp() * 1000))
        if scan.version is None:
            newest = newest_time(view.state, view.upper)
            return newest if view.upper.settled(newest) else None
        check_settled(view, scan.version, "version")
        check_since(view.state, scan.version)
        return scan.version


class FeedReader(DataSourceReader):
    """What happened to the rows of a table, version by version."""

    def __init__(self, feed: Feed, schema: StructType) -> None:
        self._feed = feed
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        feed = self._feed
        with planning(feed.place, feed.lease_ms) as hold:
            found = self._listed(hold.lease)
            hold.needed = _needs_objects(found.works)
        tasks = [Piecework(work, feed.lease_ms) for work in found.works]
        return [task if found.instants is None else task.tell(found.instants) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Piecework):
            return
        wanted = arrow_of(self._schema)
        work, instants = partition.work(), partition.instants()
        schema = work.pieces[0].schema
        fetch = fetch_held(task_blob(self._feed.place.store), partition.lease_ms)
        for updates in change_updates(work, fetch):
            rows = changes(updates, schema, instants)
            yield from as_spark(rows, wanted).to_batches(max_chunksize=BATCH_ROWS)

    def _listed(self, lease: ReadLease) -> _Listed:
        feed = self._feed
        view = pinned_view(lease)
        state = view.state
        named = [name for name in self._schema.names if name not in CHANGE_COLUMNS]
        names = checked_columns(named, state.schema)
        check_settled(view, feed.start, "startingVersion")
        if feed.end is not None:
            check_settled(view, feed.end, "endingVersion")
        check_since(state, max(feed.start - 1, 0))
        last = last_version(view) if feed.end is None else feed.end
        upto = feed.start if last is None else last + 1
        found = described(
            lease.machine,
            state,
            Request.parse(names, None, state.schema),
            Bounds(after=feed.start, upto=upto),
        )
        works = plan_changes(found.parts, bytes_max=feed.partition_bytes)
        return _Listed(works, instants_of(lease.machine, state, feed.start, upto - 1))


def checked_columns(names: Sequence[str], schema: Schema) -> tuple[str, ...]:
    """The columns to fetch: those that Spark asks for, and the key, by which rows meet."""
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise SchemaError(
            f"the table has no column {', '.join(missing)}: there are {', '.join(schema.names)}"
        )
    return tuple(dict.fromkeys((*names, *schema.key)))


def _needs_objects(works: Iterable[Work]) -> bool:
    pieces = (each.piece for work in works for each in (*work.pieces, *work.against))
    return any(isinstance(piece, Part) for piece in pieces)
