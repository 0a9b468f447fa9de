"""Commits what the tasks of a write have staged: once, under the writer whose objects they are.

    append    parts are there already, without times: the commit says which time they have
    upsert    rows are there, by place: range after range is resolved against the rows that the
              table holds, so memory holds one range at a time; if another writer was faster,
              they are resolved again

What did not count is deleted where that is certain, and otherwise goes with the writer.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.config import cache_folder, from_environment
from strandline.errors import UsageError
from strandline.model.digest import Digest
from strandline.reading.view import pinned_view
from strandline.shard.command import Repeated
from strandline.spark import perform
from strandline.spark.attempts import Resolving, append_next, counted, upsert_next
from strandline.spark.blocks import Blocks
from strandline.spark.cache import BlockCache
from strandline.spark.desk import Desk, Stand
from strandline.spark.instruction import Errand
from strandline.spark.landed import Load
from strandline.spark.plan import Gathered, ranges
from strandline.spark.put import Bench
from strandline.spark.source_store import held_for_scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.handles.shard import Shard
    from strandline.handles.store import Store
    from strandline.handles.write import Appended, Writer
    from strandline.reading.view import View
    from strandline.shard.state import State
    from strandline.shard.txn import Txn
    from strandline.spark.instruction import Answer, Ground

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

    @property
    def stand(self) -> Stand:
        """Without a site: whoever commits starts no tasks."""
        return Stand(self.writer, b"", self.bench)

    def desk(self) -> Desk:
        return Desk(self.store, self.shard, ("", 0))

    @contextmanager
    def view(self) -> Iterator[View]:
        """The newest state, held for a term: nobody renews what this process of Spark's holds."""
        with held_for_scan(self.store, self.shard, _SCAN_MS) as hold:
            yield pinned_view(hold.lease)


def commit_append(job: Job, answers: Sequence[Answer]) -> Appended | Repeated | None:
    """Append at the next time, whichever that is by then."""
    load = Load.of(answers)
    if not load.parts and load.few is None:
        return _commit_nothing(job)
    return append_next(job.desk(), job.stand, load, job.txn).outcome


def commit_upsert(job: Job, answers: Sequence[Answer]) -> Appended | Repeated | None:
    """Upsert at the next time: what each key holds from then on."""
    came = Gathered.from_answers(answers, job.ground.schema)
    if not came:
        return _commit_nothing(job)
    desk = job.desk()
    resolving = Resolving(job.view, lambda state: _differences(job, desk, came, state), job.txn)
    try:
        return upsert_next(desk, job.stand, resolving).outcome
    finally:
        desk.discard(staged.key for staged in came.staged)


def _commit_nothing(job: Job) -> Repeated | None:
    """A batch without rows is compared with the one that counted, and is no version of its own.

    Otherwise a stream of one table into itself or another would never come to rest, and history
    that is kept by its number of versions would be pushed out by nothing.
    """
    return counted(job.shard.state(), job.txn, Digest.ZERO)


def check_newest(outcome: Appended | Repeated | None, table: str) -> None:
    """Refuse a micro-batch that is older than the newest one of its stream. Pure.

    A stream that starts again tries its last batch once more, and none before. An older one is
    of a stream that began anew under an old name: it was dropped, and its rows are not there.
    """
    if not isinstance(outcome, Repeated) or outcome.batch == outcome.newest:
        return
    raise UsageError(
        f"batch {outcome.batch} of stream {outcome.app} was not written to table {table}, which "
        f"has batch {outcome.newest} of it: the checkpoint was reset, or belongs to another "
        "stream. Give the stream a new checkpointLocation or txnAppId; or, if it is to begin anew "
        f"under this name, call shard.forget_txn({outcome.app!r}). Either way, rows that it "
        "reads again are written again"
    )


def _differences(job: Job, desk: Desk, came: Gathered, state: State) -> Load:
    """What the rows that came change, range after range."""
    lower = state.upper.time or 0
    as_of = lower - 1 if lower else None
    # A process of Spark's that commits was told nothing but options: the rest is its environment.
    config = from_environment()
    cache = BlockCache(cache_folder(config.cache_dir), config.cache_bytes)
    blocks = Blocks(job.store.env.blob, cache)
    there = desk.stored(state, as_of, came)
    room = job.store.env.settings.inline_max_bytes
    answers = []
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
