"""A table's columns as Spark knows them, and rows exactly as Spark expects them from a reader.

Which type stands for which is decided in `arrowtypes`. Spark compares the Arrow schema of what a
reader gives with the one that it would have written itself, so here its own words have the last
say: nullability, names inside lists, the time zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from strandline.errors import SchemaError
from strandline.model.ids import printable
from strandline.spark.arrowtypes import for_spark, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def struct_of(columns: pa.Schema) -> StructType:
    """The columns as Spark knows them."""
    fields = zip(columns, spark_schema(columns), strict=True)
    return StructType([StructField(old.name, _type(old, new), old.nullable) for old, new in fields])


def _type(column: pa.Field, taken: pa.Field) -> DataType:
    # A timestamp without a zone is one in Spark too, if it is asked to prefer them.
    local = pa.types.is_timestamp(taken.type) and taken.type.tz is None
    try:
        return from_arrow_type(taken.type, prefer_timestamp_ntz=local)
    except PySparkException as error:
        raise SchemaError(
            f"column {printable(column.name)} is a {column.type}, which Spark does not know: leave "
            "it out with option('columns', …), or read it with shard.snapshot().to_arrow()"
        ) from error


def arrow_of(columns: StructType) -> pa.Schema:
    """What Spark expects a reader to give."""
    return to_arrow_schema(columns, timezone="UTC")


def as_spark(rows: pa.Table, wanted: pa.Schema) -> pa.Table:
    """The columns of `wanted`, in its types."""
    taken = for_spark(rows.select(wanted.names))
    columns = [_cast(taken.column(each.name), each) for each in wanted]
    return pa.Table.from_arrays(columns, schema=wanted)


def _cast(column: pa.ChunkedArray, wanted: pa.Field) -> pa.ChunkedArray:
    if column.type == wanted.type:
        return column
    try:
        return column.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {printable(wanted.name)} is a {column.type} and was asked for as "
            f"{wanted.type}: {printable(error, 200)}"
        ) from error
