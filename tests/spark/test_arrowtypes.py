"""Every type that a column may have reaches Spark and comes back, or is refused by name."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.errors import SchemaError
from strandline.spark.arrowtypes import for_spark, spark_schema
from strandline.spark.table import frame_of

UTC = dt.UTC
VALUES = [
    (pa.bool_(), True),
    (pa.int8(), -1),
    (pa.int16(), -1),
    (pa.int32(), -1),
    (pa.int64(), 2**62),
    (pa.uint8(), 255),
    (pa.uint16(), 2**16 - 1),
    (pa.uint32(), 2**32 - 1),
    (pa.uint64(), Decimal(2**64 - 1)),
    (pa.float16(), 1.5),
    (pa.float32(), 1.5),
    (pa.float64(), 1.1),
    (pa.string(), "é"),
    (pa.large_string(), "é"),
    (pa.string_view(), "a string that is too long to be kept within a view"),
    (pa.binary(), b"\x00\xff"),
    (pa.large_binary(), b"\x00\xff"),
    (pa.binary_view(), b"\x00\xff"),
    (pa.binary(3), b"abc"),
    (pa.date32(), dt.date(1969, 12, 31)),
    (pa.timestamp("us", "UTC"), dt.datetime(2024, 5, 6, 7, 8, 9, 10, UTC)),
    (pa.timestamp("ms", "UTC"), dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)),
    (pa.timestamp("us"), dt.datetime(2024, 5, 6, 7, 8, 9, 10)),  # noqa: DTZ001
    (pa.duration("us"), dt.timedelta(days=-1, microseconds=3)),
    (pa.decimal128(12, 2), Decimal("-1.25")),
    (pa.decimal256(38, 2), Decimal("-1.25")),
    (pa.list_(pa.uint8()), [1, None]),
    (pa.large_list(pa.large_string()), ["a"]),
    (pa.list_(pa.int32(), 2), [1, 2]),
    (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
    (pa.struct([("a", pa.float16()), ("b", pa.list_(pa.string()))]), {"a": 1.5, "b": ["x"]}),
]


def table_of(value_at: int) -> pa.Table:
    kind, value = VALUES[value_at]
    storage = [None, int(value) if pa.types.is_uint64(kind) else value]
    return pa.table({"v": pa.array(storage, kind)})


def test_every_type_reaches_spark_and_comes_back(spark):
    columns = {f"c{at}": table_of(at).column("v") for at in range(len(VALUES))}
    back = frame_of(spark, pa.table(columns)).toArrow()
    for at, (kind, value) in enumerate(VALUES):
        assert back.column(f"c{at}").to_pylist() == [None, value], kind


def test_times_of_day_are_given_in_the_one_unit_that_spark_takes():
    table = pa.table({"t": pa.array([dt.time(1, 2, 3)], pa.time32("ms"))})
    assert for_spark(table).schema.field("t").type == pa.time64("ns")


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"v": pa.array([1], pa.timestamp("ns"))}), "column 'v'"),
        (pa.table({"v": pa.array([None], pa.decimal256(60, 2))}), "38 digits"),
    ],
)
def test_what_spark_can_not_hold_is_refused_by_name(table, reason):
    with pytest.raises(SchemaError, match=reason):
        for_spark(table)


def test_a_schema_keeps_names_order_and_nulls():
    schema = pa.schema([pa.field("b", pa.uint8(), nullable=False), ("a", pa.string())])
    found = spark_schema(schema)
    assert found.names == ["b", "a"]
    assert [field.nullable for field in found] == [False, True]
