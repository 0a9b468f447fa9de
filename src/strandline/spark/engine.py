"""The Engine port on Spark: what the property tests compare with the obviously right one.

Frames are DataFrames. Everything but `consolidate` is a call of a table or of its shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from strandline.errors import ConflictError, SchemaError
from strandline.model.digest import Digest
from strandline.model.engine import DELETE_COLUMN, ORDER_COLUMN, Rules, Written
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.consolidate import consolidate
from strandline.reading.fetch import fetch_part
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described
from strandline.spark.desk import Desk
from strandline.spark.incoming import Meaning
from strandline.spark.landed import Landed
from strandline.spark.opening import open_table
from strandline.spark.table import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.handles.store import Store
    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.shard.command import UpperMismatch
    from strandline.spark.table import Table


_ALL = Request(None, None)
_BEYOND = f"the {DIFF_COLUMN} of a row add up to more than 64 bits can hold"


class SparkEngine:
    """Shards of one store, whose rows Spark computes."""

    def __init__(self, spark: SparkSession, store: Store, *, slots: int | None = None) -> None:
        self._spark = spark
        self._store = store
        self._slots = slots
        self._tables: dict[str, Table] = {}

    def create(self, shard: str, schema: Schema) -> None:
        self._store.shard(shard, schema=schema.arrow(), key=schema.key)

    def write(self, shard: str, updates: DataFrame, upper: Time) -> Written:
        table = self.table(shard)
        lower = table.shard.upper.time or 0
        return _written(shard, table.append(updates, lower=lower, upper=upper))

    def upsert(self, shard: str, rows: DataFrame, upper: Time, rules: Rules) -> Written:
        table = self.table(shard)
        lower = table.shard.upper.time or 0
        orders = sorted(
            (name for name in rows.columns if name.startswith(ORDER_COLUMN)),
            key=lambda name: int(name.removeprefix(ORDER_COLUMN)),
        )
        gone = DELETE_COLUMN if DELETE_COLUMN in rows.columns else None
        meaning = Meaning(tuple(orders), gone, rules.compare_stored)
        return _written(shard, table.upsert_as(rows, meaning, lower=lower, upper=upper))

    def read(self, shard: str, as_of: Time) -> DataFrame:
        return self.table(shard).df(self._spark, as_of)

    def changes(self, shard: str, start: Time, end: Time) -> DataFrame:
        at = self.table(shard).shard
        machine = at.machine
        with Desk(self._store, at, ("", 0)).view() as view:
            listed = described(machine, view.state, _ALL, Bounds(after=start, upto=end))
            found = [fetch_part(self._store.env.blob, part) for part in listed.parts]
        updates = pa.concat_tables([view.state.schema.updates().empty_table(), *found])
        return self._frame(consolidate(updates))

    def lookup(self, shard: str, keys: DataFrame, as_of: Time) -> DataFrame:
        return self.table(shard).lookup(keys, as_of)

    def consolidate(self, updates: DataFrame) -> DataFrame:
        names = [name for name in updates.columns if name != DIFF_COLUMN]
        if any(field.dataType.typeName() == "map" for field in updates.schema.fields):
            raise SchemaError("Spark can't compare maps: consolidate them through a shard")
        # Else a session without ANSI mode would go on with another number.
        total = f"coalesce(try_sum(`{DIFF_COLUMN}`), raise_error('{_BEYOND}'))"
        summed = updates.groupBy(*names).agg(F.expr(total).cast("bigint").alias(DIFF_COLUMN))
        return summed.where(F.col(DIFF_COLUMN) != 0)

    def digest(self, shard: str, as_of: Time) -> Digest:
        """From the facts of whole parts; only those that go on after `as_of` are read."""
        total = Digest.ZERO
        at = self.table(shard).shard
        schema = at.machine.state.schema
        with at.snapshot(as_of) as snapshot:
            for part in snapshot.parts():
                if part.whole:
                    total += part.piece.total
                    continue
                updates = fetch_part(self._store.env.blob, part)
                hashes = row_base(updates.select(list(schema.names)), schema.ids)
                diffs = updates.column(DIFF_COLUMN).to_numpy().astype(np.int64)
                total += Digest.of(hashes, diffs)
        return total

    def table(self, shard: str) -> Table:
        if shard not in self._tables:
            self._tables[shard] = open_table(self._store, shard, slots=self._slots)
        return self._tables[shard]

    def _frame(self, rows: pa.Table) -> DataFrame:
        return frame_of(self._spark, rows)


def _written(shard: str, outcome: Landed | UpperMismatch) -> Written:
    if not isinstance(outcome, Landed):
        raise ConflictError(f"shard {shard}: somebody else has written up to {outcome.upper}")
    return Written(
        outcome.upper.time or 0,
        outcome.updates,
        outcome.digest,
        outcome.superseded,
        outcome.late,
        outcome.unchanged,
    )
