"""Compacts large tables with Spark: the units of a plan are merged in tasks, side by side.

What is planned, checked and swapped is what background upkeep would (`upkeep`): only the reading
and writing of a unit happens in a task, which sees objects alone. Units are as large as one task
should be, and each is swapped by itself, so that a job that fails leaves orphans and no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.parts.part import Batch
from strandline.spark import worker
from strandline.spark.instruction import Merge
from strandline.upkeep.compact import carry_out, finish
from strandline.upkeep.merge import output_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.shard.state import State
    from strandline.spark.desk import Desk
    from strandline.spark.instruction import Answer
    from strandline.spark.jobs import Jobs
    from strandline.upkeep.compact import Work
    from strandline.upkeep.units import Unit

SMALL = 16 * 1024 * 1024
"""A unit of up to this size is merged here, in less time than a job takes."""


class Carrier:
    """Carries out the units of a plan: small ones here, the others as one job."""

    def __init__(self, desk: Desk, jobs: Jobs, *, small: int = SMALL) -> None:
        self._desk = desk
        self._jobs = jobs
        self._small = small

    def __call__(self, work: Work, state: State, units: Sequence[Unit]) -> None:
        large = [unit for unit in units if unit.size > self._small]
        for answer in self._merged(work, state, large):
            finish(work, state, large[answer.number], answer.parts)
        for unit in units:
            if unit.size <= self._small:
                carry_out(work, state, unit)

    def _merged(self, work: Work, state: State, units: Sequence[Unit]) -> list[Answer]:
        """One task for each unit. Its parts lie under the id of the writer that swaps them."""
        if not units:
            return []
        told = msgspec.msgpack.encode([_told(work, state, unit) for unit in units])
        numbers = self._jobs.numbers(len(units))
        with self._desk.site_for(work.writer.id, state.schema) as site:
            return self._jobs.over(numbers, worker.merge_units, site, told)


def _told(work: Work, state: State, unit: Unit) -> Merge:
    wanted = set(unit.inline)
    inline = tuple(
        Batch(batch.lower, batch.upper, inline=batch.inline)
        for batch in state.batches
        if batch.inline is not None and batch.lower in wanted
    )
    return Merge(
        unit.reason,
        unit.parts,
        inline,
        unit.base,
        unit.halvings,
        unit.level,
        state.readable_from(),
        output_bytes(work.policy),
    )
