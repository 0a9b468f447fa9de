"""Upserts a DataFrame: a job that gathers its rows, a job that resolves them, one commit.

    1  gather    Spark evaluates the rows; few come back, many are put by place
    2  resolve   range tasks look old rows up as of `lower - 1`, and put what changes
    3  commit    at `[lower, upper)`

An independent writer owns no time. If another one was faster, what it looked up is old: step 2 is
done again at the new upper, with the rows of step 1, for as long as it takes. A replica's times
were agreed on beforehand: it is told `UpperMismatch`, and drops its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.parts.rows import check_interval
from strandline.shard.command import UpperMismatch
from strandline.spark import worker
from strandline.spark.attempts import Resolving, once, resolve, upsert_next
from strandline.spark.columns import check_key
from strandline.spark.errands import send
from strandline.spark.incoming import Meaning, to_upsert
from strandline.spark.instruction import Errand
from strandline.spark.landed import Effort, Landed, Load, landed
from strandline.spark.plan import Gathered, ranges
from strandline.spark.schedule import RETURNED_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.shard.state import State
    from strandline.spark.desk import Desk, Stand
    from strandline.spark.jobs import Jobs


@dataclass(frozen=True, slots=True)
class _Came:
    """What came in, and on which stand it was gathered."""

    stand: Stand
    gathered: Gathered
    rows: int
    stored: tuple[str, ...]

    @property
    def schema(self) -> Schema:
        return self.stand.bench.ground.schema


def upsert(desk: Desk, jobs: Jobs, frame: DataFrame, meaning: Meaning) -> Landed:
    """Upsert at the next time, whichever that is by then."""
    started = desk.env.clock.monotonic_ms()
    came = _gather(desk, jobs, frame, meaning, timed=False)
    resolving = Resolving(
        desk.view, lambda state: _differences(desk, jobs, came, state, timed=False)
    )
    try:
        done = upsert_next(desk, came.stand, resolving)
    finally:
        desk.discard(staged.key for staged in came.gathered.staged)
    effort = Effort(jobs.count, done.attempts, started)
    return landed(desk, came.schema, done.load, done.outcome, came.rows, effort)


def upsert_at(
    desk: Desk, jobs: Jobs, frame: DataFrame, meaning: Meaning, bounds: tuple[Time, Time]
) -> Landed | UpperMismatch:
    """Settle `[lower, upper)` with rows that have their own times, if it starts at the upper."""
    started = desk.env.clock.monotonic_ms()
    check_interval(*bounds)
    upper = desk.writable().upper
    if upper.time != bounds[0]:
        return UpperMismatch(upper)
    came = _gather(desk, jobs, frame, meaning, timed=True)
    resolving = Resolving(
        desk.view, lambda state: _differences(desk, jobs, came, state, timed=True)
    )
    try:
        tried = once(desk, resolve(desk, came.stand, resolving, bounds))
    finally:
        desk.discard(staged.key for staged in came.gathered.staged)
    if isinstance(tried.outcome, UpperMismatch):
        return tried.outcome
    effort = Effort(jobs.count, 1, started)
    return landed(desk, came.schema, tried.load, tried.outcome, came.rows, effort)


def _gather(desk: Desk, jobs: Jobs, frame: DataFrame, meaning: Meaning, *, timed: bool) -> _Came:
    state = desk.writable()
    schema = state.schema
    check_key(schema, None, desk.name)
    chosen = to_upsert(frame, schema, meaning, timed=timed)
    stand = desk.stand(schema)
    answers = jobs.over(chosen, worker.stage_rows, stand.site, RETURNED_BYTES)
    gathered = Gathered.from_answers(answers, schema)
    rows = sum(answer.rows_in for answer in answers)
    return _Came(stand, gathered, rows, meaning.stored(schema))


def _differences(desk: Desk, jobs: Jobs, came: _Came, state: State, *, timed: bool) -> Load:
    """What the rows that came change, found in range tasks."""
    if not came.gathered:
        return Load.of(())
    lower = state.upper.time or 0
    as_of = lower - 1 if lower else None
    there = desk.stored(state, as_of, came.gathered)
    works = ranges(came.gathered, there, jobs.slots)
    room = desk.env.settings.inline_max_bytes // max(1, len(works))
    errands = [
        Errand(
            tuple(work),
            as_of,
            time=None if timed else lower,
            compare_stored=came.stored,
            inline_max=room,
        )
        for work in works
    ]
    sent = send(errands, desk.shard.id, came.stand.bench.put_object)
    try:
        return Load.of(jobs.errands(worker.upsert_ranges, came.stand.site, sent))
    finally:
        desk.discard([sent.key] if sent.key else ())
