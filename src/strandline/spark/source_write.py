"""Batch and streaming writes of `format("strandline")`.

    planner     check the columns, register a writer for a term       (Spark asks for a writer)
    tasks       stage their rows under its id                         (`write`)
    committer   one commit, then the writer goes                      (`commit`, or `abort`)

These are three kinds of processes. A batch writer travels from the planner to both others. Spark
makes a new stream writer where it commits, so there the messages of the tasks say who wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from strandline.errors import InvariantError, NameRefusedError
from strandline.shard.txn import Txn, valid_app
from strandline.spark.columns import check_key, check_names, check_types
from strandline.spark.instruction import encode_ground, make_ground
from strandline.spark.source_commit import Job, check_newest, commit_append, commit_upsert
from strandline.spark.source_stage import Task, answers_of, digest_of, staged
from strandline.spark.source_store import end_term_writer, opened, term_writer, term_writer_of
from strandline.spark.sparktypes import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from strandline.handles.write import Appended
    from strandline.model.schema import Schema
    from strandline.shard.command import Repeated
    from strandline.spark.source_options import Write
    from strandline.spark.source_stage import TaskRows


def begin(options: Write, columns: StructType) -> Task:
    """Check what is to be written, and register who writes it."""
    with opened(options.place) as (store, shard):
        schema = shard.state().schema
        check_columns(options, columns, schema)
        term = term_writer(store, shard, options.lease_ms)
        settings = store.env.settings
        ground = make_ground(
            schema,
            shard=(shard.name, shard.id),
            writer=term.writer,
            limits=(
                settings.inline_max_bytes,
                settings.part_target_rows,
                settings.part_target_bytes,
            ),
        )
        return Task(options, encode_ground(ground, ""), term)


def check_columns(options: Write, columns: StructType, schema: Schema) -> None:
    """Refuse missing and extra columns, and types that do not fit, by name."""
    used = {name.casefold() for name in options.extra}
    check_names(columns.names, (*schema.names, *options.extra), used=used)
    have = arrow_schema(columns)
    check_types(have, schema, schema.names)
    if options.delete_when is not None:
        options.delete_when.marks(have.empty_table())
    if options.keys:
        check_key(schema, options.keys, options.place.table)


def finish(messages: list[TaskRows], batch: int | None) -> Appended | Repeated | None:
    """Commit what tasks have staged, as batch `batch` of the application that options name.

    `None` if there was nothing to write.
    """
    task = messages[0].task
    options = task.options
    ground = task.known_ground()
    with opened(options.place) as (store, shard):
        try:
            with term_writer_of(store, shard, task.term) as writer:
                answers = answers_of(messages, ground.shard_id)
                txn = None
                if options.app is not None and batch is not None:
                    app = app_name(options.app)
                    mark = shard.state().txns.get(app)
                    recorded = mark.total if mark is not None and mark.batch == batch else None
                    digest = digest_of(messages, recorded) if options.keys else None
                    txn = Txn(app, batch, digest)
                stored = options.sequence_by
                if not set(stored) <= set(ground.schema.names):
                    stored = ()
                job = Job(store, shard, writer, ground, txn, stored)
                return (commit_upsert if options.keys else commit_append)(job, answers)
        finally:
            end_term_writer(store, shard, task.term)


def give_up(task: Task, messages: list[TaskRows]) -> None:
    """End the writer, and delete the rows that its tasks have staged.

    Spark also gives up when a commit failed, and then its append may have counted all the same;
    by now others may list its parts in their chunks. So parts are left to the collector, which
    finds those that nothing refers to once their writer is gone.
    """
    ground = task.known_ground()
    with opened(task.options.place) as (store, shard):
        end_term_writer(store, shard, task.term)
        for answer in answers_of(messages, ground.shard_id):
            for each in answer.staged:
                store.env.blob.delete(each.key)


def app_name(text: str) -> str:
    """The name of an application; a text that can't be one, such as a long path, is hashed."""
    try:
        return valid_app(text)
    except NameRefusedError:
        return f"hashed {xxhash.xxh3_128_hexdigest(text.encode())}"


class BatchWriter(DataSourceArrowWriter):
    """Appends or upserts the rows of a DataFrame, all of them or none."""

    def __init__(self, options: Write, columns: StructType) -> None:
        self._task = begin(options, columns)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._task.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        told = staged(messages)
        if told:
            finish(told, self._task.options.batch)
        else:
            give_up(self._task, [])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        give_up(self._task, staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends or upserts each micro-batch once, however often Spark tries it."""

    def __init__(self, options: Write, columns: StructType) -> None:
        self._options = options
        self._columns = columns
        self._task: Task | None = None

    def __getstate__(self) -> dict[str, object]:
        """Spark sends a writer to the tasks, which need somebody in whose name they write.

        Where it makes one to commit with, that writer stays where it is and needs nobody.
        """
        if self._task is None:
            self._task = begin(self._options, self._columns)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._task is None:
            raise InvariantError("a stream writer reached a task without a writer's id")
        return self._task.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        told = staged(messages)
        if told:
            check_newest(finish(told, batchId), self._options.place.table)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        told = staged(messages)
        if told:
            give_up(told[0].task, told)
