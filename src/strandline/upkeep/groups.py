"""Reads a part one row group at a time, so that many large ones can be merged at once.

A small part is fetched whole and checked by its checksum. Of a large one only the footer and
then the bytes of one row group after another are fetched; its checksum would need all of them
at once, so its rows are digested on the way and must add up to the digest that the state has.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.parquet import (
    DAMAGE,
    Owner,
    check_footer,
    corrupt,
    decode_part,
    stored_names,
    with_constants,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.model.schema import Schema
    from strandline.parts.part import Part
    from strandline.shard.env import Env

WHOLE_BYTES = 8 * 1024 * 1024
"""Parts up to this size are fetched at once."""

_TAIL_BYTES = 64 * 1024


class _Sparse(io.RawIOBase):
    """A file of which only some stretches are in memory: those that will be asked for."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._stretches: dict[int, bytes] = {}
        self._at = 0

    def hold(self, start: int, content: bytes) -> None:
        self._stretches[start] = content

    def drop(self, start: int) -> None:
        self._stretches.pop(start, None)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = origin + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        for start, content in self._stretches.items():
            if start <= self._at and end <= start + len(content):
                found = content[self._at - start : end - start]
                self._at = end
                return found
        raise OSError(f"bytes {self._at} to {end} are outside of what the footer names")


class PartGroups:
    """The updates of one part as rows of today's schema, in order, a row group at a time."""

    def __init__(self, env: Env, part: Part, schema: Schema, *, shard: str, shard_id: str) -> None:
        self._env = env
        self._part = part
        self._schema = schema
        self._shard = shard
        self._owner = Owner(shard_id, part.key)

    def tables(self) -> Iterator[pa.Table]:
        if self._part.size <= WHOLE_BYTES:
            yield self._whole()
        else:
            yield from self._grouped()

    def _whole(self) -> pa.Table:
        blob = self._env.blob
        encoded = self._env.patient(lambda: blob.get(self._part.key), shard=self._shard)
        if encoded is None:
            raise self._missing()
        self._env.metrics.add("parts_read", self._shard)
        self._env.metrics.add("bytes_read", self._shard, len(encoded))
        return decode_part(encoded, self._part, self._schema, owner=self._owner)

    def _grouped(self) -> Iterator[pa.Table]:
        self._env.metrics.add("parts_read", self._shard)
        source = _Sparse(self._part.size)
        total = Digest.ZERO
        try:
            self._hold_footer(source)
            file = pq.ParquetFile(source)
            written = check_footer(file, self._part, self._owner)
            wanted = stored_names(written, self._schema, None, self._part, self._owner)
            for group in range(file.metadata.num_row_groups):
                start, stop = _stretch(file.metadata.row_group(group), self._part.size)
                source.hold(start, self._fetch(start, stop - start))
                raw = file.read_row_group(group, columns=wanted, use_threads=False)
                source.drop(start)
                table = with_constants(self._schema.migrate(raw, written), self._part)
                total += _digest(table, self._schema)
                yield table
        except DAMAGE as error:
            raise corrupt(self._part, self._owner, str(error)) from error
        if total != self._part.total:
            raise corrupt(self._part, self._owner, "its rows do not add up to its digest")

    def _hold_footer(self, source: _Sparse) -> None:
        size = self._part.size
        tail = self._fetch(max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
        footer = int.from_bytes(tail[-8:-4], "little") + 8
        if footer > size:
            raise corrupt(self._part, self._owner, "its footer is longer than the part")
        if footer > len(tail):
            tail = self._fetch(size - footer, footer)
        source.hold(size - len(tail), tail)

    def _fetch(self, start: int, length: int) -> bytes:
        blob, key = self._env.blob, self._part.key
        found = self._env.patient(lambda: blob.get_range(key, start, length), shard=self._shard)
        if found is None:
            raise self._missing()
        if len(found) != length:
            raise corrupt(self._part, self._owner, f"it ends before byte {start + length}")
        self._env.metrics.add("bytes_read", self._shard, length)
        return found

    def _missing(self) -> CorruptionError:
        return CorruptionError(
            f"shard {self._shard}: part {self._part.key} is missing; run `strandline fsck`"
        )


def _stretch(group: pq.RowGroupMetaData, size: int) -> tuple[int, int]:
    """From where to where the bytes of a row group lie."""
    starts, stops = [], []
    for at in range(group.num_columns):
        column = group.column(at)
        offset = column.data_page_offset
        if column.dictionary_page_offset is not None:
            offset = min(offset, column.dictionary_page_offset)
        starts.append(offset)
        stops.append(offset + column.total_compressed_size)
    start, stop = min(starts), max(stops)
    if not 0 <= start <= stop <= size:
        raise ValueError(f"a row group from byte {start} to {stop} of {size}")
    return start, stop


def _digest(updates: pa.Table, schema: Schema) -> Digest:
    hashes = row_base(updates.select(list(schema.names)), schema.ids)
    return Digest.of(hashes, updates.column(DIFF_COLUMN).to_numpy())
