"""Which type a column has in PostgreSQL, and rows as COPY takes them and a query gives them.

    Arrow                              PostgreSQL
    ---------------------------------  -----------------------------------------------------
    bool                               boolean
    int8 int16 uint8                   smallint
    int32 uint16; int64 uint32         integer; bigint
    uint64                             numeric(20,0)
    float16 float32; float64           real; double precision, with NaN and infinities
    decimal(p, s)                      numeric(p,s)
    string                             text; a NUL in it has no place there
    binary                             bytea
    date; time                         date; time without time zone
    timestamp; with a zone             timestamp without time zone; with time zone
    duration                           interval
    list, struct, map                  jsonb, as `plain` writes it

Values are exact or refused: a nanosecond that is no whole microsecond, a text with a NUL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.connectors.plain import exact_type, plain
from strandline.connectors.values import Notation, column as column_of, python_type
from strandline.errors import SinkStoppedError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PIECE_BYTES = 4 << 20
"""About how much of a batch is turned into text at once."""
NAME_BYTES = 63
"""PostgreSQL cuts longer names, silently."""

_TEXT = pa.large_string()
_WHOLE = {
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "integer",
    pa.uint32(): "bigint",
    pa.uint64(): "numeric(20,0)",
}
_WIDER = {"smallint": ("integer", "bigint"), "integer": ("bigint",)}
_NOTATION = Notation()
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the target."""

    name: str
    kind: pa.DataType
    type: str
    """As PostgreSQL's format_type writes it; made of our own words and numbers alone."""
    also: tuple[str, ...] = ()
    """Other types that hold the same values."""


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """The target's columns; what PostgreSQL could not hold is refused by name."""
    return tuple(_column(each) for each in schema)


def _column(field: pa.Field) -> Column:
    if len(field.name.encode()) > NAME_BYTES:
        raise SinkStoppedError(
            f"column {printable(field.name)} has a name of more than {NAME_BYTES} bytes, which "
            "PostgreSQL would cut: give it another one in the view"
        )
    kind = field.type
    if is_.is_decimal(kind):
        digits = max(kind.precision, kind.precision - kind.scale)
        return Column(field.name, kind, f"numeric({digits},{max(kind.scale, 0)})", ("numeric",))
    found = _WHOLE.get(kind)
    if found is not None:
        also = ("numeric",) if kind == pa.uint64() else _WIDER.get(found, ())
        return Column(field.name, kind, found, also)
    return Column(field.name, kind, _type(field), ("character varying",) if _is_text(kind) else ())


def _type(field: pa.Field) -> str:
    kind = field.type
    if is_.is_timestamp(kind):
        return f"timestamp {'without' if kind.tz is None else 'with'} time zone"
    for fits, found in _TYPES:
        if fits(kind):
            return found
    raise SinkStoppedError(
        f"column {printable(field.name)} is of type {kind}, which has no place in PostgreSQL: "
        "cast it in the view"
    )


def copied(batch: pa.RecordBatch, columns: Sequence[Column], diff: str) -> Iterator[memoryview]:
    """The rows and their `diff` as COPY's text format has them, in pieces of bounded size."""
    step = max(1, batch.num_rows * PIECE_BYTES // max(batch.nbytes, 1))
    for start in range(0, batch.num_rows, step):
        piece = batch.slice(start, step)
        texts = [_cells(piece[each.name], each) for each in columns]
        texts.append(piece[diff].cast(_TEXT))
        lines = pc.binary_join_element_wise(*texts, pa.scalar("\t", _TEXT))
        ended = pc.binary_join_element_wise(lines, pa.scalar("\n", _TEXT), pa.scalar("", _TEXT))
        # The values of a column of text lie one behind the other: they are the lines.
        yield memoryview(ended.buffers()[2])[: _end(ended)]


def _end(lines: pa.Array) -> int:
    offsets = memoryview(lines.buffers()[1]).cast("q")
    return int(offsets[lines.offset + len(lines)])


def _cells(values: pa.Array, column: Column) -> pa.Array:
    try:
        texts = _texts(values, column.kind)
    except pa.ArrowInvalid as error:
        raise SinkStoppedError(
            f"column {printable(column.name)} has a value that PostgreSQL's {column.type} can't "
            f"hold exactly ({printable(error, 100)}): cast it in the view"
        ) from None
    if _is_text(column.kind) and pc.any(pc.match_substring(texts, "\x00")).as_py():
        raise SinkStoppedError(
            f"column {printable(column.name)} has a text with a NUL in it, which PostgreSQL can't "
            "hold: take it out in the view"
        )
    if _is_text(column.kind) or is_.is_nested(column.kind) or _is_bytes(column.kind):
        for found, written in _ESCAPES:
            texts = pc.replace_substring(texts, found, written)
    return pc.fill_null(texts, "\\N")


def _texts(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Each value in words that PostgreSQL reads; not yet escaped."""
    if is_.is_nested(kind):
        kind = exact_type(kind)
        return pa.array([_json(each, kind) for each in values.cast(kind).to_pylist()], _TEXT)
    if _is_bytes(kind):
        hexes = (None if each is None else f"\\x{each.hex()}" for each in values.to_pylist())
        return pa.array(list(hexes), _TEXT)
    if is_.is_duration(kind):
        counts = values.cast(pa.duration("us")).cast(pa.int64()).cast(_TEXT)
        return pc.binary_join_element_wise(counts, pa.scalar(" microseconds", _TEXT), _NOTHING)
    for each in _ways(kind):
        values = values.cast(each)
    return values.cast(_TEXT)


def _ways(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """What a value becomes before it is text; Arrow refuses what would not be the same."""
    if is_.is_timestamp(kind):
        zone = None if kind.tz is None else "UTC"
        return pa.timestamp("us", kind.tz), pa.timestamp("us", zone)
    if kind == pa.time64("ns"):
        return (pa.time64("us"),)
    return (pa.float32(),) if kind == pa.float16() else ()


def _json(value: Any, kind: pa.DataType) -> str | None:  # noqa: ANN401 - whatever Arrow holds
    return None if value is None else msgspec.json.encode(plain(value, kind)).decode()


def read(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The column of values that a query gave; jsonb comes as text."""
    if is_.is_nested(kind):
        decoder = msgspec.json.Decoder(python_type(kind, _NOTATION))
        found = [None if each is None else decoder.decode(each) for each in values]
        return column_of(found, kind, _NOTATION)
    if is_.is_floating(kind):
        return pa.array(values, pa.float64()).cast(kind, safe=False)
    return pa.array(values, kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    some = is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind)
    return bool(some or is_.is_binary_view(kind))


_NOTHING = pa.scalar("", _TEXT)
_TYPES = (
    (is_.is_boolean, "boolean"),
    (is_.is_float64, "double precision"),
    (is_.is_floating, "real"),
    (_is_text, "text"),
    (_is_bytes, "bytea"),
    (is_.is_date, "date"),
    (is_.is_time, "time without time zone"),
    (is_.is_duration, "interval"),
    (is_.is_nested, "jsonb"),
)
