"""Schemas of tables, between Spark and Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, LongType, StructType, TimestampNTZType, TimestampType

from strandline.errors import SchemaError, UsageError
from strandline.spark.layouts import arrow_columns, spark_struct

CASES = [
    (pa.uint32(), LongType()),
    (pa.uint64(), DecimalType(20, 0)),
    (pa.timestamp("ms"), TimestampNTZType()),
    (pa.timestamp("us", "UTC"), TimestampType()),
]


@pytest.mark.parametrize(("kind", "expected"), CASES, ids=str)
def test_a_column_has_one_type_in_spark(kind: pa.DataType, expected: object) -> None:
    struct = spark_struct(pa.schema([pa.field("a", kind, nullable=False)]))
    assert struct["a"].dataType == expected
    assert not struct["a"].nullable


def test_a_type_that_spark_does_not_know_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="column 'wide'"):
        spark_struct(pa.schema([("wide", pa.decimal256(60, 2))]))


@pytest.mark.usefixtures("spark")
def test_a_schema_may_be_given_in_three_ways() -> None:
    text = "id BIGINT NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ"
    expected = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
        ]
    )
    assert arrow_columns(text) == expected
    assert arrow_columns(StructType.fromDDL(text)) == expected
    assert arrow_columns(expected) is expected
    assert arrow_columns(None) is None


@pytest.mark.usefixtures("spark")
def test_anything_else_is_refused() -> None:
    with pytest.raises(SchemaError, match="is no schema"):
        arrow_columns("id BIGINT,, name")
    with pytest.raises(UsageError, match="not a int"):
        arrow_columns(7)
