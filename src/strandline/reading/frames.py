"""Rows in types that other libraries can hold. Pure.

    column                          polars                 DuckDB
    -----------------------------   --------------------   --------------------
    decimal256, up to 38 digits     decimal128             decimal128
    decimal256 of more digits       refused                refused
    float16                         as it is               float32
    one of these in a nested type   decimal256: refused    refused

No value changes. What is refused is so by name: polars would panic, and DuckDB fail later.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as is_

from strandline.errors import SchemaError
from strandline.model.ids import printable

_DIGITS = 38
"""What a decimal of 128 bits holds."""


def for_polars(rows: pa.Table) -> pa.Table:
    return _held(rows, "polars", halves=True)


def for_duckdb(rows: pa.Table) -> pa.Table:
    return _held(rows, "DuckDB", halves=False)


def _held(rows: pa.Table, library: str, *, halves: bool) -> pa.Table:
    fields = [field.with_type(_plainer(field.type, halves=halves)) for field in rows.schema]
    for field in fields:
        if not _holds(field.type, halves=halves):
            raise SchemaError(
                f"column {printable(field.name)} is a {field.type}, which {library} can't hold: "
                "leave it out with columns=, or use to_arrow()"
            )
    wanted = pa.schema(fields, rows.schema.metadata)
    return rows if wanted.equals(rows.schema) else rows.cast(wanted)


def _plainer(kind: pa.DataType, *, halves: bool) -> pa.DataType:
    if is_.is_decimal256(kind) and kind.precision <= _DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    return pa.float32() if is_.is_float16(kind) and not halves else kind


def _holds(kind: pa.DataType, *, halves: bool) -> bool:
    if is_.is_decimal256(kind) or (is_.is_float16(kind) and not halves):
        return False
    return all(_holds(kind.field(at).type, halves=halves) for at in range(kind.num_fields))
