"""Views that are computed anew at each transaction, and compared with what they held: one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from strandline.model.digest import Digest
from strandline.model.schema import DIFF_COLUMN
from strandline.pipeline.catalog import VIEW_ERROR_COLUMNS, errors_of
from strandline.pipeline.compute import Delta
from strandline.pipeline.meaning import difference, updates_digest
from strandline.spark.changes import put_rows
from strandline.spark.instruction import decode_answer
from strandline.spark.landed import Load
from strandline.spark.queries import Raised, raising
from strandline.spark.relations import Changes, Whole, quoted, relations
from strandline.spark.schedule import RETURNED_BYTES
from strandline.views.rewrite import query_sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.jobs import Jobs
    from strandline.spark.premises import Premises
    from strandline.views.declared import View


@dataclass(frozen=True, slots=True)
class FullViews:
    """Computes views of one transaction that are not linear."""

    premises: Premises
    spark: SparkSession
    jobs: Jobs

    def deltas(self, view: View, known: Mapping[str, Delta]) -> dict[str, Delta]:
        """What changes in a view and in its errors.

        A query that raises leaves the view as it was: its error says that it is not as it should.
        """
        failed = VIEW_ERROR_COLUMNS.empty_table()
        delta = None
        try:
            delta = self._refreshed(view, known)
        except Raised as error:
            failed = pa.Table.from_pylist([{"row": "", "reason": str(error)}], VIEW_ERROR_COLUMNS)
        found = {errors_of(view.name): self._errors(view, failed), view.name: delta}
        return {name: each for name, each in found.items() if each is not None}

    def _refreshed(self, view: View, known: Mapping[str, Delta]) -> Delta | None:
        stand = self.premises.stand(view.name)
        whole = Whole(self.premises, self.spark, self.jobs)
        frames = {
            name: self._seen(name, whole.after(Changes.of(self.premises, name, known.get(name))))
            for name in view.reads
        }
        with relations(self.spark, frames) as named, raising():
            new = self.spark.sql(query_sql(view.sql, named, self.premises.work.now_ms))
            changed = _difference(new, whole.before(view.name), view.columns)
            told = (stand.site, self.premises.work.time, RETURNED_BYTES)
            answers = self.jobs.collect(changed, put_rows, *told)
        shard = stand.bench.ground.shard_id
        load = Load.of([decode_answer(each, shard) for each in answers])
        return self.premises.delta(view.name, load)

    def _seen(self, name: str, frame: DataFrame) -> DataFrame:
        """A table may have got columns that its views do not see."""
        seen = self.premises.work.seen.get(name)
        if seen is None or set(seen) == set(self.premises.schema(name).names):
            return frame
        return frame.select(*map(quoted, seen))

    def _errors(self, view: View, failed: pa.Table) -> Delta | None:
        name = errors_of(view.name)
        held = VIEW_ERROR_COLUMNS.empty_table()
        if not self.premises.is_empty(name):
            shard = self.premises.desk(name).shard
            with shard.snapshot(as_of=self.premises.as_of) as snapshot:
                held = snapshot.to_arrow()
        updates = difference(failed, held)
        digest = updates_digest(updates, self.premises.schema(name))
        return None if digest == Digest.ZERO else Delta(digest, updates)


def _difference(new: DataFrame, old: DataFrame, columns: tuple[str, ...]) -> DataFrame:
    """The updates that turn the rows `old` into the rows `new`."""
    names = [quoted(name) for name in columns]
    came = new.toDF(*columns).select(*names, F.lit(1).cast("bigint").alias(DIFF_COLUMN))
    went = old.select(*names, F.lit(-1).cast("bigint").alias(DIFF_COLUMN))
    summed = came.unionAll(went).groupBy(*names).agg(F.sum(DIFF_COLUMN).alias(DIFF_COLUMN))
    return summed.where(F.col(DIFF_COLUMN) != 0)
