"""Changes and whole collections as relations that a view's query reads."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from strandline.model.schema import DIFF_COLUMN
from strandline.spark.changes import changes_in, encode_parts, read_parts
from strandline.spark.jobs import closure
from strandline.spark.layouts import spark_struct
from strandline.spark.scan import Scan
from strandline.spark.table import frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from strandline.model.schema import Schema
    from strandline.parts.part import Part
    from strandline.pipeline.compute import Delta
    from strandline.spark.jobs import Jobs
    from strandline.spark.premises import Premises

_PREFIX = "strandline_"


@dataclass(frozen=True, slots=True)
class Changes:
    """What changes in a collection: its columns and `_diff`, here or in parts."""

    premises: Premises
    collection: str
    few: pa.Table
    """All of it, if there are no parts."""
    parts: tuple[Part, ...] = ()

    @classmethod
    def of(cls, premises: Premises, collection: str, delta: Delta | None) -> Changes:
        schema = premises.schema(collection)
        names = [*schema.names, DIFF_COLUMN]
        layout = pa.schema([schema.updates().field(name) for name in names])
        if delta is None:
            return cls(premises, collection, layout.empty_table())
        if delta.batch is None and delta.updates is not None:
            return cls(premises, collection, delta.updates.select(names).cast(layout))
        chunks = premises.desk(collection).shard.machine.chunks
        parts = list(delta.batch.parts) if delta.batch is not None else []
        for chunk in delta.batch.chunks if delta.batch is not None else ():
            parts += chunks.table(
                chunk, shard_id=premises.state(collection).id, stats=False
            ).parts()
        return cls(premises, collection, layout.empty_table(), tuple(parts))

    @property
    def schema(self) -> Schema:
        return self.premises.schema(self.collection)

    def frame(self, spark: SparkSession) -> DataFrame:
        """As a DataFrame; nothing runs before somebody uses it."""
        if not self.parts:
            return frame_of(spark, self.few)
        count = len(self.parts)
        numbers = spark.range(0, count, 1, numPartitions=count)
        told = (self.premises.stand(self.collection).site, encode_parts(self.parts))
        return numbers.mapInArrow(closure(read_parts, told), spark_struct(self.few.schema))

    def rows(self) -> pa.Table:
        """All of it, here."""
        bench = self.premises.stand(self.collection).bench
        return pa.concat_tables([self.few, *(changes_in(bench, part) for part in self.parts)])


@contextmanager
def relations(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[dict[str, str]]:
    """Names under which queries find these frames, by collection; they are gone afterwards."""
    named = {name: f"{_PREFIX}{at}" for at, name in enumerate(frames)}
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(named[name])
        yield named
    finally:
        for relation in named.values():
            spark.catalog.dropTempView(relation)


class Whole:
    """Collections as they are before and after a transaction."""

    def __init__(self, premises: Premises, spark: SparkSession, jobs: Jobs) -> None:
        self._premises = premises
        self._spark = spark
        self._jobs = jobs

    def before(self, collection: str) -> DataFrame:
        premises = self._premises
        desk, view = premises.desk(collection), premises.view(collection)
        premises.stand(collection)
        time = None if premises.is_empty(collection) else premises.as_of
        return Scan(desk, self._spark, self._jobs, view, time).frame()

    def after(self, changes: Changes) -> DataFrame:
        """What was there and the changes: nobody else can read that yet."""
        before = self.before(changes.collection)
        if not changes.parts and not changes.few.num_rows:
            return before
        inserted = self._often(changes, 1)
        if self._premises.is_empty(changes.collection):
            return inserted
        if changes.schema.key:
            return self._without_keys(before, changes).unionAll(inserted)
        if not changes.parts and pc.min(changes.few[DIFF_COLUMN]).as_py() > 0:
            return before.unionAll(inserted)
        return before.exceptAll(self._often(changes, -1)).unionAll(inserted)

    def _without_keys(self, before: DataFrame, changes: Changes) -> DataFrame:
        """A key holds one row at most, so all rows of keys that change are new."""
        key = [quoted(name) for name in changes.schema.key]
        names = [quoted(name) for name in changes.schema.names]
        keys = changes.frame(self._spark).select(*key).distinct()
        if not changes.parts:
            keys = F.broadcast(keys)
        return before.join(keys, list(changes.schema.key), "left_anti").select(*names)

    def _often(self, changes: Changes, sign: int) -> DataFrame:
        """The rows that are inserted (1) or retracted (-1), each as often as it is."""
        names = list(changes.schema.names)
        if not changes.parts:
            diffs = changes.few[DIFF_COLUMN].to_numpy() * sign
            places = np.repeat(np.arange(len(diffs)), np.maximum(diffs, 0))
            return frame_of(self._spark, changes.few.select(names).take(pa.array(places)))
        times = F.expr(f"sequence(1L, {sign} * `{DIFF_COLUMN}`)")
        some = changes.frame(self._spark).where(F.col(DIFF_COLUMN) * sign > 0)
        columns = [quoted(name) for name in names]
        return some.select(*columns, F.explode(times).alias("_nth")).select(*columns)


def quoted(name: str) -> Column:
    """A column, whatever its name."""
    return F.col("`" + name.replace("`", "``") + "`")
