"""Views that are computed anew at each transaction, and compared with what they held: one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from strandline.model.digest import Digest
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.consolidate import as_updates
from strandline.pipeline.catalog import VIEW_ERROR_COLUMNS, errors_of
from strandline.pipeline.compute import Delta
from strandline.pipeline.meaning import difference, updates_digest
from strandline.spark.changes import put_rows
from strandline.spark.instruction import decode_answer
from strandline.spark.landed import Load
from strandline.spark.queries import Raised, raising
from strandline.spark.relations import Changes, Whole, quoted, relations
from strandline.spark.schedule import RETURNED_BYTES
from strandline.spark.table import frame_of
from strandline.spark.view_linear import LinearViews, error_of
from strandline.views.rewrite import query_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.jobs import Jobs
    from strandline.spark.premises import Premises
    from strandline.views.declared import View


BUCKET_ROWS = 100_000
_Raising = list[tuple[pa.Table, str]]
"""Rows, each with why a query raises for it."""


@dataclass(frozen=True, slots=True)
class FullViews:
    """Computes views of one transaction that are not linear."""

    premises: Premises
    spark: SparkSession
    jobs: Jobs

    def deltas(self, view: View, known: Mapping[str, Delta]) -> dict[str, Delta]:
        """What changes in a view and in its errors.

        A query that raises leaves the view as it was: its error says that it is not as it should.
        One that is linear raises for single rows, which are errors, and all others count.
        """
        failed = VIEW_ERROR_COLUMNS.empty_table()
        delta = None
        try:
            delta = self._refreshed(view, known, {})
        except Raised as error:
            wrong: list[dict[str, object]] = [{"row": "", "reason": str(error)}]
            if view.kind == "linear":
                bad = self._raising(view, known)
                delta = self._refreshed(view, known, bad)
                wrong = [
                    error_of(view, name, row, why)
                    for name, some in bad.items()
                    for row, why in some
                ]
            columns = VIEW_ERROR_COLUMNS.names
            failed = pa.Table.from_pylist(
                [{name: each[name] for name in columns} for each in wrong], VIEW_ERROR_COLUMNS
            )
        found = {errors_of(view.name): self._errors(view, failed), view.name: delta}
        return {name: each for name, each in found.items() if each is not None}

    def _refreshed(
        self, view: View, known: Mapping[str, Delta], without: Mapping[str, _Raising]
    ) -> Delta | None:
        """What the query gives for all rows but some, against what the view held."""
        stand = self.premises.stand(view.name)
        whole = Whole(self.premises, self.spark, self.jobs)
        frames = {name: self._after(name, known) for name in view.reads}
        for name, some in without.items():
            if some:
                rows = pa.concat_tables([row.drop_columns([DIFF_COLUMN]) for row, _ in some])
                frames[name] = frames[name].exceptAll(frame_of(self.spark, rows))
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

    def _after(self, name: str, known: Mapping[str, Delta]) -> DataFrame:
        changes = Changes.of(self.premises, name, known.get(name))
        return self._seen(name, Whole(self.premises, self.spark, self.jobs).after(changes))

    def _raising(self, view: View, known: Mapping[str, Delta]) -> dict[str, _Raising]:
        """The rows for which a linear query raises; not more than a bucket of rows is here at
        once."""
        linear = LinearViews(self.premises, self.spark, self.jobs)
        nothing = {name: Changes.of(self.premises, name, None).few for name in view.reads}
        found: dict[str, _Raising] = {}
        for name in view.reads:
            self.jobs.count += 1
            buckets = -(-self._after(name, known).count() // BUCKET_ROWS)
            for bucket in range(buckets):
                rows = self._bucket(name, known, bucket, buckets)
                # Without the columns that the table has got and the view does not see.
                layout = pa.schema([nothing[name].field(each) for each in rows.column_names])
                _, bad = linear.divided(view, name, rows.cast(layout), nothing)
                found[name] = [*found.get(name, []), *bad]
        return found

    def _bucket(self, name: str, known: Mapping[str, Delta], bucket: int, buckets: int) -> pa.Table:
        frame = self._after(name, known)
        columns = [quoted(each) for each in frame.columns]
        if buckets > 1:
            frame = frame.where(F.pmod(F.xxhash64(*columns), F.lit(buckets)) == bucket)
        self.jobs.count += 1
        rows = frame.toArrow()
        return as_updates(rows, rows.column_names)

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
    return summed(came, went(old, columns), columns)


def went(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Retractions of all rows."""
    gone = F.lit(-1).cast("bigint").alias(DIFF_COLUMN)
    return rows.select(*(quoted(name) for name in columns), gone)


def summed(one: DataFrame, other: DataFrame, columns: Sequence[str]) -> DataFrame:
    """What updates of two kinds add up to."""
    names = [quoted(name) for name in columns]
    total = F.sum(DIFF_COLUMN).alias(DIFF_COLUMN)
    return one.unionAll(other).groupBy(*names).agg(total).where(F.col(DIFF_COLUMN) != 0)
