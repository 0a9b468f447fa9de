"""The rows of a file, read as a stream: however large the file is, little of it is in memory.

A file may be made to hurt (X11): a line without an end, or a few kilobytes that unpack to
gigabytes. What is too much is refused by the file's name, before it is in memory:

    option          default    what is refused
    --------------  ---------  ---------------------------------------------------------------
    maxRecordBytes  67108864   a longer line or record, and a block of Avro that unpacks to more
    maxRatio        1000       a Parquet or Avro file whose rows have more than so many times its
                               bytes, if that is more than a gigabyte

Of Parquet, besides, pages that unpack to more than a hundred times their size and 256 MB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.connectors import raw as layout
from strandline.connectors.avrofile import avro_batches
from strandline.connectors.formats import CSV_COLUMNS, csv_cells, reason_of
from strandline.connectors.options import whole
from strandline.errors import SourceError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

    from strandline.connectors.source import Split

BATCH_ROWS = 10_000
BATCH_BYTES = 8 * 1024 * 1024
RECORD_MAX = 64 * 1024 * 1024
RATIO_MAX = 1_000
UNPACKED_FREE = 1024**3
"""A file that has no more than this, unpacked, is nobody's bomb."""
PAGES_FREE = 256 * 1024 * 1024
PAGES_RATIO = 100

OPTIONS = ("maxRecordBytes", "maxRatio")

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class File:
    """A file that is read: what it is called, its size, and what is too much."""

    path: str
    partition: str
    kind: str
    options: Mapping[str, str]
    size: int
    record_max: int
    unpacked_max: int

    def refused(self, why: str) -> SourceError:
        return SourceError(f"file {printable(self.path)} is not read: {why}")

    def unreadable(self, error: Exception) -> SourceError:
        return SourceError(
            f"file {printable(self.path)} is no {self.kind} file that can be read: "
            f"{reason_of(error)}"
        )


def rows_of(stream: BinaryIO, path: str, split: Split) -> Iterator[pa.RecordBatch]:
    """The rows of a whole file, in the layout of `raw`."""
    record_max, ratio = limits_of(split.options)
    file = File(
        path=path,
        partition=split.partition,
        kind=split.options.get("format", "json"),
        options=split.options,
        size=split.stop,
        record_max=record_max,
        unpacked_max=max(UNPACKED_FREE, ratio * split.stop),
    )
    return _READERS[file.kind](stream, file)


def limits_of(options: Mapping[str, str]) -> tuple[int, int]:
    """What is too much: bytes of a record, and the ratio."""
    return (
        whole(options, "maxRecordBytes", RECORD_MAX, least=1),
        whole(options, "maxRatio", RATIO_MAX, least=1),
    )


# ---- lines


def _json(stream: BinaryIO, file: File) -> Iterator[pa.RecordBatch]:
    # A mark of UTF-8 is no part of the first value.
    marks = ((offset, b"" if offset else _BOM, line) for offset, line in _lines(stream, file))
    lines = ((offset, line.removeprefix(mark).strip()) for offset, mark, line in marks)
    for values, offsets in _gathered(each for each in lines if each[1]):
        yield layout.raw_batch(values, file.partition, offsets)


def _csv(stream: BinaryIO, file: File) -> Iterator[pa.RecordBatch]:
    records = csv_records(stream, file)
    header = None
    if not file.options.get("csv.columns"):
        first = next(records, None)
        header = None if first is None else (CSV_COLUMNS, _header(first[1], file))
    # Every row carries the first line.
    for values, offsets in _gathered(records, 0 if header is None else len(header[1])):
        yield layout.raw_batch(values, file.partition, offsets, header=header)


def csv_records(stream: BinaryIO, file: File) -> Iterator[tuple[int, bytes]]:
    """Records with the offset of their first byte, not counting a mark of UTF-8; a quoted cell may
    hold line ends. A quote opens a cell at its start alone, as for `csv_cells`. Empty lines are
    none."""
    lines = _lines(stream, file)
    first = next(lines, None)
    if first is None:
        return
    marked = len(_BOM) if first[1].startswith(_BOM) else 0
    left_open = _left_open(file.options.get("csv.delimiter", ","))
    held: list[bytes] = []
    start = size = 0
    inside = False
    for offset, line in chain([(marked, first[1][marked:])], lines):
        start = start if held else offset - marked
        held.append(line)
        size += len(line)
        if size > file.record_max:
            raise _too_long(file, start)
        if b'"' in line:
            inside = left_open.match(b'"' + line if inside else line) is not None
        if not inside:
            record = b"".join(held).rstrip(b"\r\n")
            held, size = [], 0
            if record:
                yield start, record
    # A quote that is not closed: what is left is no record, and is told so by whoever decodes it.
    if record := b"".join(held).rstrip(b"\r\n"):
        yield start, record


def _left_open(delimiter: str) -> re.Pattern[bytes]:
    """Matches a line, read from the start of a cell, whose last cell is quoted and goes on."""
    apart = re.escape(delimiter.encode())
    rest = b"(?:(?!%b)[\\s\\S])*+" % apart
    inner = b'[^"]*+(?:""[^"]*+)*+'
    return re.compile(b'(?:(?:"%b"|(?!"))%b%b)*+"%b\\Z' % (inner, rest, apart, inner))


def _lines(stream: BinaryIO, file: File) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while line := stream.readline(file.record_max + 1):
        if len(line) > file.record_max:
            raise _too_long(file, offset)
        yield offset, line
        offset += len(line)


def _gathered(
    records: Iterable[tuple[int, bytes]], beside: int = 0
) -> Iterator[tuple[Sequence[bytes], Sequence[int]]]:
    values: list[bytes] = []
    offsets: list[int] = []
    size = 0
    for offset, value in records:
        values.append(value)
        offsets.append(offset)
        size += len(value) + beside
        if len(values) == BATCH_ROWS or size >= BATCH_BYTES:
            yield values, offsets
            values, offsets, size = [], [], 0
    if values:
        yield values, offsets


def _too_long(file: File, offset: int) -> SourceError:
    return file.refused(
        f"the record at byte {offset} is longer than {file.record_max} bytes; if it is right, "
        "raise the option maxRecordBytes"
    )


def _header(line: bytes, file: File) -> bytes:
    try:
        cells = csv_cells(line.decode(), file.options.get("csv.delimiter", ","))
    except ValueError as error:
        raise file.unreadable(error) from error
    return msgspec.json.encode([each or "" for each in cells])


# ---- typed rows


def _parquet(stream: BinaryIO, file: File) -> Iterator[pa.RecordBatch]:
    try:
        whole_file = pq.ParquetFile(stream, pre_buffer=False)
        layout.typed_schema(list(whole_file.schema_arrow))
        yield from _placed(_groups(stream, whole_file, file), file)
    except (pa.ArrowException, OSError) as error:
        raise file.unreadable(error) from error


def _groups(stream: BinaryIO, opened: pq.ParquetFile, file: File) -> Iterator[pa.RecordBatch]:
    for number in range(opened.metadata.num_row_groups):
        _check_pages(opened.metadata.row_group(number), file)
        most = _longest_row(stream, opened, number, file)
        rows = max(1, min(BATCH_ROWS, 4 * BATCH_BYTES // max(1, most)))
        yield from opened.iter_batches(rows, row_groups=[number])


def _check_pages(group: pq.RowGroupMetaData, file: File) -> None:
    """By what the footer says, before a page is unpacked."""
    for number in range(group.num_columns):
        chunk = group.column(number)
        packed, unpacked = chunk.total_compressed_size, chunk.total_uncompressed_size
        if packed > file.size:
            raise file.unreadable(ValueError("its footer tells of more bytes than it has"))
        if unpacked > max(PAGES_FREE, PAGES_RATIO * packed):
            raise file.refused(
                f"column {printable(chunk.path_in_schema)} has {packed} bytes that unpack to "
                f"{unpacked}; write it again in smaller row groups"
            )


def _longest_row(stream: BinaryIO, opened: pq.ParquetFile, number: int, file: File) -> int:
    """How long a row of a row group can be because of values that are stored once and meant often:
    a long one and many numbers that refer to it take little room in a file."""
    group, schema = opened.metadata.row_group(number), opened.metadata.schema
    longest = 0
    for at in range(group.num_columns):
        chunk = group.column(at)
        if chunk.physical_type != "BYTE_ARRAY" or not chunk.has_dictionary_page:
            continue
        path = chunk.path_in_schema
        dictionaries = pq.ParquetFile(
            stream, metadata=opened.metadata, read_dictionary=[path], pre_buffer=False
        )
        some = next(dictionaries.iter_batches(1, row_groups=[number], columns=[path]), None)
        value = 0 if some is None else max(map(_longest_value, some.columns), default=0)
        repeated = schema.column(at).max_repetition_level > 0
        if repeated and chunk.num_values * value > file.unpacked_max:
            raise _bomb(file)
        longest += value
    return longest


def _longest_value(column: pa.Array) -> int:
    if pa.types.is_dictionary(column.type):
        return pc.max(pc.binary_length(column.dictionary)).as_py() or 0
    if pa.types.is_struct(column.type):
        return max(map(_longest_value, column.flatten()), default=0)
    if pa.types.is_map(column.type):
        return max(_longest_value(column.keys), _longest_value(column.items))
    if pa.types.is_nested(column.type):
        return _longest_value(column.values)
    return 0


def _avro(stream: BinaryIO, file: File) -> Iterator[pa.RecordBatch]:
    try:
        batches = avro_batches(
            stream, BATCH_ROWS, batch_bytes=BATCH_BYTES, block_max=file.record_max
        )
        yield from _placed(batches, file)
    except ValueError as error:
        raise file.unreadable(error) from error


def _placed(batches: Iterable[pa.RecordBatch], file: File) -> Iterator[pa.RecordBatch]:
    """Rows with their numbers, as long as they are not too many bytes."""
    offset = unpacked = 0
    for batch in batches:
        unpacked += batch.nbytes
        if unpacked > file.unpacked_max:
            raise _bomb(file)
        numbers = np.arange(offset, offset + batch.num_rows, dtype=np.int64)
        places = [pa.repeat(pa.scalar(file.partition), batch.num_rows), pa.array(numbers)]
        schema = layout.typed_schema(list(batch.schema))
        yield pa.RecordBatch.from_arrays([*batch.columns, *places], schema=schema)
        offset += batch.num_rows


def _bomb(file: File) -> SourceError:
    return file.refused(
        f"its {file.size} bytes unpack to more than {file.unpacked_max}; if that is right, raise "
        "the option maxRatio"
    )


_READERS: dict[str, Callable[[BinaryIO, File], Iterator[pa.RecordBatch]]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "avro": _avro,
}
