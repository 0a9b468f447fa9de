"""Reads a part one row group at a time, so that many large ones can be merged at once.

A small part is fetched whole and checked by its checksum. Of a large one only the footer and
then the bytes of one row group after another are fetched; its checksum would need all of them
at once, so its rows are digested on the way and must add up to the digest that the state has.

Whoever wants a span of places alone gets the groups that touch it, each proven by its own
checksum, and without what lies beyond. A part of an old version has none: it is read to its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.index import TAIL_BYTES, decode_group, read_index, tail_length
from strandline.parts.layout import lay_out
from strandline.parts.parquet import Owner, corrupt, decode_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.model.schema import Schema
    from strandline.parts.part import Part
    from strandline.shard.env import Env

WHOLE_BYTES = 8 * 1024 * 1024
"""Parts up to this size are fetched at once."""


class PartGroups:
    """The updates of one part as rows of today's schema, in order, a row group at a time."""

    def __init__(self, env: Env, part: Part, schema: Schema, *, shard: str, shard_id: str) -> None:
        self._env = env
        self._part = part
        self._schema = schema
        self._shard = shard
        self._owner = Owner(shard_id, part.key)

    def tables(self, span: tuple[int, int] | None = None) -> Iterator[pa.Table]:
        """All of them, or with a `span` what lies at the places from its first to its last."""
        if self._part.size <= WHOLE_BYTES:
            whole = self._whole()
            yield whole if span is None else self._trimmed(whole, span)
        else:
            yield from self._grouped(span)

    def _whole(self) -> pa.Table:
        blob = self._env.blob
        encoded = self._env.patient(lambda: blob.get(self._part.key), shard=self._shard)
        if encoded is None:
            raise self._missing()
        self._env.metrics.add("parts_read", self._shard)
        self._env.metrics.add("bytes_read", self._shard, len(encoded))
        return decode_part(encoded, self._part, self._schema, owner=self._owner)

    def _grouped(self, span: tuple[int, int] | None) -> Iterator[pa.Table]:
        part, schema, owner = self._part, self._schema, self._owner
        self._env.metrics.add("parts_read", self._shard)
        index = read_index(self._tail(), part, owner)
        total = Digest.ZERO
        wanted = range(len(index)) if span is None else index.groups_within(*span)
        to_the_end = span is None or not index.proven
        for group in range(len(index)) if to_the_end else wanted:
            start, stop = int(index.starts[group]), int(index.stops[group])
            content = self._fetch(start, stop - start)
            table = decode_group(index, group, content, part, schema, owner)
            if to_the_end:
                total += _digest(table, schema)
            if group in wanted:
                yield table if span is None else self._trimmed(table, span)
        if to_the_end and total != part.total:
            raise corrupt(part, owner, "its rows do not add up to its digest")

    def _trimmed(self, table: pa.Table, span: tuple[int, int]) -> pa.Table:
        return lay_out(table, self._schema).between(*span).updates

    def _tail(self) -> bytes:
        size = self._part.size
        tail = self._fetch(max(0, size - TAIL_BYTES), min(size, TAIL_BYTES))
        length = tail_length(tail, self._part, self._owner)
        return tail if length <= len(tail) else self._fetch(size - length, length)

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


def _digest(updates: pa.Table, schema: Schema) -> Digest:
    hashes = row_base(updates.select(list(schema.names)), schema.ids)
    return Digest.of(hashes, updates.column(DIFF_COLUMN).to_numpy())
