"""Rows exactly as Spark expects them from a reader.

Which type stands for which is decided in `arrowtypes`. Spark compares the Arrow schema of what a
reader gives with the one that it would have written itself, so here its own words have the last
say: nullability, names inside lists, the time zone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SchemaError
from strandline.model.ids import printable
from strandline.spark.arrowtypes import for_spark
from strandline.spark.sparktypes import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def arrow_of(columns: StructType) -> pa.Schema:
    """What Spark expects a reader to give."""
    return arrow_schema(columns)


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
