"""Appends a DataFrame: one job that puts parts, then one commit.

A large append to a keyed table is put by place in between, by a second job (`placings`).

independent   rows have no times; the append takes the next one, whichever that is by then.
              A lost race costs a new stamp on the facts, and no row is ever read again
replica       rows have times in `[lower, upper)`; who is not first is told so, and drops them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.parts.rows import check_interval
from strandline.shard.command import UpperMismatch
from strandline.spark import worker
from strandline.spark.attempts import Tried, append_next, once
from strandline.spark.incoming import to_append
from strandline.spark.instruction import Counts
from strandline.spark.landed import Effort, Landed, Load, landed
from strandline.spark.placings import check_by_place, put_by_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from strandline.model.frontier import Time
    from strandline.spark.desk import Desk
    from strandline.spark.instruction import Answer
    from strandline.spark.jobs import Jobs

_UPDATE_BYTES = 16


def append(desk: Desk, jobs: Jobs, frame: DataFrame, *, by_place: bool | None = None) -> Landed:
    """Append at the next time; others that write as well only delay it.

    `by_place` says whether it is put by place; `None`: if it is large.
    """
    started = desk.env.clock.monotonic_ms()
    state = desk.writable()
    check_by_place(state.schema, by_place, desk.name)
    rows = to_append(frame, state.schema, timed=False)
    stand = desk.stand(state.schema)
    answers = jobs.over(rows, worker.append_rows, stand.site, None)
    load = Load.of(answers)
    count = _counted(load, answers)
    put_by_place(desk, jobs, stand, load, _unpacked(answers), by_place=by_place)
    done = append_next(desk, stand, load)
    effort = Effort(jobs.count, done.attempts, started)
    return landed(desk, state.schema, load, done.outcome, count, effort)


def append_at(
    desk: Desk,
    jobs: Jobs,
    frame: DataFrame,
    bounds: tuple[Time, Time],
    *,
    by_place: bool | None = None,
) -> Landed | UpperMismatch:
    """Settle `[lower, upper)` with rows that have their own times, if it starts at the upper."""
    started = desk.env.clock.monotonic_ms()
    check_interval(*bounds)
    state = desk.writable()
    check_by_place(state.schema, by_place, desk.name)
    if state.upper.time != bounds[0]:
        return UpperMismatch(state.upper)
    rows = to_append(frame, state.schema, timed=True)
    stand = desk.stand(state.schema)
    answers = jobs.over(rows, worker.append_rows, stand.site, bounds)
    load = Load.of(answers)
    count = _counted(load, answers)
    put_by_place(desk, jobs, stand, load, _unpacked(answers), by_place=by_place)
    outcome = once(desk, Tried(load, load.settle(desk, stand, bounds, timed=True))).outcome
    if isinstance(outcome, UpperMismatch):
        return outcome
    return landed(desk, state.schema, load, outcome, count, Effort(jobs.count, 1, started))


def _unpacked(answers: Sequence[Answer]) -> int:
    """What the rows take in memory as updates: with a time and a diff each."""
    return sum(answer.bytes_in + _UPDATE_BYTES * answer.rows_in for answer in answers)


def _counted(load: Load, answers: Sequence[Answer]) -> int:
    """How many rows came in; each of them was put."""
    rows = sum(answer.rows_in for answer in answers)
    load.counts = Counts(upserted=rows)
    return rows
