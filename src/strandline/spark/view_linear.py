"""The changes of linear views, from the changes of what they read, by Spark SQL.

Small changes are one query for all views together, which Spark answers in the driver or in one
job. Large ones are a job for each view, whose tasks put parts. If a query raises, each view is
computed by itself, and what it reads is halved until the rows that raise are found: they are rows
of the view's errors, and all others count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.model.digest import Digest
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.consolidate import consolidate
from strandline.pipeline.catalog import VIEW_ERROR_COLUMNS, errors_of
from strandline.pipeline.compute import Delta
from strandline.pipeline.meaning import row_text, updates_digest
from strandline.spark.changes import as_changes, put_rows
from strandline.spark.instruction import decode_answer
from strandline.spark.jobs import ours
from strandline.spark.landed import Load
from strandline.spark.queries import Raised, raising
from strandline.spark.relations import Changes, relations
from strandline.spark.schedule import RETURNED_BYTES
from strandline.spark.table import frame_of
from strandline.views.linear import quoted
from strandline.views.rewrite import delta_sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.jobs import Jobs
    from strandline.spark.premises import Premises
    from strandline.views.declared import View

_ERROR_UPDATES = VIEW_ERROR_COLUMNS.append(pa.field(DIFF_COLUMN, pa.int64()))
_VIEW = "_view"


@dataclass(frozen=True, slots=True)
class LinearViews:
    """Computes linear views of one transaction."""

    premises: Premises
    spark: SparkSession
    jobs: Jobs

    def deltas(self, views: Sequence[View], known: Mapping[str, Delta]) -> dict[str, Delta]:
        """What changes in views that read only what is known or an earlier one of them."""
        inner = {view.name for view in views}
        outer = {name for view in views for name in view.reads if name not in inner}
        changes = {name: self._changes(name, known) for name in sorted(outer)}
        if not any(each.parts for each in changes.values()):
            try:
                found = self._together(views, changes)
            except Raised:
                pass
            else:
                return {name: delta for name, delta in found.items() if delta is not None}
        return self._one_by_one(views, changes)

    def _changes(self, name: str, known: Mapping[str, Delta]) -> Changes:
        return Changes.of(self.premises, name, known.get(name))

    # All at once.

    def _together(
        self, views: Sequence[View], changes: Mapping[str, Changes]
    ) -> dict[str, Delta | None]:
        if len(views) == 1:
            (view,) = views
            return {view.name: self._small(view, self._evaluated(view, _tables(changes)))}
        frames = {name: each.frame(self.spark) for name, each in changes.items()}
        with relations(self.spark, frames) as named:
            table = self._answer(self.spark.sql(united_sql(views, named)))
        return {
            view.name: self._small(view, _part_of(table, at, view)) for at, view in enumerate(views)
        }

    def _answer(self, frame: DataFrame) -> pa.Table:
        self.jobs.count += 1
        with raising(), ours():
            return frame.toArrow()

    def _small(self, view: View, rows: pa.Table) -> Delta | None:
        schema = self.premises.schema(view.name)
        updates = consolidate(as_changes(rows, schema))
        if not updates.num_rows:
            return None
        return Delta(updates_digest(updates, schema), updates)

    # One view after the other.

    def _one_by_one(
        self, views: Sequence[View], changes: Mapping[str, Changes]
    ) -> dict[str, Delta]:
        known = dict(changes)
        found: dict[str, Delta] = {}
        for view in views:
            mine = self._one(view, {name: known[name] for name in view.reads})
            found |= mine
            known[view.name] = Changes.of(self.premises, view.name, mine.get(view.name))
        return found

    def _one(self, view: View, changes: Mapping[str, Changes]) -> dict[str, Delta]:
        try:
            if any(each.parts for each in changes.values()):
                delta = self._large(view, changes)
            else:
                delta = self._small(view, self._evaluated(view, _tables(changes)))
        except Raised:
            return self._divided(view, changes)
        return {} if delta is None else {view.name: delta}

    def _large(self, view: View, changes: Mapping[str, Changes]) -> Delta | None:
        """One job, whose tasks put what they find."""
        stand = self.premises.stand(view.name)
        frames = {name: each.frame(self.spark) for name, each in changes.items()}
        with relations(self.spark, frames) as named:
            frame = self.spark.sql(delta_sql(view, named))
            told = (stand.site, self.premises.work.time, RETURNED_BYTES)
            with raising():
                answers = self.jobs.collect(frame, put_rows, *told)
        shard = stand.bench.ground.shard_id
        load = Load.of([decode_answer(each, shard) for each in answers])
        return self.premises.delta(view.name, load)

    def _evaluated(self, view: View, tables: Mapping[str, pa.Table]) -> pa.Table:
        frames = {name: frame_of(self.spark, each) for name, each in tables.items()}
        with relations(self.spark, frames) as named:
            return self._answer(self.spark.sql(delta_sql(view, named)))

    # Down to the rows that raise.

    def _divided(self, view: View, changes: Mapping[str, Changes]) -> dict[str, Delta]:
        tables = {name: each.rows() for name, each in changes.items()}
        nothing = {name: table.slice(0, 0) for name, table in tables.items()}
        good: list[pa.Table] = []
        bad: list[dict[str, object]] = []
        for name, table in tables.items():
            some, raising = self.divided(view, name, table, nothing)
            good += some
            bad += [error_of(view, name, rows, reason) for rows, reason in raising]
        found = {}
        delta = self._small(view, pa.concat_tables(good)) if good else None
        if delta is not None:
            found[view.name] = delta
        failed = consolidate(pa.Table.from_pylist(bad, _ERROR_UPDATES))
        if failed.num_rows:
            errors = errors_of(view.name)
            digest = updates_digest(failed, self.premises.schema(errors))
            if digest != Digest.ZERO:
                found[errors] = Delta(digest, failed)
        return found

    def divided(
        self, view: View, name: str, table: pa.Table, nothing: Mapping[str, pa.Table]
    ) -> tuple[list[pa.Table], list[tuple[pa.Table, str]]]:
        """What a view makes of the rows of one collection, and the rows for which it raises, each
        with the reason."""
        good: list[pa.Table] = []
        bad: list[tuple[pa.Table, str]] = []
        pending = [table] if table.num_rows else []
        while pending:
            rows = pending.pop()
            try:
                good.append(self._evaluated(view, {**nothing, name: rows}))
            except Raised as error:
                if rows.num_rows == 1:
                    bad.append((rows, str(error)))
                    continue
                half = rows.num_rows // 2
                pending += [rows.slice(half), rows.slice(0, half)]
        return good, bad


def _tables(changes: Mapping[str, Changes]) -> dict[str, pa.Table]:
    return {name: each.few for name, each in changes.items()}


def error_of(view: View, collection: str, row: pa.Table, reason: str) -> dict[str, object]:
    """What a view's errors say of one row."""
    diff = row[DIFF_COLUMN][0].as_py()
    return {"row": row_text(view, collection, row), "reason": reason, DIFF_COLUMN: diff}


def united_sql(views: Sequence[View], relations: Mapping[str, str]) -> str:
    """One query for all: the columns of each view side by side, and whose row it is.

    `relations` are those of changes that are known; what a view reads of an earlier one is a query
    inside of this one.
    """
    named = dict(relations)
    inner = []
    for at, view in enumerate(views):
        sql = delta_sql(view, named)
        named[view.name] = f"strandline_view_{at}"
        inner.append(f"{quoted(named[view.name])} AS ({sql})")
    width = [len(view.columns) for view in views]
    selects = []
    for at, view in enumerate(views):
        items = [f"{at} AS {quoted(_VIEW)}"]
        for other, count in enumerate(width):
            items += [
                f"{quoted(view.columns[place]) if other == at else 'NULL'} AS `c{other}_{place}`"
                for place in range(count)
            ]
        chosen = ", ".join([*items, quoted(DIFF_COLUMN)])
        selects.append(f"SELECT {chosen} FROM {quoted(named[view.name])}")  # noqa: S608 - our own
    return f"WITH {', '.join(inner)} {' UNION ALL '.join(selects)}"


def _part_of(table: pa.Table, at: int, view: View) -> pa.Table:
    mine = table.filter(pa.compute.equal(table[_VIEW], at))
    names = [f"c{at}_{place}" for place in range(len(view.columns))]
    return mine.select([*names, DIFF_COLUMN]).rename_columns([*view.columns, DIFF_COLUMN])
