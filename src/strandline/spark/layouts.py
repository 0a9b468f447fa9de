"""The columns of a table as Spark knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema

from strandline.spark.arrowtypes import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def spark_struct(schema: pa.Schema) -> StructType:
    """The layout of a DataFrame with these columns; a timestamp without a zone stays without."""
    return from_arrow_schema(spark_schema(schema), prefer_timestamp_ntz=True)
