"""Rows of sources that may lose them: they are staged before they are sealed.

A compacted topic drops records from the middle of a range at any time, so whoever computes reads
what was there when the range was sealed. Who loses the race for the entry takes its copy away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.connectors.push import PushSource
from strandline.connectors.raw import RAW
from strandline.journal.staging import stage
from strandline.pipeline.meaning import packed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from strandline.connectors.source import Source, Split
    from strandline.journal.record import StagedRef
    from strandline.shard.env import Env

_CHUNK_BYTES = 8 * 1024 * 1024


def is_forgetful(source: Source) -> bool:
    """Whether a range of it is staged; pushes are staged too, by whoever took them."""
    return not source.replayable and not isinstance(source, PushSource)


def stage_range(
    env: Env,
    pipeline: str,
    splits: Iterable[Split],
    fetch: Callable[[Split], Iterable[pa.RecordBatch]],
) -> tuple[StagedRef, ...]:
    """What a range holds now, one object at least: an input that has one is never read again."""
    refs: list[StagedRef] = []
    try:
        for rows in _chunks(batch for split in splits for batch in fetch(split)):
            # One by one: what was put before it failed has to be known.
            refs.append(stage(env, pipeline, packed_rows(rows), rows=rows.num_rows))  # noqa: PERF401
    except BaseException:
        unstage(env, refs)
        raise
    return tuple(refs)


def unstage(env: Env, refs: Iterable[StagedRef]) -> None:
    """No record will ever refer to these: take them away."""
    for ref in refs:
        env.patient(lambda key=ref.key: env.blob.delete(key))  # type: ignore[misc]


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size, some = 0, False
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size, some = [], 0, True
    if waiting or not some:
        yield pa.Table.from_batches(waiting) if waiting else RAW.empty_table()
