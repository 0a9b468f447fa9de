"""Values as Spark's ANSI mode casts them; tests/spark compares with Spark itself."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from strandline.errors import UsageError
from strandline.views.arithmetic import Raised
from strandline.views.casts import cast

STAMP = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("have", "want", "value", "found"),
    [
        (pa.string(), pa.int32(), " 12 ", 12),
        (pa.string(), pa.decimal128(5, 2), "1.555", Decimal("1.56")),
        (pa.string(), pa.bool_(), "Yes", True),
        (pa.string(), pa.date32(), "2024-02-29", date(2024, 2, 29)),
        (
            pa.string(),
            STAMP,
            "2024-02-29 01:02:03+01:00",
            datetime(2024, 2, 29, 0, 2, 3, tzinfo=UTC),
        ),
        (pa.decimal128(5, 2), pa.int32(), Decimal("-2.99"), -2),
        (pa.decimal128(5, 2), pa.string(), Decimal("0.10"), "0.10"),
        (pa.float64(), pa.int64(), -2.9, -2),
        (pa.bool_(), pa.string(), True, "true"),
        (pa.bool_(), pa.int8(), True, 1),
        (pa.int64(), pa.bool_(), 5, True),
        (pa.int64(), pa.float64(), 5, 5.0),
        (pa.date32(), pa.string(), date(2024, 2, 29), "2024-02-29"),
    ],
)
def test_a_value_keeps_its_meaning(have, want, value, found):
    assert cast(have, want)(value) == found


@pytest.mark.parametrize(
    ("have", "want", "value"),
    [
        (pa.int64(), pa.int8(), 128),
        (pa.string(), pa.int32(), "1.5"),
        (pa.string(), pa.int32(), ""),
        (pa.string(), pa.decimal128(5, 2), "1000"),
        (pa.string(), pa.decimal128(5, 2), "one"),
        (pa.string(), pa.bool_(), "maybe"),
        (pa.string(), pa.date32(), "2023-02-29"),
        (pa.string(), STAMP, "noon"),
        (pa.float64(), pa.int64(), math.nan),
        (pa.float64(), pa.decimal128(5, 2), 1e300),
        (pa.int32(), pa.decimal128(3, 0), 1000),
    ],
)
def test_what_does_not_fit_raises(have, want, value):
    with pytest.raises(Raised):
        cast(have, want)(value)


@pytest.mark.parametrize(
    ("have", "want"),
    [(pa.float64(), pa.string()), (STAMP, pa.int64()), (pa.string(), pa.float64())],
)
def test_what_we_would_do_differently_from_spark_is_refused(have, want):
    with pytest.raises(UsageError):
        cast(have, want)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_no_number_is_no_decimal_and_raises_nothing_as_in_spark(value):
    assert cast(pa.float64(), pa.decimal128(20, 3))(value) is None
