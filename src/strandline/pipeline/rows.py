"""Rows that a user gives for a table, as they are staged: typed, checked, in order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from strandline.connectors import raw as layout
from strandline.connectors.incoming import decode
from strandline.connectors.reading import reading
from strandline.connectors.values import unreadable
from strandline.errors import SchemaError, UsageError
from strandline.model.columntype import cast
from strandline.model.ids import printable
from strandline.pipeline.meaning import reading_of

if TYPE_CHECKING:
    import pandas as pd

    from strandline.views.declared import Table

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pd.DataFrame | Sequence[Mapping[str, Any]]"
"""Rows of a table, and `_delete` where a row says that its key goes."""

PARTITION = "transaction"
_CHUNK_ROWS = 1 << 32
CHUNKS_MAX = 1 << 30
_MISFITS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""What Arrow raises for a value of Python that does not fit its column."""


class Target(Protocol):
    """Of a table of a program, what rows have to fit."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> pa.Schema: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def sequence_by(self) -> tuple[str, ...]: ...


def staged_rows(rows: Rows, table: Target, chunk: int) -> pa.Table:
    """Rows as a source would give them; those of later chunks come later.

    `SchemaError` if they do not fit the table: nothing of a transaction becomes an error row.
    """
    if not 0 <= chunk < CHUNKS_MAX:
        raise UsageError(f"chunk number {chunk} is refused: use 0 to {CHUNKS_MAX - 1}")
    made = _fitting(table_of(rows, table), table)
    if layout.DELETE in made.column_names:
        for name in table.sequence_by:
            _refuse_unplaced(made, name, table)
    return _placed(made, chunk)


def json_rows(lines: Sequence[bytes], table: Table) -> pa.Table:
    """Rows of a table from JSON, one a line; `"_delete": true` beside a key deletes it.

    Whether columns are left out that may not be is asked where the rows are staged.
    """
    deletes, values = [], []
    for number, line in enumerate(lines, 1):
        delete, value = _split(line, number)
        deletes.append(delete)
        values.append(value)
    lax = pa.schema([each.with_nullable(True) for each in table.columns])
    # So that fields which are no columns are found, and refused as anywhere else.
    options = {"format": "json", "envelope": "append", "newColumns": "add"}
    how = reading(lax, table.key, options)
    read = decode(layout.raw_batch(values, PARTITION, range(len(values))), how)
    refuse_unknown(set(read.fresh), table)
    found = read.table
    for row in found.filter(found["_error"].is_valid()).slice(0, 1).to_pylist():
        raise SchemaError(f"row {row['_offset'] + 1} for {table.name}: {row['_error']}")
    made = found.select(table.columns.names)
    if not any(deletes):
        return made
    if not table.key:
        raise SchemaError(f"table {table.name} has no key, so nothing can be deleted from it")
    return made.append_column(layout.DELETE, pa.array(deletes, pa.bool_()))


def refuse_undecodable(values: Sequence[bytes | None], table: Table) -> None:
    """`SchemaError` names the first value that is no row of the table."""
    found = decode(layout.raw_batch(values, PARTITION, range(len(values))), reading_of(table)).table
    for row in found.filter(found["_error"].is_valid()).slice(0, 1).to_pylist():
        raise SchemaError(f"row {row['_offset'] + 1} for {table.name}: {row['_error']}")


def _split(line: bytes, number: int) -> tuple[bool, bytes]:
    if b'"_delete"' not in line:
        return False, line
    try:
        row = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        delete = msgspec.json.decode(row.pop("_delete", b"false"), type=bool)
    except msgspec.DecodeError as error:
        raise SchemaError(f"row {number}: {error}") from error
    return delete, msgspec.json.encode(row)


def table_of(rows: Rows, table: Target) -> pa.Table:
    """Rows in whatever form a user has them, as Arrow."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
        return _of_dicts(rows, table)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    if hasattr(rows, "iloc"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    raise UsageError(
        f"rows for {table.name} are {type(rows).__name__}: give an Arrow table, a DataFrame of "
        "pandas, or a list of dicts"
    )


def _of_dicts(rows: Sequence[Mapping[str, Any]], table: Target) -> pa.Table:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise UsageError(
                f"row {number} for {table.name} is {type(row).__name__}: give a dict of columns"
            )
    given = {name for row in rows for name in row}
    refuse_unknown(given, table)
    schema = pa.schema([each for each in table.columns if each.name in given or not rows])
    if layout.DELETE in given:
        schema = schema.append(pa.field(layout.DELETE, pa.bool_()))
    try:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)
    except _MISFITS as error:
        raise SchemaError(f"{_misfit(rows, schema)} for {table.name}: {error}") from error


def _misfit(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> str:
    """Where the first value is that does not fit."""
    for number, row in enumerate(rows, 1):
        for each in schema:
            try:
                pa.array([row.get(each.name)], each.type)
            except _MISFITS:
                return f"column {printable(each.name)} of row {number}"
    return "rows"


def _fitting(rows: pa.Table, table: Target) -> pa.Table:
    refuse_unknown(set(rows.column_names), table)
    columns, fields = [], []
    for each in table.columns:
        if each.name in rows.column_names:
            columns.append(_readable(cast(rows[each.name], each.type), each.name, table))
            fields.append(pa.field(each.name, each.type))
        elif each.name in table.key:
            raise SchemaError(f"rows for {table.name} have no column {each.name}, which is its key")
    for name in table.key:
        if rows[name].null_count:
            raise SchemaError(f"rows for {table.name} have no value for {name}, which is its key")
    if layout.DELETE in rows.column_names:
        columns.append(cast(rows[layout.DELETE], pa.bool_()))
        fields.append(pa.field(layout.DELETE, pa.bool_()))
    made = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    for each in table.columns:
        _refuse_nulls(made, each, table)
    return made


def _readable(column: pa.ChunkedArray, name: str, table: Target) -> pa.ChunkedArray:
    for at, why in unreadable(column).items():
        raise SchemaError(f"row {at + 1} for {table.name}: column {printable(name)}: {why}")
    return column


def _refuse_nulls(rows: pa.Table, column: pa.Field, table: Target) -> None:
    """The first row without a value that it must have; one that deletes needs its key alone."""
    if column.nullable:
        return
    nulls = pa.chunked_array([pa.repeat(True, rows.num_rows)])
    if column.name in rows.column_names:
        nulls = pc.is_null(rows[column.name])
    if layout.DELETE in rows.column_names:
        nulls = pc.and_not(nulls, pc.fill_null(rows[layout.DELETE], False))
    at = pc.index(nulls, True).as_py()
    if at >= 0:
        key = "".join(f", {each} {printable(rows[each][at].as_py())}" for each in table.key)
        raise SchemaError(
            f"row {at + 1} for {table.name}{key}: column {printable(column.name)} is null or left "
            "out, and may not be"
        )


def _refuse_unplaced(rows: pa.Table, name: str, table: Target) -> None:
    """The first row that deletes and has no place in the order: it would lose against the row that
    its key holds, and nobody would know."""
    lacks = pc.fill_null(rows[layout.DELETE], False)
    if name in rows.column_names:
        lacks = pc.and_(lacks, pc.is_null(rows[name]))
    at = pc.index(lacks, True).as_py()
    if at >= 0:
        key = "".join(f", {each} {printable(rows[each][at].as_py())}" for each in table.key)
        raise SchemaError(
            f"row {at + 1} for {table.name}{key}: it deletes and has no {printable(name)}, so no "
            "place in the order that sequenceBy gives"
        )


def refuse_unknown(names: set[str], table: Target) -> None:
    """Refuse columns that a table does not have."""
    ours = {layout.DELETE} if table.key else set()
    unknown = sorted(names - set(table.columns.names) - ours)
    if unknown:
        raise SchemaError(
            f"table {table.name} has no column {printable(unknown[0])}: it has "
            f"{', '.join(table.columns.names)}"
        )


def _placed(rows: pa.Table, chunk: int) -> pa.Table:
    first = chunk * _CHUNK_ROWS
    offsets = pa.array(range(first, first + rows.num_rows), pa.int64())
    partitions = pa.repeat(pa.scalar(PARTITION, pa.string()), rows.num_rows)
    for field, values in zip(layout.PLACE, (partitions, offsets), strict=True):
        rows = rows.append_column(field, values)
    return rows
