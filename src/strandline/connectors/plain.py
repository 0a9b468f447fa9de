"""From Arrow's values to those that JSON has: the way back from `values`.

Text for decimals and for floats that are no numbers; dates, times and bytes are left to the
encoder, which writes ISO 8601 and base64.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import pyarrow as pa

from strandline.errors import SinkStoppedError

_NOT_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def plain(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - whatever Arrow holds
    """A value as JSON holds it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_NUMBERS[str(value)]
    if isinstance(value, bytes | decimal.Decimal | dt.datetime | dt.date | dt.time | dt.timedelta):
        return str(value) if isinstance(value, decimal.Decimal) else value
    return _nested(value, kind)


def _nested(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - whatever Arrow holds
    if pa.types.is_map(kind):
        return {key: plain(item, kind.item_type) for key, item in value}
    if pa.types.is_struct(kind):
        return {each.name: plain(value[each.name], each.type) for each in kind}
    if isinstance(value, list):
        return [plain(item, kind.value_type) for item in value]
    raise SinkStoppedError(f"a column of type {kind} can't be published as JSON: use Parquet")
