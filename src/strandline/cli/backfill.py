"""How far a run has come with what its sources had when it began, on a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.cli.render import counted
from strandline.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.cli.output import Output, Step
    from strandline.model.tasks import Event
    from strandline.pipeline.pipeline import Pipeline

_LOOK_MS = 1_000


class Backfill:
    """What was left when it was most, and what is left of it."""

    def __init__(self) -> None:
        self._most = 0

    def told(self, left: int, transactions: int) -> tuple[int, int, str]:
        """Rows that were taken, of how many, and in how many transactions. What a source gets
        meanwhile counts as if it had been there."""
        self._most = max(self._most, left)
        return self._most - left, self._most, counted(transactions, "transaction") + ", rows taken"


@contextmanager
def shown_backfill(pipeline: Pipeline, out: Output) -> Iterator[None]:
    """Show a bar while a replica runs beside; sources are asked by a task of its own, since they
    may take their time. Where nobody looks, nobody asks."""
    if out.as_json or not out.watched:
        yield
        return
    tasks = pipeline.store.env.tasks
    over = tasks.event()
    with out.progress(pipeline.name) as step:
        task = tasks.start("backfill", lambda: _look(pipeline, step, over))
        try:
            yield
        finally:
            over.set()
            task.join()


def _look(pipeline: Pipeline, step: Step, over: Event) -> None:
    seen = Backfill()
    while not over.wait(_LOOK_MS):
        here = pipeline.here
        try:
            left = [each.behind for each in pipeline.status().endpoints]
        except StrandlineError:
            # A source does not answer, and the run itself says so.
            continue
        if here is not None:
            step(*seen.told(sum(each or 0 for each in left), here.transactions))
