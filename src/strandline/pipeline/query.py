"""Answers a query over the collections of a pipeline at one committed time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from strandline.errors import BoundsError, NotFoundError, ViewFailedError
from strandline.journal.timeline import JournalTimeline, timeline_name
from strandline.model.frontier import Time, valid_time
from strandline.pipeline.catalog import FLOOR, TOMBS, errors_of
from strandline.pipeline.engine import Question
from strandline.views.allow import allow_query

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
        self._refuse_failed(standing, allowed.reads, at)
        shards = {name: names[name] for name in allowed.reads}
        return self.answer(Question(allowed.sql, shards, at, line.instant_of(at) or 0))

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

    def _refuse_failed(self, standing: Standing, reads: Sequence[str], at: Time) -> None:
        """A view that raised, or one that is computed from such a view, has no answer."""
        for name in self._views_of(reads):
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

    def _views_of(self, reads: Sequence[str]) -> list[str]:
        """Every view that an answer depends on, directly or through others."""
        found: list[str] = []
        left = list(reads)
        while left:
            view = self.program.view(left.pop())
            if view is not None and view.name not in found:
                found.append(view.name)
                left.extend(view.reads)
        return sorted(found)
