"""Changes of a collection in tasks: puts them as parts, or reads parts that nobody has appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from strandline.errors import CorruptionError
from strandline.model.columntype import cast
from strandline.model.frontier import Frontier
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.consolidate import consolidate
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.part import Part
from strandline.parts.rows import check_rows
from strandline.spark import slices
from strandline.spark.arrowtypes import for_spark
from strandline.spark.instruction import Answer, encode_answer
from strandline.spark.perform import add_digests, flushes, packed
from strandline.spark.schedule import returnable
from strandline.spark.worker import bench_of, numbers_in, partition_number, reporting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from strandline.model.digest import Digest
    from strandline.model.schema import Schema
    from strandline.spark.put import Bench

_BATCH_ROWS = 65_536
_parts = msgspec.msgpack.Decoder(tuple[Part, ...])


def put_rows(
    site: bytes, time: int, most: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each task puts its changes as parts, or gives few back."""
    with reporting():
        bench = bench_of(site)
        answer = put_changes(bench, batches, time, returnable(partition_number(), most))
        encoded = encode_answer(answer, bench.ground.shard_id)
        yield pa.record_batch([pa.array([encoded], pa.binary())], ["answer"])


def read_parts(
    site: bytes, parts: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Each row is the number of a part; its changes come out, with `_diff` and without time."""
    with reporting():
        bench = bench_of(site)
        listed = _parts.decode(parts)
        for number in numbers_in(batches):
            rows = changes_in(bench, listed[number])
            yield from for_spark(rows).to_batches(max_chunksize=_BATCH_ROWS)


def put_changes(
    bench: Bench, batches: Iterable[pa.RecordBatch], time: int, returnable: int
) -> Answer:
    """Put changes, all at `time`, as parts; up to `returnable` bytes are given back instead."""
    schema = bench.ground.schema
    parts: list[Part] = []
    digests: dict[int, Digest] = {}
    rows = 0
    for table, is_last in flushes(batches):
        rows += table.num_rows
        added = consolidate(as_changes(table, schema))
        checked = check_rows(added, schema, lower=time, upper=Frontier(time + 1))
        if is_last and not parts and checked.updates.nbytes <= returnable:
            few = checked.updates if checked.updates.num_rows else None
            return Answer(rows=slices.to_stream(few) if few else b"", rows_in=rows)
        if checked.updates.num_rows:
            parts += bench.put_updates(checked.updates, untimed=True)
            add_digests(digests, checked.digests)
    return Answer(tuple(parts), packed(digests), rows_in=rows)


def as_changes(table: pa.Table, schema: Schema) -> pa.Table:
    """The shard's columns in its types, and `_diff`."""
    columns = [cast(table.column(name), schema.field(name).type) for name in schema.names]
    fields = [schema.updates().field(name) for name in (*schema.names, DIFF_COLUMN)]
    diffs = table.column(DIFF_COLUMN).cast(pa.int64())
    return pa.Table.from_arrays([*columns, diffs], schema=pa.schema(fields))


def changes_in(bench: Bench, part: Part) -> pa.Table:
    """The changes of a part that no state refers to yet."""
    ground = bench.ground
    encoded = bench.patient(lambda: bench.blob.get(part.key))
    if encoded is None:
        raise CorruptionError(f"part {part.key} of shard {ground.shard} is missing")
    owner = Owner(ground.shard_id, part.key)
    table = decode_part(encoded, part, ground.schema, owner=owner)
    return table.select([*ground.schema.names, DIFF_COLUMN])


def encode_parts(parts: Sequence[Part]) -> bytes:
    # Statistics are for those who prune.
    return msgspec.msgpack.encode(tuple(msgspec.structs.replace(each, stats=b"") for each in parts))
