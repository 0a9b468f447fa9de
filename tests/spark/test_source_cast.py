"""Every type that Spark knows goes to it and comes back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.errors import SchemaError
from strandline.model.schema import Schema
from strandline.spark.layouts import spark_struct
from strandline.spark.source_cast import arrow_of, as_spark

VALUES = [
    (pa.bool_(), True),
    (pa.int8(), -1),
    (pa.int64(), 2**40),
    (pa.uint8(), 200),
    (pa.uint64(), 2**63),
    (pa.float16(), 0.5),
    (pa.float64(), 0.1),
    (pa.decimal128(20, 3), Decimal("1.125")),
    (pa.string(), "é"),
    (pa.large_string(), "é"),
    (pa.binary(), b"\x00"),
    (pa.binary(2), b"ab"),
    (pa.date32(), dt.date(2026, 1, 31)),
    (pa.timestamp("ms", "UTC"), dt.datetime(2026, 1, 31, tzinfo=dt.UTC)),
    (pa.timestamp("us"), dt.datetime(2026, 1, 31)),  # noqa: DTZ001 - a local time
    (pa.duration("us"), dt.timedelta(seconds=1)),
    (pa.list_(pa.int32()), [1, None]),
    (pa.struct([("a", pa.int32())]), {"a": 1}),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)]),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_a_value_arrives_as_spark_expects_it(kind, value):
    kept = Schema.create(pa.schema([("x", kind)])).arrow()
    rows = pa.table([pa.array([value, None], kept.field("x").type)], schema=kept)
    wanted = arrow_of(spark_struct(kept))
    found = as_spark(rows, wanted)
    assert found.schema.equals(wanted)
    assert found.column("x").to_pylist() == rows.column("x").to_pylist()


def test_columns_come_in_the_order_asked_for():
    wanted = pa.schema([("b", pa.string()), ("a", pa.int64())])
    found = as_spark(pa.table({"a": [1], "b": ["x"], "c": [0]}), wanted)
    assert found.to_pylist() == [{"b": "x", "a": 1}]


def test_a_type_that_spark_lacks_is_refused_by_name():
    with pytest.raises(SchemaError, match="wide"):
        spark_struct(pa.schema([("wide", pa.decimal256(50, 0))]))


def test_a_value_that_does_not_fit_is_refused_by_name():
    with pytest.raises(SchemaError, match="column 'a'"):
        as_spark(pa.table({"a": ["x"]}), pa.schema([("a", pa.int64())]))
