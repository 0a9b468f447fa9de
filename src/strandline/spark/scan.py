"""A table as a DataFrame: Spark's own Parquet scan, corrected by what the tail says.

    snapshot = scan of parts that only insert and hold no touched key        (nothing else read)
             + scan of those that may, without the rows of touched keys      (anti join, broadcast)
             + rows of touched keys, looked up when the DataFrame runs       (range tasks)
             + what the tail inserts for other keys                          (few rows, from here)

A key is touched if the tail, added up, retracts something of it. Nothing runs here: no job is
started before somebody uses the DataFrame. Columns that are not asked for are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.functions import broadcast, col, lit
from pyspark.sql.types import LongType, StructField, StructType

from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import Overlay, consolidate, expand
from strandline.parts.layout import lay_out
from strandline.parts.lookup import Keys, find
from strandline.reading.diagnose import diagnose
from strandline.reading.gather import Failed, gather
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described
from strandline.spark import worker
from strandline.spark.arrowtypes import for_spark
from strandline.spark.errands import send
from strandline.spark.instruction import Errand
from strandline.spark.jobs import closure
from strandline.spark.layouts import spark_struct
from strandline.spark.plan import Gathered, ranges
from strandline.spark.scanplan import GLOBS, divide, encode_work, scans_natively
from strandline.spark.source_plan import plan_changes, plan_snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.model.frontier import Time
    from strandline.reading.descriptor import PartDescriptor
    from strandline.reading.view import View
    from strandline.spark.desk import Desk
    from strandline.spark.jobs import Jobs
    from strandline.spark.scanplan import Divided
    from strandline.spark.source_plan import Work

TASK_BYTES = 64 * 1024 * 1024
"""What one task of ours reads, where Spark's reader can't be used."""
_READ_OPTIONS = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
"""What a session may have set otherwise: then rows would be left out, or be other rows. Pages are
verified as everywhere else; Spark does not by default."""
_encoder = msgspec.msgpack.Encoder()


class Scan:
    """One snapshot of one table, on its way to become a DataFrame. The caller holds the view."""

    def __init__(
        self, desk: Desk, spark: SparkSession, jobs: Jobs, view: View, time: Time | None
    ) -> None:
        self._desk = desk
        self._spark = spark
        self._jobs = jobs
        self._view = view
        self._time = time
        self._schema = view.state.schema
        self._layout = spark_struct(self._schema.arrow())

    def frame(self) -> DataFrame:
        """The rows as of the time."""
        if self._time is None:
            return self._few(self._schema.arrow().empty_table())
        machine, state = self._desk.shard.machine, self._view.state
        request = Request.parse(None, None, state.schema)
        parts = described(machine, state, request, Bounds(as_of=self._time)).parts
        divided = divide(parts)
        retracting = not self._schema.key and divided.tail
        if not self._is_native() or not divided.is_light:
            return self._by_tasks(parts)
        tail = self._tail(divided)
        negative = tail.filter(pc.less(tail.column(DIFF_COLUMN), 0))
        if not negative.num_rows:
            return self._joined(self._scanned(divided), tail)
        if retracting:
            return self._by_tasks(parts)
        return self._corrected(divided, tail, negative)

    def changes(self, start: Time, end: Time) -> DataFrame:
        """The updates of the times in `[start, end)`, with `_time` and `_diff`."""
        machine, state = self._desk.shard.machine, self._view.state
        request = Request.parse(None, None, state.schema)
        parts = described(machine, state, request, Bounds(after=start, upto=end)).parts
        works = plan_changes(parts, bytes_max=TASK_BYTES)
        return self._from_works(works, worker.change_works, self._schema.updates())

    # Spark's own scan.

    def _is_native(self) -> bool:
        folder = self._desk.object_folder()
        return not GLOBS.intersection(folder) and all(
            scans_natively(field.type) for field in self._schema.fields
        )

    def _scanned(self, divided: Divided) -> DataFrame | None:
        """What Spark reads; `None` if there is nothing."""
        folder = self._desk.object_folder()
        frames = []
        for is_cut, keys in divided.scans():
            layout = self._layout
            if is_cut:
                layout = StructType([*layout.fields, StructField(TIME_COLUMN, LongType())])
            read = self._spark.read.schema(layout).options(**_READ_OPTIONS)
            frame = read.parquet(*(f"{folder}/{key}" for key in keys))
            if is_cut:
                frame = frame.where(col(TIME_COLUMN) <= lit(self._time)).drop(TIME_COLUMN)
            frames.append(frame)
        if not frames:
            return None
        return frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])

    # What corrects it.

    def _tail(self, divided: Divided) -> pa.Table:
        """The tail added up: one update for each row, at the time of the snapshot."""
        machine = self._desk.shard.machine
        found = gather(self._desk.env, self._desk.name, divided.tail)
        if isinstance(found, Failed):
            raise diagnose(machine, "", found.descriptor, found.error)
        columns = [*self._schema.names, DIFF_COLUMN]
        diff = self._schema.updates().field(DIFF_COLUMN)
        empty = pa.schema([*self._schema.arrow(), diff]).empty_table()
        return consolidate(pa.concat_tables([empty, *(each.select(columns) for each in found)]))

    def _corrected(self, divided: Divided, tail: pa.Table, negative: pa.Table) -> DataFrame:
        schema = self._schema
        touched = Keys.of(negative, schema)
        laid = lay_out(tail, schema)
        others = np.ones(laid.updates.num_rows, np.bool_)
        if laid.places is not None:
            others[find(laid.updates, laid.places, touched)] = False
        rest = laid.updates.filter(pa.array(others))
        near, far = divided.split(touched.places)
        scanned, others_scanned = self._scanned(near), self._scanned(far)
        if scanned is not None:
            keys = self._few(touched.values.select(list(schema.key)))
            scanned = scanned.join(broadcast(keys), list(schema.key), "left_anti").select(
                *(col(f"`{name}`") for name in self._names())
            )
        if others_scanned is not None:
            scanned = others_scanned if scanned is None else scanned.unionAll(others_scanned)
        return self._joined(scanned, rest).unionAll(self._looked_up(touched))

    def _looked_up(self, touched: Keys) -> DataFrame:
        """The rows of touched keys; range tasks look them up when the DataFrame runs."""
        desk, state = self._desk, self._view.state
        came = Gathered(touched.values, touched.places)
        there = desk.stored(state, self._time, came)
        errands = [
            Errand(tuple(work), self._time) for work in ranges(came, there, self._jobs.slots)
        ]
        stand = desk.stand(self._schema)
        sent = send(errands, desk.shard.id, stand.bench.put_object)
        told = (stand.site, _encoder.encode(sent))
        return self._from_tasks(len(sent.ends), worker.look_up_rows, told, self._layout)

    def _joined(self, scanned: DataFrame | None, inserted: pa.Table) -> DataFrame:
        """The scan and the rows that updates insert; they retract nothing."""
        if scanned is not None and not inserted.num_rows:
            return scanned
        rest = inserted.select([*self._schema.names, DIFF_COLUMN])
        few = self._few(expand(Overlay((), rest), f"table {self._desk.name} as of {self._time}"))
        return few if scanned is None else scanned.unionAll(few)

    # Tasks of ours that read everything.

    def _by_tasks(self, parts: list[PartDescriptor]) -> DataFrame:
        works = plan_snapshot(parts, bytes_max=TASK_BYTES)
        return self._from_works(works, worker.read_works, self._schema.arrow())

    def _from_works(self, works: list[Work], task: object, columns: pa.Schema) -> DataFrame:
        if not works:
            return self._few(columns.empty_table())
        stand = self._desk.stand(self._schema)
        pieces = [encode_work(work) for work in works]
        ends = np.cumsum([len(piece) for piece in pieces]).tolist()
        key = stand.bench.put_object(b"".join(pieces), "works")
        return self._from_tasks(len(works), task, (stand.site, key, ends), spark_struct(columns))

    def _from_tasks(
        self, count: int, task: object, told: tuple[object, ...], layout: StructType
    ) -> DataFrame:
        numbers = self._spark.range(0, count, 1, numPartitions=count)
        return numbers.mapInArrow(closure(task, told), layout)  # type: ignore[arg-type]

    def _few(self, rows: pa.Table) -> DataFrame:
        # As one chunk: Spark takes an empty one for the end, and leaves out all rows after it.
        taken = for_spark(rows).combine_chunks()
        return self._spark.createDataFrame(taken, spark_struct(rows.schema))

    def _names(self) -> list[str]:
        return [name.replace("`", "``") for name in self._schema.names]
