"""Spark's types as Arrow's, for tables: what a table keeps, and what it refuses by name. Pure.

Some types have an Arrow form that says less than they do: a VARIANT is a struct of two binaries
there, and would come back as one, and so would a geometry. Others have none. A column of either
kind, or with one inside, is refused before anything is written, with what to keep instead.

    kept as it is         numbers, STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, TIMESTAMP_NTZ; ARRAY,
                          MAP and STRUCT of what is kept
    kept, widened         TIME of any precision comes back as TIME(6), and an INTERVAL of days,
                          hours, minutes or seconds as DAY TO SECOND, both with the same values
    refused               see `_INSTEAD`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    CharType,
    DataType,
    GeographyType,
    GeometryType,
    MapType,
    StringType,
    StructType,
    UserDefinedType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from strandline.errors import SchemaError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

_AS_WKB = "keep it as BINARY, by ST_AsBinary, with its SRID beside it"
_INSTEAD: tuple[tuple[type[DataType], str], ...] = (
    (VariantType, "keep it as STRING, by to_json, and parse_json what is read"),
    (YearMonthIntervalType, "keep its months as INT: extract(YEAR …) * 12 + extract(MONTH …)"),
    (CalendarIntervalType, "keep it as INTERVAL DAY TO SECOND, or its months as INT"),
    (GeometryType, _AS_WKB),
    (GeographyType, _AS_WKB),
    (CharType, "make it a STRING"),
    (VarcharType, "make it a STRING"),
    (UserDefinedType, "keep what it is made of, as columns of Spark's own types"),
)


def arrow_schema(columns: StructType) -> pa.Schema:
    """The columns as Arrow has them; `SchemaError` names the first that no table keeps."""
    for name, kind, instead in _refused(columns):
        raise SchemaError(
            f"column {printable(name)} is of Spark's type {kind}, which tables don't keep: "
            f"{instead}"
        )
    return to_arrow_schema(columns, timezone="UTC")


def _refused(columns: StructType, inside: str = "") -> Iterator[tuple[str, str, str]]:
    for field in columns.fields:
        yield from _found(f"{inside}{field.name}", field.dataType)


def _found(name: str, kind: DataType) -> Iterator[tuple[str, str, str]]:
    """What is refused in a type: its path, its name, and what to do."""
    instead = next((words for each, words in _INSTEAD if isinstance(kind, each)), None)
    if instead is not None:
        yield name, kind.simpleString(), instead
    elif isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
        # It would come back as text that compares by its bytes, as keys of tables always do.
        yield name, kind.simpleString(), "cast it to STRING COLLATE UTF8_BINARY"
    elif isinstance(kind, StructType):
        yield from _refused(kind, f"{name}.")
    elif isinstance(kind, ArrayType):
        yield from _found(f"{name}.element", kind.elementType)
    elif isinstance(kind, MapType):
        yield from _found(f"{name}.key", kind.keyType)
        yield from _found(f"{name}.value", kind.valueType)
