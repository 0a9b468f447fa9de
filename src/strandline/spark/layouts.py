"""The columns of a table as Spark knows them."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from strandline.errors import UsageError
from strandline.spark.arrowtypes import spark_schema


def spark_struct(schema: pa.Schema) -> StructType:
    """The layout of a DataFrame with these columns; a timestamp without a zone stays without."""
    return from_arrow_schema(spark_schema(schema), prefer_timestamp_ntz=True)


def arrow_columns(schema: object) -> pa.Schema | None:
    """A schema as a shard takes it, from Spark's or Arrow's; `None` stays `None`."""
    if schema is None or isinstance(schema, pa.Schema):
        return schema
    if isinstance(schema, str):
        schema = StructType.fromDDL(schema)
    if not isinstance(schema, StructType):
        raise UsageError(
            "a table's schema is Spark's, Arrow's, or text such as 'id BIGINT, name STRING', "
            f"not a {type(schema).__name__}"
        )
    return to_arrow_schema(schema, timezone="UTC")
