"""Rows that are kept in the metadata itself: their bytes, and back. Pure.

    length (2, big endian) | msgpack [[field id, type] ...] | padding to 8 | Arrow record batch

A record batch without its schema is small and quick to make, but the schema may have changed by
the time it is read. So each column's id and type as written stand in front; a type that has no
wider form is left out, because it can't have changed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from strandline.errors import CorruptionError, StrandlineError
from strandline.model.digest import per_time
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN, Field
from strandline.parts.part import Inline
from strandline.parts.rows import Checked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.schema import Schema

_ALIGN = 8
_HEADER_MAX = 2**16 - 1
_decoder = msgspec.msgpack.Decoder(list[tuple[int, str]])
_DAMAGE = (pa.ArrowException, OSError, EOFError, ValueError, KeyError, msgspec.MsgspecError)


def encode_inline(checked: Checked) -> Inline | None:
    """The rows as they stand in a record, at least one; `None` of more columns than fit there."""
    schema = checked.schema
    header = _header(schema)
    if not header:
        return None
    batch = one_batch(checked.updates)
    payload = header + batch.serialize().to_pybytes()
    return Inline(
        rows=batch.num_rows,
        payload=payload,
        digest=checked.total.pack(),
        t_min=min(checked.digests),
        t_max=max(checked.digests),
        schema=schema.version,
    )


def inline_of(updates: pa.Table, schema: Schema) -> Inline | None:
    """Updates of a shard, at least one, as inline rows that only travel; `None` as above."""
    hashes = row_base(updates.select(list(schema.names)), schema.ids)
    times, diffs = (updates.column(name).to_numpy() for name in (TIME_COLUMN, DIFF_COLUMN))
    return encode_inline(Checked(schema, updates, hashes, per_time(hashes, times, diffs)))


def decode_inline(
    inline: Inline, schema: Schema, *, shard: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """The updates as rows of today's schema."""
    try:
        table, written = _decoded(inline.payload, schema)
    except _DAMAGE as error:
        raise CorruptionError(f"shard {shard}: inline rows are damaged: {error}") from error
    if table.num_rows != inline.rows:
        raise CorruptionError(
            f"shard {shard}: inline rows are damaged: {table.num_rows} instead of {inline.rows}"
        )
    try:
        return schema.migrate(table, written, columns)
    except StrandlineError as error:
        if columns is not None:
            raise
        raise CorruptionError(f"shard {shard}: inline rows are damaged: {error}") from error


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table with rows as one record batch."""
    batches = table.to_batches()
    return batches[0] if len(batches) == 1 else table.combine_chunks().to_batches()[0]


def _decoded(payload: bytes, schema: Schema) -> tuple[pa.Table, tuple[Field, ...]]:
    length = int.from_bytes(payload[:2], "big")
    written = _written(payload[2 : 2 + length], schema)
    own = [(TIME_COLUMN, pa.int64()), (DIFF_COLUMN, pa.int64())]
    layout = pa.schema([*((field.name, field.type) for field in written), *own])
    start = -(-(2 + length) // _ALIGN) * _ALIGN
    batch = pa.ipc.read_record_batch(pa.py_buffer(payload)[start:], layout)
    batch.validate(full=True)  # Offsets that lie lead out of the buffer.
    return pa.Table.from_batches([batch]), written


@lru_cache(maxsize=256)
def _header(schema: Schema) -> bytes:
    columns = [(field.id, _widening_name(field.type)) for field in schema.fields]
    body = msgspec.msgpack.encode(columns)
    if len(body) > _HEADER_MAX:
        return b""
    head = len(body).to_bytes(2, "big") + body
    return head + bytes(-len(head) % _ALIGN)


@lru_cache(maxsize=256)
def _written(header: bytes, schema: Schema) -> tuple[Field, ...]:
    today = {field.id: field for field in schema.fields}
    return tuple(
        Field(field_id, today[field_id].name, _named_type(name) if name else today[field_id].type)
        for field_id, name in _decoder.decode(header)
    )


def _widening_name(kind: pa.DataType) -> str:
    """The name of a type that may widen, by which `_named_type` finds it again."""
    if pa.types.is_decimal(kind):
        return f"{kind.bit_width}:{kind.precision}:{kind.scale}"
    return str(kind) if str(kind) in _BY_NAME else ""


def _named_type(name: str) -> pa.DataType:
    if name in _BY_NAME:
        return _BY_NAME[name]
    width, precision, scale = (int(number) for number in name.split(":"))
    return {128: pa.decimal128, 256: pa.decimal256}[width](precision, scale)


_BY_NAME = {
    str(kind): kind
    for kind in (
        *(
            pa.from_numpy_dtype(np.dtype(f"{letter}{size}"))
            for letter in "iu"
            for size in (1, 2, 4, 8)
        ),
        *(pa.from_numpy_dtype(np.dtype(f"f{size}")) for size in (2, 4, 8)),
        pa.string(),
        pa.large_string(),
        pa.binary(),
        pa.large_binary(),
    )
}
