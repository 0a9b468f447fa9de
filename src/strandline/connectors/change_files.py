"""One file of changes: Parquet, or a line of JSON for each. Written as they come, in bounded space.

JSON is what a table reads: text for dates, decimals and floats that are no numbers, base64 for
bytes (see `values`), so that what one pipeline publishes another one reads exactly.
"""

from __future__ import annotations

import base64
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as is_

from strandline.connectors.plain import exact, plain
from strandline.connectors.sink import BATCH_ROWS
from strandline.connectors.values import Notation, column, python_type
from strandline.model.schema import DIFF_COLUMN

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("parquet", "json")
ROWS_MAX = 1_000_000
"""A file is closed with the batch in which it gets so many rows."""
_NOTATION = Notation()


def with_diff(columns: pa.Schema) -> pa.Schema:
    """The columns of changes."""
    return pa.schema([*columns, pa.field(DIFF_COLUMN, pa.int64(), nullable=False)])


def packed(schema: pa.Schema) -> str:
    bare = schema.remove_metadata()
    return base64.b64encode(bare.serialize().to_pybytes()).decode()


def unpacked(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def write(
    file: IO[bytes], kind: str, columns: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> tuple[int, Iterator[pa.RecordBatch] | None]:
    """Write one file; returns its rows, and the batches that are left for the next one."""
    writer = _Parquet(file, columns) if kind == "parquet" else _Json(file)
    rows = 0
    for batch in batches:
        writer.write(batch.select(columns.names).cast(columns))
        rows += batch.num_rows
        if rows >= ROWS_MAX:
            break
    writer.close()
    following = next(batches, None)
    return rows, None if following is None else chain((following,), batches)


def read(file: IO[bytes], kind: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What was written."""
    if kind == "parquet":
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS):
                yield batch.cast(columns)
        return
    readers = {
        each.name: msgspec.json.Decoder(python_type(each.type, _NOTATION) | None)
        for each in columns
    }
    rows: list[dict[str, msgspec.Raw]] = []
    for line in file:
        rows.append(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
        if len(rows) == BATCH_ROWS:
            yield _batch(rows, readers, columns)
            rows = []
    if rows:
        yield _batch(rows, readers, columns)


def _batch(
    rows: list[dict[str, msgspec.Raw]],
    readers: dict[str, msgspec.json.Decoder[Any]],
    columns: pa.Schema,
) -> pa.RecordBatch:
    arrays = [
        column([readers[each.name].decode(row[each.name]) for row in rows], each.type, _NOTATION)
        for each in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _bounded(columns: pa.Schema) -> bool | list[str]:
    """Where statistics are written: not for floats, of which one may be NaN.

    Arrow leaves NaN out of the greatest value, and Spark and DuckDB, for which it is greater than
    all else, would skip rows that `x > 5` is true of. Nested columns go with them.
    """
    if not any(_has_floats(each.type) for each in columns):
        return True
    plain_ones = (each for each in columns if not is_.is_nested(each.type))
    return [each.name for each in plain_ones if not is_.is_floating(each.type)]


def _has_floats(kind: pa.DataType) -> bool:
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return is_.is_floating(kind) or any(map(_has_floats, inner))


class _Parquet:
    def __init__(self, file: IO[bytes], columns: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(
            file, columns, compression="zstd", write_statistics=_bounded(columns)
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Json:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        rows = exact(pa.Table.from_batches([batch]))
        kinds = [(each.name, each.type) for each in rows.schema]
        for row in rows.to_pylist():
            line = {name: plain(row[name], kind) for name, kind in kinds}
            self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None: ...
