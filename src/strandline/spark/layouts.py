"""The columns of a table as Spark knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from strandline.errors import SchemaError, UsageError
from strandline.model.ids import printable
from strandline.spark.arrowtypes import spark_schema
from strandline.spark.sparktypes import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def spark_struct(columns: pa.Schema) -> StructType:
    """The columns as Spark knows them."""
    fields = zip(columns, spark_schema(columns), strict=True)
    return StructType([StructField(old.name, _type(old, new), old.nullable) for old, new in fields])


def _type(column: pa.Field, taken: pa.Field) -> DataType:
    try:
        # A timestamp without a zone is one in Spark too, if it is asked to prefer them.
        return from_arrow_type(taken.type, prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise SchemaError(
            f"column {printable(column.name)} is a {column.type}, which Spark does not know: leave "
            "it out with option('columns', …), or read it with shard.snapshot().to_arrow()"
        ) from error


def arrow_columns(schema: object) -> pa.Schema | None:
    """A schema as a shard takes it, from Spark's or Arrow's; `None` stays `None`."""
    if schema is None or isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        schema = _parsed(schema)
    if not isinstance(schema, StructType):
        raise UsageError(
            "a table's schema is Spark's, Arrow's, or text such as 'id BIGINT, name STRING', "
            f"not a {type(schema).__name__}"
        )
    return arrow_schema(schema)


def _parsed(text: str) -> DataType:
    """Spark parses the text, so it has to run."""
    try:
        return StructType.fromDDL(text)
    except PySparkException as error:
        if SparkSession.getActiveSession() is None:
            raise UsageError(
                "a schema that is text needs a Spark session: start one first, with "
                "strandline.spark.session()"
            ) from error
        raise SchemaError(
            f"{printable(text, 200)} is no schema: {printable(error, 200)}"
        ) from error
