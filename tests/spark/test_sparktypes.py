"""Which of Spark's types tables keep: every one is here, or the test of completeness fails."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from strandline.errors import SchemaError
from strandline.spark.layouts import spark_struct
from strandline.spark.sparktypes import arrow_schema


class Point(t.UserDefinedType):
    @classmethod
    def sqlType(cls):  # noqa: N802 - Spark's name
        return t.ArrayType(t.DoubleType())


KEPT = [
    t.BooleanType(),
    t.ByteType(),
    t.ShortType(),
    t.IntegerType(),
    t.LongType(),
    t.FloatType(),
    t.DoubleType(),
    t.DecimalType(38, 10),
    t.StringType(),
    t.BinaryType(),
    t.DateType(),
    t.TimestampType(),
    t.TimestampNTZType(),
    t.TimeType(),
    t.DayTimeIntervalType(),
    t.ArrayType(t.LongType()),
    t.MapType(t.StringType(), t.LongType()),
    t.StructType([t.StructField("x", t.LongType())]),
]
WIDENED = [
    (t.TimeType(3), t.TimeType(6)),
    (t.DayTimeIntervalType(1, 2), t.DayTimeIntervalType()),
]
REFUSED = [
    t.VariantType(),
    t.YearMonthIntervalType(),
    t.CalendarIntervalType(),
    t.GeometryType(4326),
    t.GeographyType(4326),
    t.CharType(3),
    t.VarcharType(3),
    t.StringType("UTF8_LCASE"),
    Point(),
]
ABSTRACT = {
    "AnsiIntervalType",
    "AnyTimeType",
    "AtomicType",
    "DataType",
    "DatetimeType",
    "FractionalType",
    "IntegralType",
    "NumericType",
    "SpatialType",
    "StructField",
}
OTHERWISE = {"NullType"}
"""A column of nulls alone is taken for any type; a table can't have it (`Schema.create`)."""


def columns(kind: t.DataType, name: str = "v") -> t.StructType:
    return t.StructType([t.StructField("k", t.LongType()), t.StructField(name, kind)])


def test_every_type_that_spark_has_is_kept_or_refused_on_purpose():
    known = {
        name
        for name, each in vars(t).items()
        if isinstance(each, type) and issubclass(each, t.DataType) and not name.startswith("_")
    }
    decided = {type(each).__name__ for each in (*KEPT, *REFUSED)} - {"Point"} | {"UserDefinedType"}
    assert known == decided | ABSTRACT | OTHERWISE


@pytest.mark.parametrize("kind", KEPT, ids=str)
def test_what_is_kept_comes_back_as_the_same_type(kind):
    assert spark_struct(arrow_schema(columns(kind)))["v"].dataType.simpleString() == (
        kind.simpleString()
    )
    nested = t.ArrayType(t.StructType([t.StructField("in", kind)]))
    assert spark_struct(arrow_schema(columns(nested)))["v"].dataType.simpleString() == (
        nested.simpleString()
    )


@pytest.mark.parametrize(("kind", "wider"), WIDENED, ids=str)
def test_what_has_a_precision_comes_back_with_the_widest(kind, wider):
    assert spark_struct(arrow_schema(columns(kind)))["v"].dataType == wider


@pytest.mark.parametrize("kind", REFUSED, ids=str)
@pytest.mark.parametrize(
    ("around", "path"),
    [
        (lambda kind: kind, "v"),
        (t.ArrayType, "v.element"),
        (lambda kind: t.MapType(t.StringType(), kind), "v.value"),
        (lambda kind: t.MapType(kind, t.StringType()), "v.key"),
        (lambda kind: t.StructType([t.StructField("x", t.ArrayType(kind))]), "v.x.element"),
    ],
    ids=["column", "element", "value", "key", "field"],
)
def test_what_is_refused_is_named_with_what_to_do(kind, around, path):
    with pytest.raises(SchemaError) as raised:
        arrow_schema(columns(around(kind)))
    text = str(raised.value)
    assert f"column {path} " in text.replace("'", "")
    assert f"Spark's type {kind.simpleString()}, which tables don't keep: " in text
    assert text.split("don't keep: ")[1]


def test_a_column_of_nulls_alone_has_a_type_of_its_own():
    assert arrow_schema(columns(t.NullType())).field("v").type == pa.null()
