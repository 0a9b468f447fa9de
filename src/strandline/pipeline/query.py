"""Answers a query over the collections of a pipeline at one committed time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from strandline.errors import BoundsError, NotFoundError, ViewFailedError
from strandline.journal.staging import program_text
from strandline.journal.timeline import JournalTimeline, timeline_name
from strandline.model.frontier import Time, valid_time
from strandline.pipeline.catalog import FLOOR, TOMBS, VIEW, VIEW_ERRORS, errors_of
from strandline.pipeline.engine import Question
from strandline.views.allow import allow_query
from strandline.views.parse import parse
from strandline.views.repeat import uses_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from strandline.handles.store import Store
    from strandline.journal.log import Journal
    from strandline.journal.standing import Standing
    from strandline.views.program import Program


@dataclass(frozen=True, slots=True)
class Library:
    """What can be asked about: a pipeline, and who answers."""

    store: Store
    journal: Journal
    program: Program
    answer: Callable[[Question], pa.Table]

    def ask(self, sql: str, as_of: Time | datetime | None) -> pa.Table:
        """The rows of a checked query; all shards of a pipeline share its times, so one number
        makes the answer consistent."""
        standing = self.journal.refresh()
        if not standing.epoch:
            raise NotFoundError(f"pipeline {self.journal.pipeline} was not run yet")
        bound = standing.bindings.items()
        names = {name: each.shard for name, each in bound if each.role not in {TOMBS, FLOOR}}
        allowed = allow_query(sql, list(names))
        line = JournalTimeline(self.store.env, timeline_name(self.journal.pipeline))
        at = self._time(standing, line, as_of)
        views = views_of(self._promoted(standing), allowed.reads)
        self._refuse_younger(standing, [*views, *allowed.reads], at)
        self._refuse_failed(standing, views, at)
        shards = {name: names[name] for name in allowed.reads}
        now_ms = line.instant_of(at)
        if now_ms is None and uses_clock(allowed.tree):
            raise BoundsError(
                f"pipeline {self.journal.pipeline}: when {at} was committed is not on record any "
                "more, so now() has no answer as of it; leave now() out, or ask as of a later time"
            )
        return self.answer(Question(allowed.sql, shards, at, now_ms or 0))

    def _promoted(self, standing: Standing) -> Program:
        """The program that the bindings are of, whatever this handle was opened with."""
        if standing.program == self.program.hash:
            return self.program
        record = standing.programs[standing.program]
        text = program_text(self.store.env, self.journal.pipeline, record)
        return parse(text, recorded=True)

    def _time(
        self, standing: Standing, line: JournalTimeline, as_of: Time | datetime | None
    ) -> Time:
        last = standing.committed.last()
        at: Time | None
        if isinstance(as_of, datetime):
            at = line.time_at(int(as_of.timestamp() * 1000))
        else:
            at = last if as_of is None else valid_time(as_of, "as_of")
        if at is None or last is None:
            raise BoundsError(f"pipeline {self.journal.pipeline} had committed nothing by then")
        if at > last:
            raise BoundsError(
                f"pipeline {self.journal.pipeline} can't be asked as of {at}: {last} is the last "
                "time that is committed"
            )
        return at

    def _refuse_younger(self, standing: Standing, names: Sequence[str], at: Time) -> None:
        """What a view's shard holds before the view was built is nothing, or not its answer."""
        for name in names:
            bound = standing.bindings.get(name)
            if bound is None or bound.role not in {VIEW, VIEW_ERRORS} or at >= bound.since:
                continue
            first = bound.since
            when = f"ask as of {first} or later"
            if not standing.committed.settled(first):
                when = f"{first} is not committed yet: it is as soon as a replica runs"
            raise BoundsError(
                f"{bound.role} {name} is what it is since {first}, and has no answer as of {at}; "
                f"{when}"
            )

    def _refuse_failed(self, standing: Standing, views: Sequence[str], at: Time) -> None:
        """A view that raised, or one that is computed from such a view, has no answer."""
        for name in views:
            errors = standing.bindings.get(errors_of(name))
            if errors is None:
                continue
            with self.store.shard(errors.shard).snapshot(as_of=at) as snapshot:
                found = snapshot.to_arrow().slice(0, 1).to_pylist()
            for each in found:
                where = f", for {each['row']}" if each["row"] else ""
                raise ViewFailedError(
                    f"view {name} has no answer as of {at}: {each['reason']}{where}; see "
                    f"{errors_of(name)}"
                )


def views_of(program: Program, reads: Sequence[str]) -> list[str]:
    """Every view that an answer depends on, directly or through others."""
    found: list[str] = []
    left = list(reads)
    while left:
        view = program.view(left.pop())
        if view is not None and view.name not in found:
            found.append(view.name)
            left.extend(view.reads)
    return sorted(found)
