"""What a task of a write does with its rows: they are put as parts, or by place for an upsert.

A task knows the ground it writes on (see `instruction`) and what the options mean, and nothing
else; few rows travel back in its message instead of being put. An upsert that has to be known
again also tells the digest of the rows that came in, because what they change depends on what is
there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from strandline.model.digest import Digest
from strandline.model.engine import DELETE_COLUMN, ORDER_COLUMN
from strandline.model.rowhash import row_base
from strandline.spark import perform
from strandline.spark.instruction import decode_answer, decode_ground, encode_answer
from strandline.spark.put import Bench
from strandline.spark.schedule import RETURNED_BYTES, returnable
from strandline.spark.source_store import Term, task_blob
from strandline.system import SystemRandom, SystemTasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.model.schema import Schema
    from strandline.spark.instruction import Answer, Ground
    from strandline.spark.source_options import Write


class TaskRows(WriterCommitMessage):
    """What one task has staged, as it travels: sealed bytes and plain values."""

    def __init__(self, answer: bytes, digest: bytes, task: Task) -> None:
        self.answer = answer
        self.digest = digest
        self.task = task


class Task:
    """What all tasks of one write are told."""

    def __init__(self, options: Write, ground: bytes, term: Term) -> None:
        self.options = options
        self.ground = ground
        self.term = term

    def stage(self, batches: Iterable[pa.RecordBatch]) -> TaskRows:
        """Stage the rows of one task."""
        options = self.options
        bench = self._bench()
        schema = bench.ground.schema
        context = TaskContext.get()
        most = returnable(0 if context is None else context.partitionId(), RETURNED_BYTES)
        digested = Digested()
        if options.keys:
            incoming = digested.over(upsert_rows(batches, options, schema))
            answer = perform.stage(bench, incoming, most)
        else:
            answer = perform.append(bench, _selected(batches, schema), None, most)
        encoded = encode_answer(answer, bench.ground.shard_id)
        return TaskRows(encoded, digested.total.pack(), self)

    def _bench(self) -> Bench:
        blob = task_blob(self.options.place.store)
        return Bench(self.known_ground(), blob, SystemRandom(), SystemTasks().sleep)

    def known_ground(self) -> Ground:
        return decode_ground(self.ground, "")


class Digested:
    """Rows on their way, and what they add up to so far."""

    def __init__(self) -> None:
        self.total = Digest.ZERO

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            hashes = row_base(table, range(1, table.num_columns + 1))
            self.total += Digest.of(hashes, np.ones(batch.num_rows, np.int64))
            yield batch


def staged(messages: Sequence[WriterCommitMessage | None]) -> list[TaskRows]:
    """The messages of the tasks that have one."""
    return [each for each in messages if isinstance(each, TaskRows)]


def answers_of(messages: Sequence[TaskRows], shard_id: str) -> list[Answer]:
    return [decode_answer(each.answer, shard_id) for each in messages]


def digest_of(messages: Sequence[TaskRows]) -> Digest:
    total = Digest.ZERO
    for each in messages:
        total += Digest.unpack(each.digest)
    return total


def upsert_rows(
    batches: Iterable[pa.RecordBatch], options: Write, schema: Schema
) -> Iterator[pa.RecordBatch]:
    """The table's columns, with what says which row of a key is the last, and which deletes."""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        found = rows.select(list(schema.names))
        if options.delete_when is not None:
            gone = pa.array(options.delete_when.marks(rows), pa.bool_())
            found = found.append_column(DELETE_COLUMN, gone)
        for at, name in enumerate(options.sequence_by):
            found = found.append_column(f"{ORDER_COLUMN}{at}", rows.column(name))
        yield from found.combine_chunks().to_batches()


def _selected(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(list(schema.names))
