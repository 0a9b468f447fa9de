"""What changes in the tables of one transaction, their tombstones, floors and errors.

Keyed collections are resolved in one job, whatever empties them. A table without a key has no
places, so what a reload changes in it is a difference that Spark SQL computes: one job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.model.digest import Digest
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.emptied import NOTHING
from strandline.pipeline.catalog import errors_of, floor_of, has_floor, tombs_of
from strandline.pipeline.compute import Delta
from strandline.pipeline.meaning import (
    emptying_of,
    errors_emptying,
    floor_updated,
    reading_of,
    sweep_before,
    updates_digest,
)
from strandline.spark.changes import put_rows
from strandline.spark.instruction import decode_answer
from strandline.spark.landed import Load
from strandline.spark.relations import Changes, Whole, quoted
from strandline.spark.resolves import Wanted, resolve_all
from strandline.spark.schedule import RETURNED_BYTES
from strandline.spark.sweeps import swept_too
from strandline.spark.view_full import summed, went

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from strandline.parts.emptied import Emptying
    from strandline.spark.intakes import Came
    from strandline.spark.jobs import Jobs
    from strandline.spark.premises import Premises
    from strandline.views.declared import Table


@dataclass(frozen=True, slots=True)
class Tables:
    """Computes the tables of one transaction."""

    premises: Premises
    spark: SparkSession
    jobs: Jobs

    def deltas(self, came: Came) -> dict[str, Delta]:
        """What changes, from what came."""
        wanted: list[Wanted] = []
        sweeps: dict[str, int] = {}
        found: dict[str, Delta | None] = {}
        for table in self.premises.work.program.tables:
            rows = came.rows.get(table.name, [])
            if table.envelope == "append":
                found[table.name] = self._appended(table, Load.of(rows))
            else:
                tombs = tombs_of(table.name) if table.sequence_by else ""
                emptying = self._emptying(table, came, found) if rows else NOTHING
                before = self._sweep_before(table)
                order = table.sequence_by
                wanted.append(Wanted(table.name, rows, order, tombs, before, emptying))
                if before is not None:
                    sweeps[tombs] = before
            wanted.append(self._errors(table, came))
        loads = resolve_all(self.premises, self.jobs, [each for each in wanted if each])
        for tombs, before in sweeps.items():
            loads[tombs] = swept_too(self.premises, tombs, loads.get(tombs), before)
        found |= {name: self.premises.delta(name, load) for name, load in loads.items()}
        return {name: delta for name, delta in found.items() if delta is not None}

    def _sweep_before(self, table: Table) -> int | None:
        work = self.premises.work
        return sweep_before(reading_of(table), work.time, work.now_ms)

    def _errors(self, table: Table, came: Came) -> Wanted:
        name, emptying = errors_of(table.name), NOTHING
        if table.name in came.rows:
            reload = table.name in self.premises.work.replaced
            truncations = came.truncations.get(table.name, [])
            emptying = errors_emptying(truncations, reading_of(table), reload=reload)
        answers = came.errors.get(table.name, [])
        if self.premises.is_empty(name) and not any(each.rows or each.staged for each in answers):
            emptying = NOTHING
        return Wanted(name, answers, emptying=emptying)

    def _emptying(self, table: Table, came: Came, found: dict[str, Delta | None]) -> Emptying:
        """What empties a keyed table; what that makes of its floor is noted."""
        floor = self._floor(table) if has_floor(table) else None
        emptying = emptying_of(
            came.truncations.get(table.name, []),
            reading_of(table),
            floor,
            reload=table.name in self.premises.work.replaced,
        )
        if floor is not None and emptying.at is not None:
            name = floor_of(table.name)
            updates = floor_updated(emptying, floor)
            digest = updates_digest(updates, self.premises.schema(name))
            found[name] = None if digest == Digest.ZERO else Delta(digest, updates)
        return emptying

    def _floor(self, table: Table) -> pa.Table:
        """One row at most, so it is read here; mostly its metadata says that there is none."""
        name = floor_of(table.name)
        if self.premises.is_empty(name):
            return self.premises.schema(name).arrow().empty_table()
        with self.premises.desk(name).shard.snapshot(as_of=self.premises.as_of) as snapshot:
            return snapshot.to_arrow()

    def _appended(self, table: Table, load: Load) -> Delta | None:
        if table.name not in self.premises.work.replaced:
            return self.premises.delta(table.name, load)
        return self._replaced(table.name, load)

    def _replaced(self, name: str, load: Load) -> Delta | None:
        """What came and is not there, and what is there and did not come."""
        stand = self.premises.stand(name)
        if load.parts:
            load.put_few(stand.bench, untimed=True)
            self.premises.discard_later(name, [part.key for part in load.parts])
        none = Changes.of(self.premises, name, None)
        few = none.few if load.few is None else load.few.select(none.few.schema.names)
        changes = Changes(self.premises, name, few.cast(none.few.schema), tuple(load.parts))
        names = self.premises.schema(name).names
        old = Whole(self.premises, self.spark, self.jobs).before(name)
        new = changes.frame(self.spark).select(*map(quoted, (*names, DIFF_COLUMN)))
        told = (stand.site, self.premises.work.time, RETURNED_BYTES)
        answers = self.jobs.collect(summed(new, went(old, names), names), put_rows, *told)
        shard = stand.bench.ground.shard_id
        found = Load.of([decode_answer(each, shard) for each in answers])
        return self.premises.delta(name, found)
