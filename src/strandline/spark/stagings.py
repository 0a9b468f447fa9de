"""Stages the rows of a reload in tasks, as objects that a record can refer to.

A task puts its rows itself, in chunks, and gives back what a record says of each. Objects of tasks
that did not count are never referred to by anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.connectors.source import Split
from strandline.errors import MaybeAppliedError, NotAppliedError, StoreError
from strandline.journal.record import StagedRef
from strandline.journal.staging import digest_of, payload_key
from strandline.pipeline.bringing import brought, chunks_of
from strandline.pipeline.meaning import packed_rows
from strandline.spark.jobs import Jobs
from strandline.spark.relations import quoted
from strandline.spark.source_store import task_blob
from strandline.spark.worker import numbers_in, partition_number, reporting
from strandline.store.retry import Backoff
from strandline.system import SystemRandom, SystemTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from strandline.connectors.source import ResolveSecret
    from strandline.handles.store import Store
    from strandline.pipeline.bringing import Bringing
    from strandline.store.blob import Blob

_PATIENCE = Backoff(first_ms=5, factor=2.0, cap_ms=1_000)
_ATTEMPTS = 8
_encoder = msgspec.msgpack.Encoder()


class Told(msgspec.Struct, frozen=True, array_like=True):
    """What tasks are told."""

    url: str
    pipeline: str
    name: str
    packed: bytes
    """The table's columns."""
    key: tuple[str, ...]
    sequence_by: tuple[str, ...]
    options: dict[str, str]
    splits: tuple[Split, ...]
    at_ms: int
    """By the store's clock, which tasks do not see: what they stage is taken for that old."""

    @property
    def columns(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(self.packed))


_told = msgspec.msgpack.Decoder(Told)
_refs = msgspec.msgpack.Decoder(tuple[StagedRef, ...])


def staged_by(
    store: Store, spark: SparkSession, resolve: ResolveSecret, bringing: Bringing
) -> list[StagedRef]:
    """One job: what its tasks staged, in the order of files or of the frame's partitions."""
    table = bringing.table
    told = Told(
        store.url,
        bringing.pipeline,
        table.name,
        table.columns.serialize().to_pybytes(),
        table.key,
        table.sequence_by,
        dict(bringing.options),
        bringing.splits,
        store.env.patient(store.env.consensus.now_ms),
    )
    jobs = Jobs(spark, "")
    frame = _held(store, spark, bringing) if bringing.shard else bringing.frame
    if frame is not None:
        answers = jobs.collect(frame, stage_frame, _encoder.encode(told))  # type: ignore[arg-type]  # a DataFrame
    else:
        numbers = jobs.numbers(len(bringing.splits))
        answers = jobs.collect(numbers, stage_files, _encoder.encode(told), resolve)
    refs = [ref for each in answers for ref in _refs.decode(each)]
    _check_visible(store, refs)
    return refs


def _held(store: Store, spark: SparkSession, bringing: Bringing) -> DataFrame:
    """A shard, read by tasks."""
    names = bringing.table.columns.names
    return store.table(bringing.shard).df(spark, as_of=bringing.at).select(*map(quoted, names))


def stage_frame(told: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each task stages the rows that it computes."""
    with reporting():
        table = _told.decode(told)
        rows = (pa.Table.from_batches([batch]) for batch in batches)
        yield _answer(table, chunks_of(rows, table, partition_number()))


def stage_files(
    told: bytes, resolve: ResolveSecret, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of a file, whose rows are staged."""
    with reporting():
        table = _told.decode(told)
        for number in numbers_in(batches):
            split = table.splits[number]
            yield _answer(table, brought(split, table, table.options, resolve, number))


def _answer(table: Told, chunks: Iterable[pa.Table]) -> pa.RecordBatch:
    blob = task_blob(table.url)
    refs = tuple(_put(blob, table, rows) for rows in chunks)
    return pa.record_batch([pa.array([_encoder.encode(refs)], pa.binary())], ["answer"])


def _put(blob: Blob, table: Told, rows: pa.Table) -> StagedRef:
    """Under a new name each time: a put whose fate is unknown may have happened."""
    payload = packed_rows(rows)
    random, sleep = SystemRandom(), SystemTasks().sleep
    for attempt in range(_ATTEMPTS):
        key = payload_key(table.pipeline, table.at_ms, random.token())
        try:
            blob.put(key, payload)
        except (NotAppliedError, MaybeAppliedError):
            sleep(_PATIENCE.delay(attempt, random.uniform))
        else:
            return StagedRef(key, digest_of(payload), rows.num_rows, len(payload))
    raise NotAppliedError(
        f"rows of {table.pipeline} could not be staged: the store did not take them"
    )


def _check_visible(store: Store, refs: Iterable[StagedRef]) -> None:
    """Tasks on a machine that does not see the store would put objects where nobody looks."""
    env = store.env
    for ref in refs:
        if env.patient(lambda key=ref.key: env.blob.get_range(key, 0, 1)) is None:  # type: ignore[misc]
            raise StoreError(
                f"store {store.url} is not what Spark's executors see under that name: what they "
                "staged is not there; use a store that all machines share"
            )
