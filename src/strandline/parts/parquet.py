"""Parts as Parquet: bytes that any Parquet reader can read, and back. Pure.

A **delta** part has the schema's columns, `_time` and `_diff`, an **untimed** one all but
`_time`; a **base** part has only the columns. Columns carry their field ids, and are found
again by them. The footer also says whose part it is (`strandline.shard`, `strandline.key`), so
that a swapped object is refused by name, and what is needed to read single row groups (see
`index`): the checksum of the bytes of each (`strandline.sums`), and in a keyed shard the first
place of each (`strandline.places`), both as 16 hex digits a group. Pages carry checksums as
well, for other readers.

Reading trusts nothing it has not checked, in this order: size and checksum as the state has
them, then the footer (whose it is, how many rows, which columns, how large unpacked), and only
then the pages. What is wrong with a part is a `CorruptionError` that names it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as is_

from strandline.errors import CorruptionError, NewerFormatError
from strandline.model.ids import printable
from strandline.model.schema import (
    DIFF_COLUMN,
    DIFF_FIELD_ID,
    TIME_COLUMN,
    TIME_FIELD_ID,
    Field,
)
from strandline.parts.envelope import checksum

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.model.schema import Schema
    from strandline.model.valuehash import U64
    from strandline.parts.part import Part

FORMAT = 1
PLACES_FACT = "strandline.places"
SUMS_FACT = "strandline.sums"
GROUP_ROWS = 32 * 1024
"""Rows in a row group, at most; few enough to skip, enough to read fast.

A cold key costs a whole group: 4.9 ms, where 128 k rows cost 21. Writing, size and reading all of
it are the same within a few percent; below this, warm keys pay for ever more blocks.
"""
_GROUP_BYTES = 64 * 1024 * 1024
_UNPACKED_MAX = 8 * 1024**3
"""No part of ours comes near it: a unit of compaction ends at 1 GiB."""
_SAMPLE_ROWS = 2048

# Snappy: every Parquet reader has it, and parts are written more often than they are shipped.
# Measured beside zstd: half the time to write and to read, a fifth more bytes.
_COMPRESSION = "snappy"
_FIELD_ID = b"PARQUET:field_id"
_OWN = (TIME_COLUMN, DIFF_COLUMN)
_TIME = Field(TIME_FIELD_ID, TIME_COLUMN, pa.int64(), nullable=False).arrow()
_DIFF = Field(DIFF_FIELD_ID, DIFF_COLUMN, pa.int64(), nullable=False).arrow()
_BYTES = {
    pa.lib.Type_STRING,
    pa.lib.Type_LARGE_STRING,
    pa.lib.Type_BINARY,
    pa.lib.Type_LARGE_BINARY,
    pa.lib.Type_FIXED_SIZE_BINARY,
}
DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose part it is, as its footer says."""

    shard: str
    """The shard's id."""
    key: str


def encode_part(table: pa.Table, owner: Owner, places: U64 | None = None) -> bytes:
    """Updates (a delta part) or rows (a base part) as one Parquet object.

    `places` are those of the rows, in order; `None` if the shard has no key.
    """
    facts = {
        "strandline.format": str(FORMAT),
        "strandline.shard": owner.shard,
        "strandline.key": owner.key,
    }
    table = table.replace_schema_metadata(facts)
    group_rows = _group_rows(table)
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=_COMPRESSION,
        use_dictionary=_worth_a_dictionary(table),
        write_statistics=_bounded(table),
        write_page_index=True,
        write_page_checksum=True,
        version="2.6",
    ) as writer:
        # One row group a call: only so is it known where the bytes of each begin and end.
        ends = [sink.tell()]
        for start in range(0, table.num_rows, group_rows):
            writer.write_table(table.slice(start, group_rows), row_group_size=group_rows)
            ends.append(sink.tell())
        with sink.getbuffer() as written:
            sums = [checksum(written[start:end]) for start, end in pairwise(ends)]
        index = {SUMS_FACT: _hex(sums)}
        if places is not None:
            index[PLACES_FACT] = _hex(places[::group_rows].tolist())
        writer.add_key_value_metadata(index)
    return sink.getvalue()


def _hex(numbers: Sequence[int]) -> str:
    return "".join(f"{number:016x}" for number in numbers)


def footer_of(encoded: bytes | memoryview) -> memoryview:
    """The footer of a part with its length and the magic bytes at the end, if it is whole."""
    length = int.from_bytes(encoded[-8:-4], "little") + 8
    return memoryview(encoded)[max(0, len(encoded) - length) :]


def decode_part(
    encoded: bytes | memoryview,
    part: Part,
    schema: Schema,
    *,
    owner: Owner,
    columns: Sequence[str] | None = None,
    with_time: bool = True,
) -> pa.Table:
    """The updates of a part as rows of today's schema.

    Of a base part `_time` and `_diff` are constants, made only `with_time`; a delta part always
    has them, though an untimed one gets its `_time` here. `columns` are the ones wanted, by
    today's names; `None` is all of them.
    """
    _check_bytes(encoded, part, owner)
    try:
        file = pq.ParquetFile(pa.BufferReader(encoded))
        written = check_footer(file, part, owner)
        wanted = stored_names(written, schema, columns, part, owner)
        table = file.read(columns=wanted, use_threads=True)
        if table.num_rows != part.rows:
            raise corrupt(part, owner, f"{table.num_rows} rows instead of {part.rows}")
    except DAMAGE as error:
        raise corrupt(part, owner, str(error)) from error
    try:
        table = schema.migrate(table, written, columns)
    except (CorruptionError, *DAMAGE) as error:
        raise corrupt(part, owner, str(error)) from error
    return table if part.base and not with_time else with_constants(table, part)


def with_constants(table: pa.Table, part: Part) -> pa.Table:
    """What was read of a part as updates, with the columns that its object does not have.

    Of a base part each row was there once, from `t_min` on.
    """
    if part.base:
        diffs = pa.array(np.ones(table.num_rows, np.int64))
        table = table.append_column(_DIFF, diffs)
    if part.base or part.untimed:
        times = pa.array(np.full(table.num_rows, part.t_min, np.int64))
        table = table.add_column(table.num_columns - 1, _TIME, times)
    return table


def _check_bytes(encoded: bytes | memoryview, part: Part, owner: Owner) -> None:
    if len(encoded) != part.size:
        raise corrupt(part, owner, f"{len(encoded)} bytes instead of {part.size}")
    if checksum(encoded) != part.checksum:
        raise corrupt(part, owner, "its checksum does not match")


def check_footer(file: pq.ParquetFile, part: Part, owner: Owner) -> tuple[Field, ...]:
    """The columns as they were written, if the footer is that of this very part."""
    footer = file.metadata
    facts = footer.metadata or {}
    written_format = int(facts.get(b"strandline.format", b"0"))
    if written_format > FORMAT:
        raise NewerFormatError(
            f"shard {owner.shard}: part {part.key} has format {written_format}, this version "
            f"reads up to {FORMAT}: upgrade Strandline"
        )
    found = Owner(
        facts.get(b"strandline.shard", b"").decode(), facts.get(b"strandline.key", b"").decode()
    )
    if found != owner:
        raise corrupt(part, owner, f"it is {found.key or 'no part'} of {found.shard or 'nobody'}")
    if footer.num_rows != part.rows:
        raise corrupt(part, owner, f"{footer.num_rows} rows instead of {part.rows}")
    if part.untimed and (part.base or part.t_min != part.t_max):
        raise corrupt(part, owner, "it has no times of its own, and the state says several")
    groups = range(footer.num_row_groups)
    unpacked = sum(footer.row_group(group).total_byte_size for group in groups)
    if unpacked > _UNPACKED_MAX:
        raise corrupt(part, owner, f"it would unpack to {unpacked} bytes")
    return _written_fields(file.schema_arrow, part, owner)


def _written_fields(layout: pa.Schema, part: Part, owner: Owner) -> tuple[Field, ...]:
    fields = []
    for column in layout:
        if column.name in _OWN:
            continue
        field_id = int((column.metadata or {}).get(_FIELD_ID, b"0"))
        fields.append(Field(field_id, column.name, column.type, column.nullable))
    own = [name for name in layout.names if name in _OWN]
    if own != _own_names(part) or len({f.id for f in fields}) != len(fields):
        raise corrupt(part, owner, f"unexpected columns {', '.join(layout.names)}")
    return tuple(fields)


def _own_names(part: Part) -> list[str]:
    """Which of our columns the object of a part has."""
    if part.base:
        return []
    return [DIFF_COLUMN] if part.untimed else list(_OWN)


def stored_names(
    written: tuple[Field, ...],
    schema: Schema,
    columns: Sequence[str] | None,
    part: Part,
    owner: Owner,
) -> list[str]:
    """The columns of a part's object to read for these columns of today's schema."""
    if not {field.id for field in written} <= set(schema.ids):
        # Schemas only grow; what is not in this one would be read as nulls.
        raise corrupt(part, owner, "it has columns that the shard never had")
    fields = schema.fields if columns is None else [schema.field(name) for name in columns]
    wanted = {field.id for field in fields}
    names = [field.name for field in written if field.id in wanted]
    return [*names, *_own_names(part)]


def _group_rows(table: pa.Table) -> int:
    rows, size = int(table.num_rows), int(table.nbytes)
    row_bytes = max(1, size // max(1, rows))
    return max(1024, min(GROUP_ROWS, _GROUP_BYTES // row_bytes))


def _worth_a_dictionary(table: pa.Table) -> list[str]:
    """Columns whose values repeat, judged by a sample; for others a dictionary costs time only."""
    sample = table.slice(0, _SAMPLE_ROWS)
    worth = [name for name in _OWN if name in table.column_names]
    for name in table.column_names:
        column = sample.column(name)
        if _is_flat_bytes(column.type) and 2 * pc.count_distinct(column).as_py() <= len(column):
            worth.append(name)
    return worth


def _bounded(table: pa.Table) -> bool | list[str]:
    """Where Parquet's own statistics are written: everywhere, but for columns that hold a NaN.

    Arrow leaves NaN out of the least and the greatest value, and Spark and DuckDB, for which NaN is
    greater than all else, then skip whole row groups that hold rows for `x > 5`.
    """
    leaves = [leaf for name in table.column_names for leaf in _leaves(name, table.column(name))]
    unbounded = {path for path, column in leaves if _holds_nan(column)}
    return not unbounded or [path for path, _ in leaves if path not in unbounded]


def _leaves(path: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Columns as Parquet has them, but for what is in lists and maps: nobody skips by that."""
    if is_.is_struct(column.type):
        for field, inner in zip(column.type, column.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", inner)
    elif not is_.is_nested(column.type):
        yield path, column


def _holds_nan(column: pa.ChunkedArray) -> bool:
    if is_.is_float16(column.type):
        column = column.cast(pa.float32())
    return is_.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def _is_flat_bytes(kind: pa.DataType) -> bool:
    return kind.id in _BYTES


def corrupt(part: Part, owner: Owner, reason: str) -> CorruptionError:
    shown = printable(reason, limit=200)
    return CorruptionError(f"shard {owner.shard}: part {part.key} is damaged: {shown}")
