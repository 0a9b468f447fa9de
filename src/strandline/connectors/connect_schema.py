"""What the schema in a message of Kafka Connect says of its values. Pure.

Debezium writes the columns of one row in several ways, and names the way of each in the schema that
its messages carry, unless Connect was told to leave it out:

    name of the field's schema                       its value                    a new column is
    -----------------------------------------------  ---------------------------  ---------------
    io.debezium.time.Date                            days since 1970              DATE
    io.debezium.time.Time, MicroTime, NanoTime       ms, us, ns since midnight    BIGINT
    io.debezium.time.Timestamp, MicroTimestamp,      ms, us, ns since 1970        TIMESTAMP_NTZ;
      NanoTimestamp                                                               ns: BIGINT
    io.debezium.time.ZonedTimestamp                  text with an offset          TIMESTAMP
    io.debezium.time.MicroDuration, NanoDuration     us, ns                       BIGINT
    org.apache.kafka.connect.data.Date               days since 1970              DATE
    org.apache.kafka.connect.data.Time               ms since midnight            BIGINT
    org.apache.kafka.connect.data.Timestamp          ms since 1970                TIMESTAMP_NTZ
    org.apache.kafka.connect.data.Decimal            bytes of the unscaled value  DECIMAL
    io.debezium.data.VariableScaleDecimal            a scale, and such bytes      none

Numbers and text of other names are what they seem to be; what has no schema is read as the options
of its table say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from strandline.connectors.values import Notation

_DEBEZIUM, _CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
_ZONED = _DEBEZIUM + "ZonedTimestamp"
_DECIMAL, _VARIABLE = _CONNECT + "Decimal", "io.debezium.data.VariableScaleDecimal"
_NUMBER, _PLAIN, _DATE = pa.int64(), pa.timestamp("us"), pa.date32()
_UNITS: Mapping[str, tuple[str, pa.DataType]] = {
    _DEBEZIUM + "Date": ("d", _DATE),
    _DEBEZIUM + "Time": ("ms", _NUMBER),
    _DEBEZIUM + "MicroTime": ("us", _NUMBER),
    _DEBEZIUM + "NanoTime": ("ns", _NUMBER),
    _DEBEZIUM + "Timestamp": ("ms", _PLAIN),
    _DEBEZIUM + "MicroTimestamp": ("us", _PLAIN),
    _DEBEZIUM + "NanoTimestamp": ("ns", _NUMBER),
    _DEBEZIUM + "MicroDuration": ("us", _NUMBER),
    _DEBEZIUM + "NanoDuration": ("ns", _NUMBER),
    _CONNECT + "Date": ("d", _DATE),
    _CONNECT + "Time": ("ms", _NUMBER),
    _CONNECT + "Timestamp": ("ms", _PLAIN),
}
_PRIMITIVE = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _NUMBER),
    **dict.fromkeys(("float", "double", "float32", "float64"), pa.float64()),
    "string": pa.string(),
    "bytes": pa.binary(),
}
DIGITS_MAX = 38
_UNREADABLE = (msgspec.DecodeError, RecursionError)


class _Field(msgspec.Struct):
    """What is used of a schema of Kafka Connect."""

    type: str = ""
    field: str = ""
    name: str | None = None
    parameters: dict[str, Any] | None = None
    fields: list[_Field] = []
    items: _Field | None = None
    values: _Field | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """How the fields of a row are written; nothing is said of others."""

    notations: Mapping[str, Notation] = field(default_factory=dict)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Those that columns would have; of fields that a column can have."""


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw = msgspec.Raw(b"")
    payload: msgspec.Raw = msgspec.Raw(b"")


def schema_in(value: bytes) -> bytes | None:
    """The schema that a message carries, as it is written; `None` if it carries none."""
    if b'"schema"' not in value or b'"payload"' not in value:
        return None
    try:
        found = msgspec.json.decode(value, type=_Wrapped)
    except _UNREADABLE:
        return None
    return bytes(found.schema) or None if bytes(found.payload) else None


def written_row(schema: bytes, otherwise: Callable[[str], Notation]) -> Written:
    """How the rows of a change are written. `otherwise` is how a column is read by the options."""
    for side in ("after", "before"):
        for each in _fields(schema):
            if each.field == side and each.fields:
                return _written(each.fields, otherwise)
    return Written()


def written_key(schema: bytes, key: str, otherwise: Callable[[str], Notation]) -> Written:
    """The same for the key of a message; one that is no object is that of the column `key`."""
    whole = _decoded(schema)
    if whole is None:
        return Written()
    if whole.type != "struct":
        whole.field = key
    return _written(whole.fields if whole.type == "struct" else [whole], otherwise)


def _decoded(schema: bytes) -> _Field | None:
    try:
        return msgspec.json.decode(schema, type=_Field | None)
    except _UNREADABLE:
        return None


def _fields(schema: bytes) -> list[_Field]:
    whole = _decoded(schema)
    return [] if whole is None else whole.fields


def _written(fields: Iterable[_Field], otherwise: Callable[[str], Notation]) -> Written:
    found = list(fields)
    types = {each.field: _type(each) for each in found}
    return Written(
        {each.field: _notation(each, otherwise(each.field)) for each in found},
        {name: kind for name, kind in types.items() if kind is not None},
    )


def _notation(each: _Field, otherwise: Notation) -> Notation:
    """How the values of a field are written, and those within them."""
    counted = _UNITS.get(each.name or "")
    if counted is not None:
        unit = counted[0]
        return replace(otherwise, unit=unit, dates=unit)
    if each.name == _DECIMAL:
        return replace(otherwise, decimals="base64", scale=_number(each, "scale"))
    if each.name == _VARIABLE:
        return replace(otherwise, decimals="variable")
    within = [(one.field, one) for one in each.fields]
    within += [("", one) for one in (each.items, each.values) if one is not None]
    if within:
        parts = tuple((name, _notation(one, otherwise)) for name, one in within)
        return replace(otherwise, parts=parts)
    return otherwise if each.type == "bytes" else replace(otherwise, decimals="text")


def _type(each: _Field) -> pa.DataType | None:
    """The type of a column for a field; `None` if it gets none."""
    counted = _UNITS.get(each.name or "")
    if counted is not None:
        return counted[1]
    if each.name == _ZONED:
        return pa.timestamp("us", "UTC")
    if each.name == _DECIMAL:
        precision = _number(each, "connect.decimal.precision") or DIGITS_MAX
        scale = _number(each, "scale")
        if scale is not None and 0 <= scale <= precision <= DIGITS_MAX:
            return pa.decimal128(precision, scale)
    return _PRIMITIVE.get(each.type)


def _number(each: _Field, name: str) -> int | None:
    text = str((each.parameters or {}).get(name, ""))
    whole = text.removeprefix("-")
    return int(text) if whole.isascii() and whole.isdecimal() and len(whole) < 6 else None
