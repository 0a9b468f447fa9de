"""A cached block as one file: Arrow, and a trailer that proves it whole. Pure.

    Arrow IPC file, uncompressed | magic (8) | length of the Arrow file (8) | seal (8)

The name under which a block was kept stands in the schema's metadata, so a file that lies under
another block's name is refused. The seal covers a small file wholly and of a large one its two
ends and stripes between them: opening a block must not read all of it. So it finds what is cut
off, left unwritten or not ours; that no other byte changes is up to the disk, and nothing that
was written before the machine last started is ever opened (`cache`).
"""

from __future__ import annotations

import pyarrow as pa
import xxhash

_MAGIC = b"STRLBLK1"
TRAILER = 24
_NAME = b"strandline.block"
_ENDS = 4096
_STRIPE = 256
_STRIPES = 32
_WHOLE = 64 * 1024
"""A file of up to this size is sealed wholly: the index of a part is."""
DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, OverflowError)


def encode_block(name: str, table: pa.Table) -> tuple[pa.Buffer, bytes]:
    """The Arrow file and the trailer that follows it; one record batch, whatever came in."""
    whole = table.combine_chunks().replace_schema_metadata({_NAME: name.encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=max(1, whole.num_rows))
    body = sink.getvalue()
    return body, _MAGIC + body.size.to_bytes(8, "big") + _seal(body)


def decode_block(name: str, content: pa.Buffer) -> pa.Table | None:
    """The block, without a copy of its columns; `None` if this is not it, or not all of it."""
    if content.size <= TRAILER:
        return None
    body = content.slice(0, content.size - TRAILER)
    trailer = content.slice(body.size).to_pybytes()
    if trailer != _MAGIC + body.size.to_bytes(8, "big") + _seal(body):
        return None
    try:
        table = pa.ipc.open_file(pa.BufferReader(body)).read_all()
    except DAMAGE:
        return None
    if (table.schema.metadata or {}).get(_NAME) != name.encode():
        return None
    return table.replace_schema_metadata(None)


def _seal(body: pa.Buffer) -> bytes:
    view = memoryview(body)
    if len(view) <= _WHOLE:
        return xxhash.xxh3_64_digest(view)
    state = xxhash.xxh3_64(view[:_ENDS])
    state.update(view[-_ENDS:])
    step = len(view) // _STRIPES
    for start in range(step, len(view) - _STRIPE, step):
        state.update(view[start : start + _STRIPE])
    return state.digest()
