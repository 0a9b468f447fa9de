"""Resolves what came for all keyed collections of a transaction against what is there: one job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from strandline.parts.emptied import NOTHING, Emptying
from strandline.spark.instruction import Errand
from strandline.spark.landed import Load
from strandline.spark.parcels import wrap
from strandline.spark.plan import Gathered, all_ranges, everywhere, ranges
from strandline.spark.resolver import Emptied, Task, decode_outcome, encode_task, resolve_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.spark.instruction import Answer
    from strandline.spark.jobs import Jobs
    from strandline.spark.premises import Premises

RETURNED = 2 * 1024 * 1024
"""Changes of up to so many bytes come to the driver, where views are computed from them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What came for one collection, and how it is resolved."""

    collection: str
    answers: Sequence[Answer]
    compare_stored: tuple[str, ...] = ()
    tombs: str = ""
    """The collection of its tombstones, if it has them."""
    sweep_before: int | None = None
    """Older ones go in this transaction."""
    emptying: Emptying = NOTHING

    def __bool__(self) -> bool:
        """Whether there is anything to be resolved."""
        return bool(self.answers) or self.emptying.empties


def resolve_all(premises: Premises, jobs: Jobs, wanted: Sequence[Wanted]) -> dict[str, Load]:
    """What changes in each collection; those that nothing came for cost nothing."""
    tasks = [task for each in wanted for task in _tasks(premises, jobs, each)]
    if not tasks:
        return {}
    room = RETURNED // len(tasks)
    tasks = [replace(task, errand=replace(task.errand, inline_max=room)) for task in tasks]
    first = tasks[0].collection
    stand = premises.stand(first)
    parcels = wrap([encode_task(each) for each in tasks], stand.bench.put_object)
    if parcels.key:
        premises.discard_later(first, [parcels.key])
    told = (stand.site, msgspec.msgpack.encode(parcels))
    found: dict[str, list[Answer]] = {}
    for encoded in jobs.collect(jobs.numbers(len(tasks)), resolve_ranges, *told):
        outcome = decode_outcome(encoded)
        found.setdefault(outcome.collection, []).append(outcome.answer)
    return {collection: Load.of(answers) for collection, answers in found.items()}


def _tasks(premises: Premises, jobs: Jobs, wanted: Wanted) -> list[Task]:
    state = premises.state(wanted.collection)
    gathered = Gathered.from_answers(wanted.answers, state.schema)
    empties = wanted.emptying.empties
    if not gathered and not empties:
        return []
    # All that is there may go, not only what is there of the keys that came.
    came = None if empties else gathered
    there = premises.desk(wanted.collection).stored(state, premises.as_of, came)
    whole = Task(
        wanted.collection,
        premises.stand(wanted.collection).site,
        Errand((), premises.as_of, time=premises.work.time, compare_stored=wanted.compare_stored),
        emptied=Emptied.of(wanted.emptying),
    )
    if wanted.tombs:
        whole = replace(whole, now_ms=premises.work.now_ms, sweep_before=wanted.sweep_before)
        whole = _with_tombs(premises, whole, wanted.tombs, gathered)
    return [
        replace(whole, errand=replace(whole.errand, ranges=tuple(work)))
        for work in (all_ranges if empties else ranges)(gathered, there, jobs.slots)
    ]


def _with_tombs(premises: Premises, task: Task, tombs: str, came: Gathered) -> Task:
    """The same with the tombstones of what came; their places are not the table's."""
    state = premises.state(tombs)
    keys = None
    if not came.staged and came.rows is not None:
        keys = Gathered.of([came.rows.select(list(state.schema.key))], (), state.schema)
    buried = everywhere(premises.desk(tombs).stored(state, premises.as_of, keys))
    return replace(task, tombs=tombs, tombs_site=premises.stand(tombs).site, buried=buried)
