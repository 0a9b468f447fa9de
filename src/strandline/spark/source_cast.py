"""Arrow tables as Spark takes them, and Spark's rows as a shard takes them.

Spark compares the Arrow schema of what a reader gives with the one that it would have written
itself, type by type; so everything is cast on the way out, in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DecimalType, IntegerType, LongType, ShortType, StructField, StructType

from strandline.errors import SchemaError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_WIDER: dict[pa.DataType, DataType] = {
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): DecimalType(20, 0),
}
"""Spark has no unsigned numbers; each fits the next wider type."""


def spark_schema(columns: pa.Schema) -> StructType:
    """The columns as Spark knows them."""
    return StructType(
        [StructField(each.name, _spark_type(each), each.nullable) for each in columns]
    )


def _spark_type(column: pa.Field) -> DataType:
    if column.type in _WIDER:
        return _WIDER[column.type]
    # Spark says how to use a local timestamp only if it is asked to prefer them.
    local = pa.types.is_timestamp(column.type) and column.type.tz is None
    kind = pa.float32() if column.type == pa.float16() else column.type
    try:
        return from_arrow_type(kind, prefer_timestamp_ntz=local)
    except PySparkException as error:
        raise SchemaError(
            f"column {printable(column.name)} is a {column.type}, which Spark does not know: leave "
            "it out with option('columns', …), or read it with shard.snapshot().to_arrow()"
        ) from error


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects a reader to give."""
    return to_arrow_schema(schema, timezone="UTC")


def as_spark(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The rows with the columns and types that Spark expects."""
    columns = [_cast(rows.column(each.name), each) for each in wanted]
    return pa.Table.from_arrays(columns, schema=wanted)


def _cast(column: pa.ChunkedArray, wanted: pa.Field) -> pa.ChunkedArray:
    if column.type == wanted.type:
        return column
    try:
        return column.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {printable(wanted.name)} is a {column.type} and Spark wants {wanted.type}: "
            f"{printable(error, 200)}"
        ) from error
