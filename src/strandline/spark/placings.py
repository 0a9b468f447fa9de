"""Puts a large append by place before it is committed: one more job, no row passes the driver.

first parts ─► ranges ─► a job that reads each out of all ─► digests equal ─► their successors
                                                                │
nothing refers to the first parts, so they are deleted whatever came of it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import CorruptionError, UsageError
from strandline.model.digest import Digest
from strandline.spark import worker
from strandline.spark.parcels import wrap
from strandline.spark.placing import encode_placing, is_worth_it, placings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.schema import Schema
    from strandline.parts.part import Part
    from strandline.spark.desk import Desk, Stand
    from strandline.spark.jobs import Jobs
    from strandline.spark.landed import Load


def check_by_place(schema: Schema, by_place: bool | None, table: str) -> None:  # noqa: FBT001
    """Refuse to put by place what has none."""
    if by_place and not schema.key:
        raise UsageError(
            f"table {table} has no key, so its rows have no places: leave by_place out"
        )


def put_by_place(
    desk: Desk,
    jobs: Jobs,
    stand: Stand,
    load: Load,
    unpacked: int,
    *,
    by_place: bool | None,
) -> None:
    """Let the parts of a load lie side by side, if they are worth it, or if that was asked for."""
    schema = stand.bench.ground.schema
    if by_place is False or not schema.key or len(load.parts) < 2:
        return
    if by_place is None and not is_worth_it(load.parts, desk.env.settings):
        return
    load.put_few(stand.bench, untimed=load.parts[0].untimed)
    first = load.parts
    try:
        load.parts = _placed(desk, jobs, stand, first, unpacked)
    finally:
        desk.discard(part.key for part in first)


def _placed(
    desk: Desk, jobs: Jobs, stand: Stand, first: Sequence[Part], unpacked: int
) -> list[Part]:
    told = [encode_placing(each) for each in placings(first, unpacked, jobs.slots)]
    parcels = wrap(told, stand.bench.put_object)
    try:
        numbers = jobs.numbers(len(told))
        encoded = msgspec.msgpack.encode(parcels)
        answers = jobs.over(numbers, worker.place_parts, stand.site, encoded)
    finally:
        desk.discard([parcels.key] if parcels.key else ())
    placed = [part for answer in answers for part in answer.parts]
    if _total(placed) != _total(first):
        raise CorruptionError(
            f"table {desk.name}: what was put by place adds up to {_total(placed)}, and what it "
            f"was read from to {_total(first)}; nothing was written, write it again"
        )
    return placed


def _total(parts: Sequence[Part]) -> Digest:
    total = Digest.ZERO
    for part in parts:
        total += part.total
    return total
