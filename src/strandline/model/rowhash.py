"""One specified 64-bit hash of a row, for its place and for its share of a digest.

It is part of the format: `docs/rowhash.md` specifies it, and golden vectors pin it for every
type. With v the hash of a value (`valuehash`), modulo 2**64:

    base  = sum of mix64(v(x_c) + key(id_c)) over the columns c whose value x_c is not null
    key   = mix64(id + FIELD_SALT)
    hash  = mix64(base + salt)

A null column adds nothing and columns are told apart by field id, so a new nullable column,
another order of columns, or a widened type leaves every hash as it was.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import invariant
from strandline.model.valuehash import (
    BLOCK,
    U64,
    mix,
    mix64,
    null_mask,
    plain,
    value_hashes,
    write_raw,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "DIGEST_SALT_A",
    "DIGEST_SALT_B",
    "PLACE_SALT",
    "U64",
    "mix64",
    "row_base",
    "salted",
    "value_hashes",
]

PLACE_SALT = 0x6A09E667F3BCC908
DIGEST_SALT_A = 0xBB67AE8584CAA73B
DIGEST_SALT_B = 0x3C6EF372FE94F82B
FIELD_SALT = 0xA54FF53A5F1D36F1


def row_base(rows: pa.Table | pa.RecordBatch, field_ids: Sequence[int]) -> U64:
    """The salt-free inner sum of each row; `field_ids` names the columns in their order."""
    invariant(rows.num_columns == len(field_ids), "every column to be hashed has one field id")
    out: U64 = np.zeros(rows.num_rows, dtype=np.uint64)
    if not field_ids or not rows.num_rows:
        return out
    keys = _field_keys(tuple(field_ids))
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    count = min(len(out), max(1024, BLOCK // len(field_ids)))
    room: U64 = np.empty((2, len(field_ids) * count), dtype=np.uint64)
    at = 0
    for batch in table.to_batches(max_chunksize=count):
        upto = at + batch.num_rows
        _write_base([plain(column) for column in batch.columns], keys, out[at:upto], room)
        at = upto
    return out


def salted(base: U64, salt: int) -> U64:
    """The row hashes under one salt, from what `row_base` gave."""
    out: U64 = base + np.uint64(salt)
    room: U64 = np.empty(min(len(out), BLOCK), dtype=np.uint64)
    for start in range(0, len(out), BLOCK):
        block = out[start : start + BLOCK]
        mix(block, room[: len(block)])
    return out


def _write_base(columns: list[pa.Array], keys: U64, out: U64, room: U64) -> None:
    # All columns go through the two mixes together: for a small batch the cost of a call to
    # numpy is what counts, not the arithmetic. For a large one it is fresh memory, so every
    # batch works in the same room.
    shape = (len(columns), len(out))
    matrix, shifted = (each[: shape[0] * shape[1]].reshape(shape) for each in room)
    for column, line in zip(columns, matrix, strict=True):
        write_raw(column, line)
    mix(matrix, shifted)
    matrix += keys
    mix(matrix, shifted)
    for column, line in zip(columns, matrix, strict=True):
        nulls = null_mask(column)
        if nulls is not None:
            line[nulls] = 0
    np.add.reduce(matrix, axis=0, out=out)


@lru_cache(maxsize=1024)
def _field_keys(field_ids: tuple[int, ...]) -> U64:
    keys = [[mix64(field_id + FIELD_SALT)] for field_id in field_ids]
    return np.array(keys, dtype=np.uint64)
