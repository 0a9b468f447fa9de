"""Columns that tables get from their sources, at one transaction, on the record. Pure.

A table with `newColumns 'add'` takes fields that it has no column for. Who computes a transaction
and finds such fields proposes EVOLVE before anything is landed; then it is computed anew, by
everybody, with those columns. So from this time on the table has them, in every replica and every
replay, and before it has not. Declared columns come first, added ones in the order of the record.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as is_

from strandline.errors import NewerFormatError, SchemaError
from strandline.model.columntype import check_names
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.views.program import Program

TYPES = {
    "BOOLEAN": pa.bool_(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
"""What a new column may be, beside `DECIMAL(p, s)`. Whoever wants another type declares it."""
_DECIMAL = re.compile(r"DECIMAL\((\d{1,2}), (\d{1,2})\)")
COLUMNS_MAX = 1_000


def word_of(kind: pa.DataType) -> str | None:
    """The type of a new column for a field of this type; `None` if it gets none."""
    rules = (
        ("BOOLEAN", is_.is_boolean),
        ("BIGINT", is_.is_signed_integer),
        ("DOUBLE", is_.is_floating),
        ("STRING", lambda each: is_.is_string(each) or is_.is_large_string(each)),
        ("BINARY", lambda each: is_.is_binary(each) or is_.is_large_binary(each)),
        ("DATE", is_.is_date32),
        ("TIMESTAMP", lambda each: is_.is_timestamp(each) and each.unit != "ns" and each.tz),
        ("TIMESTAMP_NTZ", lambda each: is_.is_timestamp(each) and each.unit != "ns"),
    )
    if is_.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return next((word for word, fits in rules if fits(kind)), None)


def type_of(word: str) -> pa.DataType:
    """The type that a record's word means."""
    digits = _DECIMAL.fullmatch(word)
    if digits is not None:
        return pa.decimal128(int(digits[1]), int(digits[2]))
    if word not in TYPES:
        raise NewerFormatError(
            f"the journal has a new column of type {printable(word)}, which this version does not "
            "know: upgrade Strandline"
        )
    return TYPES[word]


def joined(found: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Fields that several tasks found, in order of their names; whole and broken numbers are
    numbers, else who is first is right: what does not fit becomes an error row."""
    whole: dict[str, str] = {}
    for each in found:
        for name, word in each.items():
            known = whole.setdefault(name, word)
            if {known, word} == {"BIGINT", "DOUBLE"}:
                whole[name] = "DOUBLE"
    return dict(sorted(whole.items()))


def addable(fresh: Mapping[str, str], columns: pa.Schema) -> dict[str, str]:
    """Those fields that can be columns of the table: others would make it unreadable."""
    names, good = list(columns.names), {}
    for name, word in fresh.items():
        if name.startswith("_") or len(names) >= COLUMNS_MAX:
            continue
        try:
            check_names([*names, name], "column")
        except SchemaError:
            continue
        names.append(name)
        good[name] = word
    return good


def with_added(columns: pa.Schema, added: Mapping[str, str]) -> pa.Schema:
    """The columns of a table; what was added and is declared by now is as it is declared."""
    known = set(columns.names)
    more = [pa.field(name, type_of(word)) for name, word in added.items() if name not in known]
    return pa.schema([*columns, *more])


def evolved(program: Program, added: Mapping[str, Mapping[str, str]]) -> Program:
    """The program with the columns that its tables have got; views keep theirs."""
    if not added:
        return program
    tables = tuple(
        replace(each, columns=with_added(each.columns, added.get(each.name, {})))
        for each in program.tables
    )
    return replace(program, tables=tables)
