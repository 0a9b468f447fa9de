"""Compacts large tables with Spark: the units of a plan are merged in tasks, side by side.

What is planned, checked and swapped is what background upkeep would (`upkeep`): only the reading
and writing of a unit happens in tasks, which see objects alone. A unit of a keyed table is cut
by range of places, one task each, where its output is cut anyway (`upkeep/spans`). Each unit is
swapped by itself, with all that its tasks put, so that a job that fails leaves orphans and no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.parts.part import Batch
from strandline.spark import worker
from strandline.spark.instruction import Merge
from strandline.spark.parcels import wrap
from strandline.upkeep.compact import carry_out, finish
from strandline.upkeep.merge import output_bytes
from strandline.upkeep.spans import spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.parts.part import Part
    from strandline.shard.state import State
    from strandline.spark.desk import Desk
    from strandline.spark.jobs import Jobs
    from strandline.upkeep.compact import Work
    from strandline.upkeep.units import Unit

_encoder = msgspec.msgpack.Encoder()

SMALL = 16 * 1024 * 1024
"""A unit of up to this size is merged here, in less time than a job takes. No task gets less."""


class Carrier:
    """Carries out the units of a plan: small ones here, the others as one job."""

    def __init__(self, desk: Desk, jobs: Jobs, *, small: int = SMALL) -> None:
        self._desk = desk
        self._jobs = jobs
        self._small = small

    def __call__(self, work: Work, state: State, units: Sequence[Unit]) -> None:
        large = [unit for unit in units if unit.size > self._small]
        for unit, parts in zip(large, self._merged(work, state, large), strict=True):
            finish(work, state, unit, parts)
        for unit in units:
            if unit.size <= self._small:
                carry_out(work, state, unit)

    def _merged(self, work: Work, state: State, units: Sequence[Unit]) -> list[list[Part]]:
        """The parts of each unit. They lie under the id of the writer that swaps them."""
        made: list[list[Part]] = [[] for _ in units]
        if not units:
            return made
        pieces = [
            (at, span)
            for at, unit in enumerate(units)
            for span in (spans(unit, self._jobs.slots, self._small) if state.schema.key else [None])
        ]
        told = [_encoder.encode(_told(work, state, units[at], span)) for at, span in pieces]
        numbers = self._jobs.numbers(len(pieces))
        with self._desk.site_for(work.writer.id, state.schema) as (site, bench):
            parcels = wrap(told, bench.put_object)
            try:
                encoded = _encoder.encode(parcels)
                answers = self._jobs.over(numbers, worker.merge_units, site, encoded)
            finally:
                self._desk.discard([parcels.key] if parcels.key else ())
        for answer in sorted(answers, key=lambda each: each.number):
            made[pieces[answer.number][0]] += answer.parts
        return made


def _told(work: Work, state: State, unit: Unit, span: tuple[int, int] | None) -> Merge:
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
        span,
    )
