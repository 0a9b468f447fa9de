"""From Arrow's values to those that JSON has: the way back from `values`.

Text for decimals and for floats that are no numbers; dates, times and bytes are left to the
encoder, which writes ISO 8601 and base64. Python's times know microseconds and no more, and JSON's
offsets minutes: so columns are made `exact` first, or are refused by name.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import pyarrow as pa
import pyarrow.types as is_

from strandline.errors import SinkStoppedError
from strandline.model.ids import printable

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


def exact(rows: pa.Table) -> pa.Table:
    """The rows in types that `plain` takes without loss: microseconds, and instants in UTC.

    There were zones whose clocks differed by seconds, which an offset can't say.
    """
    for at, field in enumerate(rows.schema):
        kind = exact_type(field.type)
        if kind != field.type:
            try:
                column = rows.column(at).cast(kind)
            except pa.ArrowInvalid as error:
                raise SinkStoppedError(
                    f"column {printable(field.name)} has a value that JSON can't hold exactly "
                    f"({printable(error, 100)}): cast it in the view"
                ) from None
            rows = rows.set_column(at, field.with_type(kind), column)
    return rows


def exact_type(kind: pa.DataType) -> pa.DataType:
    """The type in which Python's values are exact; a cast to it refuses what would change."""
    if is_.is_map(kind):
        return pa.map_(exact_type(kind.key_type), exact_type(kind.item_type))
    if is_.is_struct(kind):
        return pa.struct([each.with_type(exact_type(each.type)) for each in kind])
    if is_.is_nested(kind):
        inside = kind.value_field.with_type(exact_type(kind.value_type))
        if is_.is_fixed_size_list(kind):
            return pa.list_(inside, kind.list_size)
        return pa.large_list(inside) if is_.is_large_list(kind) else pa.list_(inside)
    if is_.is_timestamp(kind):
        unit = "us" if kind.unit == "ns" else kind.unit
        return pa.timestamp(unit, None if kind.tz is None else "UTC")
    return _MICROS.get(kind, kind)


_MICROS = {pa.time64("ns"): pa.time64("us"), pa.duration("ns"): pa.duration("us")}


def _nested(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - whatever Arrow holds
    if is_.is_map(kind):
        return {key: plain(item, kind.item_type) for key, item in value}
    if is_.is_struct(kind):
        return {each.name: plain(value[each.name], each.type) for each in kind}
    if isinstance(value, list):
        return [plain(item, kind.value_type) for item in value]
    raise SinkStoppedError(f"a column of type {kind} can't be published as JSON: use Parquet")
