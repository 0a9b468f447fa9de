"""What tasks have put becomes one append: parts, their digests, and few rows that came back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import BoundsError
from strandline.handles.stage import Stage
from strandline.handles.write import Appended
from strandline.model.digest import Digest, per_time
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import constant
from strandline.parts.part import Batch, restamped_part
from strandline.spark import slices
from strandline.spark.instruction import Counts
from strandline.spark.perform import add_digests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.frontier import Frontier, Time
    from strandline.model.schema import Schema
    from strandline.parts.part import Part
    from strandline.shard.command import Repeated, UpperMismatch
    from strandline.shard.txn import Txn
    from strandline.spark.desk import Desk, Stand
    from strandline.spark.instruction import Answer
    from strandline.spark.put import Bench


@dataclass(frozen=True, slots=True)
class Landed:
    """What was written, and what it took."""

    time: Time | None
    """The time of the rows, or the last one of an interval; `None` if there was nothing to say."""
    upper: Frontier
    rows: int
    """Rows that came in."""
    upserted: int
    """Rows that were inserted or replaced another."""
    deleted: int = 0
    unchanged: int = 0
    """Rows that were there already, and deletions of keys that were not."""
    late: int = 0
    """Rows dropped because the stored row comes after them, by sequenceBy."""
    superseded: int = 0
    """Rows that were not the last of their key."""
    updates: int = 0
    """Insertions and retractions that were appended."""
    digest: Digest = Digest.ZERO
    """What they add up to."""
    parts: int = 0
    bytes: int = 0
    """Of the parts; rows that are few stay in the metadata."""
    jobs: int = 0
    """Spark jobs."""
    attempts: int = 1
    seconds: float = 0.0


@dataclass(slots=True)
class Load:
    """What the tasks of a job gave back, ready to be appended."""

    parts: list[Part]
    digests: dict[int, Digest]
    few: pa.Table | None
    """Updates that came back; without `_time` if the driver chooses it."""
    counts: Counts

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Load:
        digests: dict[int, Digest] = {}
        counts = Counts()
        for answer in answers:
            add_digests(digests, {time: Digest.unpack(each) for time, each in answer.digests})
            counts += answer.counts
        tables = [slices.from_stream(each.rows, "a task's rows") for each in answers if each.rows]
        few = pa.concat_tables(tables).combine_chunks() if tables else None
        return cls([part for each in answers for part in each.parts], digests, few, counts)

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    def total(self, schema: Schema) -> tuple[int, Digest]:
        """How many updates there are, and what they add up to."""
        total = Digest.ZERO
        for digest in self.digests.values():
            total += digest
        rows = sum(part.rows for part in self.parts)
        if self.few is None:
            return rows, total
        hashes = row_base(self.few.select(list(schema.names)), schema.ids)
        return rows + self.few.num_rows, total + Digest.of(
            hashes, self.few.column(DIFF_COLUMN).to_numpy()
        )

    def check_times(self, lower: Time, upper: Time) -> None:
        """Refuse rows in parts that are not in `[lower, upper)`; few rows are checked later."""
        for time in self.digests:
            if not lower <= time < upper:
                raise BoundsError(
                    f"the rows have {TIME_COLUMN} {time}, which is not in [{lower}, {upper})"
                )

    def put_few(self, bench: Bench, *, untimed: bool) -> None:
        """Few rows beside parts become a part too: an append is inline or in parts, not both."""
        if self.few is None:
            return
        schema = bench.ground.schema
        updates = self.few
        if TIME_COLUMN not in updates.column_names:
            field = schema.updates().field(TIME_COLUMN)
            updates = updates.add_column(len(schema.names), field, constant(0, updates.num_rows))
        hashes = row_base(updates.select(list(schema.names)), schema.ids)
        times, diffs = (updates.column(name).to_numpy() for name in (TIME_COLUMN, DIFF_COLUMN))
        self.parts += bench.put_updates(updates, untimed=untimed, hashes=hashes)
        add_digests(self.digests, per_time(hashes, times, diffs))
        self.few = None

    def settle(
        self,
        desk: Desk,
        stand: Stand,
        bounds: tuple[Time, Time],
        *,
        timed: bool,
        txn: Txn | None = None,
    ) -> Appended | UpperMismatch | Repeated | None:
        """Append all there is at `[lower, upper)`, where its times lie.

        `None` if it is nothing at a time of the driver's choice, and no batch to be remembered.
        """
        lower, upper = bounds
        if self.parts:
            self.put_few(stand.bench, untimed=not timed)
            return self.commit(desk, stand, bounds, restamp=False, txn=txn)
        few = self.few
        if few is None and not timed and txn is None:
            return None
        if few is None:
            few = stand.bench.ground.schema.updates().empty_table()
        return stand.writer.compare_and_append(few, lower=lower, upper=upper, txn=txn)

    def commit(
        self,
        desk: Desk,
        stand: Stand,
        bounds: tuple[Time, Time],
        *,
        restamp: bool,
        txn: Txn | None = None,
    ) -> Appended | UpperMismatch | Repeated:
        """Append the parts at `[lower, upper)`; with `restamp`, all of them at `lower`."""
        lower, upper = bounds
        parts, digests = self.parts, self.digests
        if restamp:
            total = Digest.ZERO
            for digest in digests.values():
                total += digest
            parts, digests = [restamped_part(part, lower) for part in parts], {lower: total}
        stage = Stage(desk.env, desk.name, stand.writer.id)
        chunks, objects = stage.put_chunks(parts, desk.shard.machine.state)
        listed = () if chunks else tuple(parts)
        batch = Batch(lower, upper, parts=listed, chunks=chunks)
        outcome = stand.writer.commit_parts(batch, digests, lower=lower, upper=upper, txn=txn)
        if not isinstance(outcome, Appended):
            desk.discard(objects)
        return outcome


@dataclass(frozen=True, slots=True)
class Effort:
    """What a call took."""

    jobs: int
    attempts: int
    started_ms: int


def landed(
    desk: Desk,
    schema: Schema,
    load: Load,
    outcome: Appended | Repeated | None,
    rows: int,
    effort: Effort,
) -> Landed:
    """The answer to a call whose rows have been appended, or said nothing new."""
    appended = outcome if isinstance(outcome, Appended) else None
    # By the schema of the rows: the table's may have changed since they were appended.
    updates, digest = load.total(schema)
    counts = load.counts
    return Landed(
        time=None if appended is None else appended.upper.last(),
        upper=desk.shard.machine.state.upper if appended is None else appended.upper,
        rows=rows,
        upserted=counts.upserted,
        deleted=counts.deleted,
        unchanged=counts.unchanged,
        late=counts.late,
        superseded=counts.superseded,
        updates=updates,
        digest=digest,
        parts=len(load.parts),
        bytes=load.size,
        jobs=effort.jobs,
        attempts=effort.attempts,
        seconds=(desk.env.clock.monotonic_ms() - effort.started_ms) / 1000,
    )
