"""Which Arrow type Spark takes for each type that a column may have: the one place of casts. Pure.

    kept as                            given to Spark as
    ---------------------------------  ---------------------------------------------------------
    uint8, uint16, uint32              the signed type of twice the width
    uint64                             decimal(20, 0)
    float16                            float32
    large and view strings, binaries   string, binary
    fixed size binary                  binary
    time32, time64                     time64 in ns
    timestamp, duration of any unit    the same in us; what is finer is refused, not cut off
    decimal256 up to 38 digits         decimal128
    large, fixed size and view lists   list
    decimal256 beyond 38 digits        refused: Spark has none so wide

Everything else stays, also inside nested types. The way back is `model.columntype.cast`: what
Spark gives is taken only if the shard's type holds the same value.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as is_

from strandline.errors import SchemaError
from strandline.model.ids import printable

_DIGITS = 38
_AS = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark is given values of `kind`.

    >>> spark_type(pa.list_(pa.uint16()))
    ListType(list<item: int32>)
    """
    if kind in _AS:
        return _AS[kind]
    if is_.is_nested(kind):
        return _nested(kind)
    if is_.is_dictionary(kind):
        return spark_type(kind.value_type)
    return _flat(kind)


def _flat(kind: pa.DataType) -> pa.DataType:
    if is_.is_fixed_size_binary(kind):
        return pa.binary()
    if is_.is_time(kind):
        return pa.time64("ns")
    if is_.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if is_.is_duration(kind):
        return pa.duration("us")
    if is_.is_decimal256(kind):
        if kind.precision > _DIGITS:
            raise SchemaError(f"Spark has no type for {kind}: its decimals have {_DIGITS} digits")
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def _nested(kind: pa.DataType) -> pa.DataType:
    if is_.is_struct(kind):
        return pa.struct([(field.name, spark_type(field.type)) for field in kind])
    if is_.is_map(kind):
        return pa.map_(spark_type(kind.key_type), spark_type(kind.item_type))
    return pa.list_(spark_type(kind.value_type))


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The same columns in types that Spark takes."""
    return pa.schema([_field(field) for field in schema])


def for_spark(table: pa.Table) -> pa.Table:
    """The same rows in types that Spark takes; refused by name if a value has no equal there."""
    columns = [
        _cast(name, column) for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=spark_schema(table.schema))


def _field(field: pa.Field) -> pa.Field:
    try:
        return pa.field(field.name, spark_type(field.type), field.nullable)
    except SchemaError as error:
        raise SchemaError(f"column {printable(field.name)}: {error}") from error


def _cast(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    want = spark_type(column.type)
    if column.type == want:
        return column
    try:
        if is_.is_time32(column.type):
            column = column.cast(pa.time64("us"))
        return column.cast(want)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = printable(str(error), limit=200)
        raise SchemaError(
            f"column {printable(name)} can't be given to Spark as {want}: {reason}"
        ) from error
