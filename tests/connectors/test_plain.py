"""Arrow's values as JSON has them."""

from __future__ import annotations

import decimal
import math

import pyarrow as pa
import pytest

from strandline.connectors.plain import plain
from strandline.errors import SinkStoppedError


@pytest.mark.parametrize(
    ("value", "kind", "made"),
    [
        (None, pa.int64(), None),
        (1, pa.int64(), 1),
        (0.5, pa.float64(), 0.5),
        (math.nan, pa.float64(), "NaN"),
        (-math.inf, pa.float32(), "-Infinity"),
        (decimal.Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        ([("k", math.inf)], pa.map_(pa.string(), pa.float64()), {"k": "Infinity"}),
        ({"x": [decimal.Decimal(1)]}, pa.struct([("x", pa.list_(pa.decimal128(3, 0)))]),
         {"x": ["1"]}),
    ],
)  # fmt: skip
def test_values_that_json_lacks_are_text(value: object, kind: pa.DataType, made: object) -> None:
    assert plain(value, kind) == made


def test_what_can_not_be_written_is_named() -> None:
    with pytest.raises(SinkStoppedError, match="interval"):
        plain(object(), pa.month_day_nano_interval())
