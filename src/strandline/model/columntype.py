"""Which Arrow types a column may have, which of them widen, and which casts lose nothing.

A column is kept as a type that Parquet gives back exactly, so a declared type may be kept as
another one that holds the same values:

    declared                          kept as
    --------------------------------  ----------------------------------------------------
    dictionary, run-end encoded       the type of its values
    string view, binary view          string, binary
    date64                            date32
    time32[s], timestamp[s]           the same in ms
    decimal32, decimal64              decimal128 of the same precision and scale
    not null, inside a nested type    nullable: only columns promise to have no nulls
    null, interval, union, extension  refused
    list view                         refused: Arrow's cast of it to a list gives broken offsets

Some are not declared any more (`check_holdable`), and may be found in older shards: lists and
bytes of fixed size 0, decimals with a scale below zero or above their precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.errors import SchemaError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ORDERS = (
    (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    (pa.float16(), pa.float32(), pa.float64()),
    (pa.string(), pa.large_string()),
    (pa.binary(), pa.large_binary()),
)
"""Types from narrow to wide; every value of one has an equal in those after it."""

_KEPT_AS = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time32("ms"),
}
_KEPT = frozenset(
    {
        *(kind for order in _ORDERS for kind in order),
        pa.bool_(),
        pa.date32(),
        pa.time32("ms"),
        pa.time64("us"),
        pa.time64("ns"),
    }
)


def kept_type(kind: pa.DataType) -> pa.DataType:
    """The type that a column declared as `kind` is kept as, or the reason why there is none."""
    if isinstance(kind, pa.BaseExtensionType):
        raise SchemaError(f"extension type {kind} is refused: use {kind.storage_type} instead")
    if kind in _KEPT:
        return kind
    if kind in _KEPT_AS:
        return _KEPT_AS[kind]
    if is_.is_dictionary(kind) or is_.is_run_end_encoded(kind):
        return kept_type(kind.value_type)
    if is_.is_nested(kind):
        return _kept_nested(kind)
    return _kept_flat(kind)


def _kept_flat(kind: pa.DataType) -> pa.DataType:
    if is_.is_decimal(kind):
        wide = is_.is_decimal256(kind)
        return kind if wide else pa.decimal128(kind.precision, kind.scale)
    if is_.is_timestamp(kind):
        return pa.timestamp("ms", kind.tz) if kind.unit == "s" else kind
    if is_.is_duration(kind) or is_.is_fixed_size_binary(kind):
        return kind
    if is_.is_null(kind):
        raise SchemaError("a column of nulls alone has no type: cast it to the type it will have")
    raise SchemaError(f"type {kind} is refused: cast it to another type")


def _kept_nested(kind: pa.DataType) -> pa.DataType:
    if is_.is_struct(kind):
        names = [field.name for field in kind]
        check_names(names, "struct field")
        if not names:
            raise SchemaError("a struct without fields is refused: Parquet can't hold it")
        return pa.struct([(field.name, kept_type(field.type)) for field in kind])
    if is_.is_map(kind):
        return pa.map_(kept_type(kind.key_type), kept_type(kind.item_type))
    if is_.is_fixed_size_list(kind):
        return pa.list_(kept_type(kind.value_type), kind.list_size)
    if is_.is_large_list(kind):
        return pa.large_list(kept_type(kind.value_type))
    if is_.is_list(kind):
        return pa.list_(kept_type(kind.value_type))
    raise SchemaError(f"type {kind} is refused: cast it to another type")


def check_holdable(kind: pa.DataType) -> None:
    """Refuse a type that Parquet can't hold, or not give back, wherever it is in another one."""
    instead = ""
    if is_.is_fixed_size_list(kind) and not kind.list_size:
        instead = "use a list without a fixed size"
    elif is_.is_fixed_size_binary(kind) and not kind.byte_width:
        instead = "use binary"
    elif is_.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        instead = "cast it to a decimal whose scale is between 0 and its precision"
    if instead:
        raise SchemaError(f"type {kind} is refused, Parquet can't hold it: {instead}")
    encoded = is_.is_dictionary(kind) or is_.is_run_end_encoded(kind)
    inside = [kind.value_type] if encoded else [kind.field(n).type for n in range(kind.num_fields)]
    for each in inside:
        check_holdable(each)


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether rows kept as `old` can be read as `new` with equal values and equal row hashes."""
    if old == new:
        return True
    if is_.is_decimal(old) and is_.is_decimal(new):
        return bool(old.scale == new.scale and old.precision <= new.precision)
    for order in _ORDERS:
        if old in order and new in order:
            return order.index(old) < order.index(new)
    return False


def castable(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether `cast` gives every value its equal or refuses, and never changes one."""
    if have == want or is_.is_null(have):
        return True
    if is_.is_dictionary(have) or is_.is_run_end_encoded(have):
        return castable(have.value_type, want)
    if is_.is_nested(want):
        return _castable_nested(have, want)
    if is_.is_floating(want):
        return bool(is_.is_floating(have) and have.bit_width <= want.bit_width)
    if is_.is_timestamp(want):
        return bool(is_.is_timestamp(have) and (have.tz is None) == (want.tz is None))
    # Spark, for one, has no other type for whole numbers of 64 bits without a sign.
    whole = is_.is_decimal(have) and have.scale == 0 and is_.is_integer(want)
    return whole or any(family(have) and family(want) for family in _FAMILIES)


def _castable_nested(have: pa.DataType, want: pa.DataType) -> bool:
    if is_.is_struct(want):
        same = is_.is_struct(have) and have.names == want.names
        return same and all(castable(a.type, b.type) for a, b in zip(have, want, strict=True))
    if is_.is_map(want):
        if not is_.is_map(have) or not castable(have.key_type, want.key_type):
            return False
        return castable(have.item_type, want.item_type)
    if is_.is_fixed_size_list(want) and not is_.is_fixed_size_list(have):
        return False
    if is_.is_fixed_size_list(want) and have.list_size != want.list_size:
        return False
    return _is_list(have) and castable(have.value_type, want.value_type)


def cast(column: pa.ChunkedArray, want: pa.DataType) -> pa.ChunkedArray:
    """The same values as another type; refused if one of them has no equal there."""
    if column.type == want:
        return column
    if not castable(column.type, want):
        raise SchemaError(f"{column.type} can't be taken for {want}: cast it first")
    try:
        if is_.is_run_end_encoded(column.type):
            decoded = [pc.run_end_decode(chunk) for chunk in column.chunks]
            return pa.chunked_array(decoded, column.type.value_type).cast(want)
        return column.cast(want)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = printable(str(error), limit=200)
        raise SchemaError(
            f"not every {column.type} fits {want} ({reason}): cast it first"
        ) from error


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse names that somebody could not print, ask for, or tell apart."""
    seen: dict[str, str] = {}
    for name in names:
        if not name or not name.isprintable():
            raise SchemaError(
                f"{what} name {printable(name)} is refused: it is empty or has characters that "
                "can't be printed; rename it"
            )
        if (other := seen.get(name.casefold())) is not None:
            raise SchemaError(
                f"{what} names {printable(other)} and {printable(name)} are the same, at most "
                "but for their case: rename one"
            )
        seen[name.casefold()] = name


def key_refusal(kind: pa.DataType) -> str | None:
    """Why a column of this type can't be part of a key; `None` if it can."""
    if is_.is_floating(kind):
        return "floats have two zeros and many NaNs, so one key could be written in several ways"
    if is_.is_nested(kind):
        return "nested values have no order by which parts could be sorted and pruned"
    return None


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    variable = kind in (pa.binary(), pa.large_binary(), pa.binary_view())
    return variable or bool(is_.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


_FAMILIES: tuple[Callable[[pa.DataType], bool], ...] = (
    is_.is_integer,
    is_.is_decimal,
    is_.is_date,
    is_.is_time,
    is_.is_duration,
    _is_text,
    _is_bytes,
)
"""Kinds of value within which Arrow's safe cast keeps every value, or raises."""
