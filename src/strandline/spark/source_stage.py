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


_OWN_IDS = 2**32


class TaskRows(WriterCommitMessage):
    """What one task has staged, as it travels: sealed bytes and plain values."""

    def __init__(self, answer: bytes, digested: Digested, task: Task) -> None:
        self.answer = answer
        self.digest = digested.total.pack()
        self.former = digested.former.pack()
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
        digested = Digested(schema)
        if options.keys:
            incoming = digested.over(upsert_rows(batches, options, schema))
            answer = perform.stage(bench, incoming, most)
        else:
            answer = perform.append(bench, _selected(batches, schema), None, most)
        encoded = encode_answer(answer, bench.ground.shard_id)
        return TaskRows(encoded, digested, self)

    def _bench(self) -> Bench:
        blob = task_blob(self.options.place.store)
        return Bench(self.known_ground(), blob, SystemRandom(), SystemTasks().sleep)

    def known_ground(self) -> Ground:
        return decode_ground(self.ground, "")


class Digested:
    """Rows on their way, and what they add up to so far.

    Columns count by their ids, those that are not the table's by ids of their own: so a column
    that the table got since, and of which the rows hold nulls, changes nothing.
    """

    def __init__(self, schema: Schema) -> None:
        self.total = Digest.ZERO
        self.former = Digest.ZERO
        """By positions, as batches are on record that counted before there were such ids."""
        self._ids = dict(zip(schema.names, schema.ids, strict=True))

    def over(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            ids = [self._ids.get(name) or _own_id(name) for name in table.column_names]
            positions = list(range(1, len(ids) + 1))
            found = _digest(table, ids)
            self.total += found
            self.former += found if ids == positions else _digest(table, positions)
            yield batch


def _digest(rows: pa.Table, ids: Sequence[int]) -> Digest:
    return Digest.of(row_base(rows, ids), np.ones(rows.num_rows, np.int64))


def _own_id(name: str) -> int:
    """The same for ever, as digests are on record. No table has so many columns."""
    return (
        _OWN_IDS if name == DELETE_COLUMN else _OWN_IDS + 1 + int(name.removeprefix(ORDER_COLUMN))
    )


def staged(messages: Sequence[WriterCommitMessage | None]) -> list[TaskRows]:
    """The messages of the tasks that have one."""
    return [each for each in messages if isinstance(each, TaskRows)]


def answers_of(messages: Sequence[TaskRows], shard_id: str) -> list[Answer]:
    return [decode_answer(each.answer, shard_id) for each in messages]


def digest_of(messages: Sequence[TaskRows], recorded: Digest | None = None) -> Digest:
    """What came in, in the form in which the same batch is on record, if it is."""
    former = _sum(each.former for each in messages)
    return former if former == recorded else _sum(each.digest for each in messages)


def _sum(digests: Iterable[bytes]) -> Digest:
    total = Digest.ZERO
    for each in digests:
        total += Digest.unpack(each)
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
