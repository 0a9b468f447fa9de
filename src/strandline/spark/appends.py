"""Appends a DataFrame: one job that puts parts, then one commit.

independent   rows have no times; the append takes the next one, whichever that is by then.
              A lost race costs a new stamp on the facts, and no row is ever read again
replica       rows have times in `[lower, upper)`; who is not first is told so, and drops them
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.handles.write import Appended
from strandline.parts.rows import check_interval
from strandline.spark import worker
from strandline.spark.incoming import to_append
from strandline.spark.instruction import Counts
from strandline.spark.landed import Effort, Landed, Load, landed
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from strandline.model.frontier import Time
    from strandline.shard.command import UpperMismatch
    from strandline.spark.desk import Desk
    from strandline.spark.instruction import Answer
    from strandline.spark.jobs import Jobs

CONTENTION = Backoff(first_ms=1, factor=1.0, cap_ms=1, spread=1.0)
"""Constant, not growing: whoever has lost most would otherwise wait longest, and starve."""


def append(desk: Desk, jobs: Jobs, frame: DataFrame) -> Landed:
    """Append at the next time; others that write as well only delay it."""
    started = desk.env.clock.monotonic_ms()
    state = desk.writable()
    rows = to_append(frame, state.schema, timed=False)
    stand = desk.stand(state.schema)
    answers = jobs.over(rows, worker.append_rows, stand.site, None)
    load = Load.of(answers)
    count = _counted(load, answers)
    if not load.parts:
        done = None if load.few is None else stand.writer.append(load.few)
        return landed(desk, load, done, count, Effort(jobs.count, 1, started))
    load.put_few(stand.bench, untimed=True)
    attempts = 0
    while True:
        attempts += 1
        lower = desk.writable().upper.time or 0
        outcome = load.commit(desk, stand, (lower, lower + 1), restamp=True)
        if isinstance(outcome, Appended):
            return landed(desk, load, outcome, count, Effort(jobs.count, attempts, started))
        desk.env.tasks.sleep(CONTENTION.delay(attempts, desk.env.random.uniform))


def append_at(
    desk: Desk, jobs: Jobs, frame: DataFrame, lower: Time, upper: Time
) -> Landed | UpperMismatch:
    """Settle `[lower, upper)` with rows that have their own times, if it starts at the upper."""
    started = desk.env.clock.monotonic_ms()
    check_interval(lower, upper)
    state = desk.writable()
    rows = to_append(frame, state.schema, timed=True)
    stand = desk.stand(state.schema)
    answers = jobs.over(rows, worker.append_rows, stand.site, (lower, upper))
    load = Load.of(answers)
    count = _counted(load, answers)
    if load.parts:
        load.put_few(stand.bench, untimed=False)
        outcome = load.commit(desk, stand, (lower, upper), restamp=False)
    else:
        few = state.schema.updates().empty_table() if load.few is None else load.few
        outcome = stand.writer.compare_and_append(few, lower=lower, upper=upper)
    if isinstance(outcome, Appended):
        return landed(desk, load, outcome, count, Effort(jobs.count, 1, started))
    desk.discard(part.key for part in load.parts)
    return outcome


def _counted(load: Load, answers: Sequence[Answer]) -> int:
    """How many rows came in; each of them was put."""
    rows = sum(answer.rows_in for answer in answers)
    load.counts = Counts(upserted=rows)
    return rows
