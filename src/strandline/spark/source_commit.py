"""Commits what the tasks of a write have staged: once, under the writer whose objects they are.

    append    parts are there already, without times: the commit says which time they have
    upsert    rows are there, by place: range after range is resolved against the rows that the
              table holds, so memory holds one range at a time; if another writer was faster,
              they are resolved again

What did not count is deleted where that is certain, and otherwise goes with the writer.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.errors import StoreError
from strandline.handles.stage import Stage
from strandline.model.digest import Digest
from strandline.parts.part import Batch, restamped_part
from strandline.reading.view import pinned_view
from strandline.shard.command import Repeated, UpperMismatch
from strandline.spark import perform
from strandline.spark.blocks import Blocks
from strandline.spark.cache import BlockCache
from strandline.spark.desk import Desk
from strandline.spark.instruction import Errand
from strandline.spark.landed import Load
from strandline.spark.plan import Gathered, ranges
from strandline.spark.put import Bench
from strandline.spark.source_store import held_for_scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.handles.write import Appended, Writer
    from strandline.model.frontier import Time
    from strandline.shard.txn import Txn
    from strandline.spark.instruction import Answer, Ground

CACHE_BYTES = 8 * 1024 * 1024 * 1024
_SCAN_MS = 60 * 60 * 1000
"""How long one attempt to resolve an upsert may take."""


@dataclass(frozen=True, slots=True)
class Job:
    """One write: whose it is, and what it means."""

    store: Store
    shard: Shard
    writer: Writer
    ground: Ground
    txn: Txn | None
    compare_stored: tuple[str, ...] = ()

    @property
    def bench(self) -> Bench:
        env = self.store.env
        return Bench(self.ground, env.blob, env.random, env.tasks.sleep)

    def discard(self, keys: Iterable[str]) -> None:
        """Delete objects that nothing refers to, for sure; what stays is an orphan."""
        for key in keys:
            try:
                self.store.env.blob.delete(key)
            except StoreError:
                self.store.env.metrics.add("retries", self.shard.name)


def commit_append(job: Job, answers: Sequence[Answer]) -> None:
    """Append at the next time, whichever that is by then."""
    load = Load.of(answers)
    writer = job.writer
    if not load.parts:
        if load.few is not None and job.txn is not None:
            writer.append(load.few, txn=job.txn)
        elif load.few is not None:
            writer.append(load.few)
        return
    load.put_few(job.bench, untimed=True)
    while True:
        lower = _next_time(job)
        outcome = _commit(job, load, lower, restamp=True)
        if isinstance(outcome, Repeated):
            job.discard(part.key for part in load.parts)
        if not isinstance(outcome, UpperMismatch):
            return


def commit_upsert(job: Job, answers: Sequence[Answer]) -> None:
    """Upsert at the next time: what each key holds from then on."""
    came = Gathered.from_answers(answers, job.ground.schema)
    try:
        while came and not _counted(job):
            lower = _next_time(job)
            load = _differences(job, came, lower)
            outcome = _append(job, load, lower)
            if not isinstance(outcome, UpperMismatch):
                return
            job.discard(part.key for part in load.parts)
    finally:
        job.discard(staged.key for staged in came.staged)


def _append(job: Job, load: Load, lower: Time) -> Appended | UpperMismatch | Repeated | None:
    """Append the differences; `None` if there are none, and nothing has to be remembered."""
    writer, upper = job.writer, lower + 1
    if load.parts:
        load.put_few(job.bench, untimed=True)
        return _commit(job, load, lower, restamp=False)
    few = job.ground.schema.updates().empty_table() if load.few is None else load.few
    if job.txn is not None:
        return writer.compare_and_append(few, lower=lower, upper=upper, txn=job.txn)
    return writer.compare_and_append(few, lower=lower, upper=upper) if few.num_rows else None


def _differences(job: Job, came: Gathered, lower: Time) -> Load:
    """What the rows that came change, range after range."""
    as_of = lower - 1 if lower else None
    blocks = Blocks(job.store.env.blob, BlockCache(_cache_folder(), CACHE_BYTES))
    desk = Desk(job.store, job.shard, ("", 0))
    answers = []
    with held_for_scan(job.store, job.shard, _SCAN_MS) as hold:
        view = pinned_view(hold.lease)
        there = desk.stored(view.state, as_of, came)
        room = job.store.env.settings.inline_max_bytes
        for works in ranges(came, there, 1):
            for work in works:
                errand = Errand(
                    (work,),
                    as_of,
                    time=lower,
                    compare_stored=job.compare_stored,
                    inline_max=room,
                )
                answer = perform.upsert(job.bench, blocks, errand)
                room -= len(answer.rows)
                answers.append(answer)
    return Load.of(answers)


def _commit(
    job: Job, load: Load, lower: Time, *, restamp: bool
) -> Appended | UpperMismatch | Repeated:
    """Append the parts of a load at `lower`."""
    parts, total = load.parts, Digest.ZERO
    if restamp:
        parts = [restamped_part(part, lower) for part in parts]
    for digest in load.digests.values():
        total += digest
    writer = job.writer
    stage = Stage(job.store.env, job.shard.name, writer.id)
    chunks, _ = stage.put_chunks(parts, job.shard.machine.state)
    batch = Batch(lower, lower + 1, parts=() if chunks else tuple(parts), chunks=chunks)
    digests = {lower: total}
    if job.txn is None:
        return writer.commit_parts(batch, digests, lower=lower, upper=lower + 1)
    return writer.commit_parts(batch, digests, lower=lower, upper=lower + 1, txn=job.txn)


def _next_time(job: Job) -> Time:
    return Desk(job.store, job.shard, ("", 0)).writable().upper.time or 0


def _counted(job: Job) -> bool:
    """Whether a newer batch of the application counts: then nobody has to look at this one."""
    if job.txn is None:
        return False
    mark = job.shard.state().txns.get(job.txn.app)
    return mark is not None and mark.batch > job.txn.batch


def _cache_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"strandline-{os.getuid()}"
