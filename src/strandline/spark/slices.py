"""Rows on their way between tasks: Arrow, cut into slices by place. Pure.

A staged object holds record batches one after the other, in order of place; its description says
which places each covers, where its bytes lie and what they add up to. So a task reads, of many
objects, only the slices that its range touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import CorruptionError
from strandline.parts.envelope import checksum
from strandline.spark.instruction import Slice, Staged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.model.valuehash import U64

SLICE_BYTES = 512 * 1024
_DAMAGE = (pa.ArrowException, OSError, EOFError, ValueError)


def to_stream(table: pa.Table) -> bytes:
    """A table as bytes, its schema included; an empty table too."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def from_stream(encoded: bytes, what: str) -> pa.Table:
    try:
        with pa.ipc.open_stream(pa.py_buffer(encoded)) as stream:
            return stream.read_all()
    except _DAMAGE as error:
        raise CorruptionError(f"{what} is damaged: {error}") from error


def stage(table: pa.Table, places: U64) -> tuple[Staged, bytes]:
    """One object of rows that are in order of `places`; its description has no key yet."""
    table = table.combine_chunks()
    step = max(1, SLICE_BYTES * table.num_rows // max(1, table.nbytes))
    pieces: list[bytes] = []
    slices: list[Slice] = []
    start = 0
    for first in range(0, table.num_rows, step):
        last = min(table.num_rows, first + step)
        # A slice of a table is written with its own rows alone, not with its whole buffers.
        encoded = table.slice(first, last - first).to_batches()[0].serialize().to_pybytes()
        slices.append(
            Slice(
                int(places[first]),
                int(places[last - 1]),
                start,
                start + len(encoded),
                last - first,
                checksum(encoded),
            )
        )
        pieces.append(encoded)
        start += len(encoded)
    schema: bytes = table.schema.serialize().to_pybytes()
    return Staged("", schema, tuple(slices)), b"".join(pieces)


def touching(staged: Staged, lo: int, hi: int) -> Staged | None:
    """The slices that may hold rows at the places from `lo` to `hi`, both inclusive."""
    kept = tuple(each for each in staged.slices if each.place_lo <= hi and each.place_hi >= lo)
    return Staged(staged.key, staged.schema, kept) if kept else None


def runs(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Slices whose bytes lie side by side, so that each run is one read."""
    run: list[Slice] = []
    for each in slices:
        if run and run[-1].stop != each.start:
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def unstage(staged: Staged, run: Sequence[Slice], encoded: bytes | None) -> list[pa.RecordBatch]:
    """The rows of one run, out of its bytes."""
    what = f"staged object {staged.key}"
    if encoded is None:
        raise CorruptionError(f"{what} is missing: it was deleted, or its table closed, too early")
    schema = pa.ipc.read_schema(pa.py_buffer(staged.schema))
    view = memoryview(encoded)
    batches = []
    for each in run:
        piece = view[each.start - run[0].start : each.stop - run[0].start]
        if len(piece) != each.size or checksum(piece) != each.checksum:
            raise CorruptionError(f"{what} is damaged: a checksum does not match")
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(piece), schema)
        except _DAMAGE as error:
            raise CorruptionError(f"{what} is damaged: {error}") from error
        if batch.num_rows != each.rows:
            raise CorruptionError(f"{what} is damaged: {batch.num_rows} rows, not {each.rows}")
        batches.append(batch)
    return batches


def between(table: pa.Table, places: U64, lo: int, hi: int) -> tuple[pa.Table, U64]:
    """Of rows in any order, those at the places from `lo` to `hi`, both inclusive."""
    kept = (places >= np.uint64(lo)) & (places <= np.uint64(hi))
    if kept.all():
        return table, places
    return table.filter(pa.array(kept)), places[kept]
