"""Lists of parts as columnar objects: small to keep, quick to search. Pure.

A chunk lists up to `CHUNK_PARTS` parts in one object (`.parts`), their statistics in another
(`.stats`) that is loaded on demand. In memory both stay columns: a shard of 100,000 parts is a
few arrays, and a `Part` is made only for what is left after pruning.

A list of parts that can't be read is damage. Statistics that can't be read rule nothing out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import CorruptionError, invariant
from strandline.model.digest import Digest
from strandline.parts.envelope import checksum, seal, unseal
from strandline.parts.part import CHUNK_PARTS, Chunk, Part
from strandline.parts.prune import stats_rows, stats_table
from strandline.parts.stats import decode_stats, encode_stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.schema import Schema
    from strandline.model.valuehash import U64, Mask
    from strandline.parts.filters import Filter

_COLUMNS = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("checksum", pa.uint64()),
        ("rows", pa.int64()),
        ("digest", pa.binary(24)),
        ("t_min", pa.int64()),
        ("t_max", pa.int64()),
        ("base", pa.bool_()),
        ("level", pa.int32()),
        ("place_lo", pa.uint64()),
        ("place_hi", pa.uint64()),
        ("schema", pa.int32()),
        ("untimed", pa.bool_()),
        ("inserts", pa.bool_()),
        ("footer", pa.uint64()),
    ]
)
"""A durable format: columns are added at the end, never moved or removed."""

_ADDED = {"untimed": False, "inserts": False, "footer": 0}
"""What lists of parts from before there was such a column say in it."""


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk that nobody has put yet: its reference and its two objects."""

    chunk: Chunk
    listing: bytes
    stats: bytes


@dataclass(frozen=True, slots=True)
class PartTable:
    """Parts as columns, in order; optionally with their statistics."""

    columns: pa.Table
    stats: pa.Table | None = None

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    @classmethod
    def of(cls, parts: Sequence[Part], schema: Schema) -> PartTable:
        """Parts as a state lists them, with their statistics."""
        columns = pa.Table.from_arrays(
            [pa.array([getattr(p, f.name) for p in parts], f.type) for f in _COLUMNS],
            schema=_COLUMNS,
        )
        known = [decode_stats(part.stats) for part in parts]
        if not any(known):
            return cls(columns)
        fields = ((field.id, field.type) for field in schema.fields)
        return cls(columns, stats_table(known, [part.rows for part in parts], fields))

    @classmethod
    def concat(cls, tables: Sequence[PartTable]) -> PartTable:
        """All parts of several tables; those without statistics stay so."""
        if not tables:
            return cls(_COLUMNS.empty_table())
        columns = pa.concat_tables([table.columns for table in tables])
        if all(table.stats is None for table in tables):
            return cls(columns)
        stats = [
            pa.table({"rows": table.columns["rows"]}) if table.stats is None else table.stats
            for table in tables
        ]
        return cls(columns, pa.concat_tables(stats, promote_options="permissive"))

    def column(self, name: str) -> U64:
        """A column of numbers, as numpy sees it."""
        found: U64 = self.columns[name].to_numpy()
        return found

    def part(self, at: int) -> Part:
        return self.slice(at, at + 1).parts()[0]

    def parts(self, *, with_stats: bool = False) -> list[Part]:
        """As values; `with_stats` for those who will list them elsewhere."""
        fields = {name: self.columns[name].to_pylist() for name in _COLUMNS.names}
        fields["stats"] = [b""] * len(self)
        if with_stats and self.stats is not None:
            fields["stats"] = [encode_stats(known) for known in stats_rows(self.stats)]
        in_order = [fields[name] for name in Part.__struct_fields__]
        return [Part(*values) for values in zip(*in_order, strict=True)]

    def slice(self, start: int, stop: int) -> PartTable:
        stats = None if self.stats is None else self.stats.slice(start, stop - start)
        return PartTable(self.columns.slice(start, stop - start), stats)

    def select(self, mask: Mask) -> PartTable:
        if mask.all():
            return self
        chosen = pa.array(mask)
        stats = None if self.stats is None else self.stats.filter(chosen)
        return PartTable(self.columns.filter(chosen), stats)

    def touching(self, *, after: int | None = None, until: int | None = None) -> Mask:
        """Which parts may hold updates at times in `(after, until]`; `None` is no limit."""
        mask: Mask = np.ones(len(self), np.bool_)
        if after is not None:
            mask &= self.column("t_max") > after
        if until is not None:
            mask &= self.column("t_min") <= until
        return mask

    def matching(self, wanted: Filter) -> Mask:
        """Which parts may hold a row that a filter wants."""
        if not wanted or self.stats is None:
            return np.ones(len(self), np.bool_)
        return wanted.prune(self.stats)


def chunk_key(shard: str, writer: str, token: str) -> str:
    return f"{shard}/{writer}/{token}.parts"


def encode_chunk(table: PartTable, *, shard: str, key: str) -> EncodedChunk:
    """A chunk and its objects; `shard` is the id of the shard, `key` ends in `.parts`."""
    invariant(0 < len(table) <= CHUNK_PARTS, f"a chunk of {len(table)} parts")
    listing = seal("parts", shard, key, _ipc(table.columns))
    stats_key = "" if table.stats is None else f"{key.removesuffix('.parts')}.stats"
    stats = b"" if table.stats is None else seal("stats", shard, stats_key, _ipc(table.stats))
    total = Digest.ZERO
    for packed in table.columns["digest"].to_pylist():
        total += Digest.unpack(packed)
    chunk = Chunk(
        key=key,
        size=len(listing),
        checksum=checksum(listing),
        parts=len(table),
        rows=int(table.column("rows").sum()),
        part_bytes=int(table.column("size").sum()),
        digest=total.pack(),
        t_min=int(table.column("t_min").min()),
        t_max=int(table.column("t_max").max()),
        place_lo=int(table.column("place_lo").min()),
        place_hi=int(table.column("place_hi").max()),
        stats_key=stats_key,
    )
    return EncodedChunk(chunk, listing, stats)


def decode_chunk(listing: bytes | memoryview, chunk: Chunk, *, shard: str) -> PartTable:
    """The parts of a chunk, without statistics."""
    what = f"part list {chunk.key} of shard {shard}"
    if len(listing) != chunk.size or checksum(listing) != chunk.checksum:
        raise CorruptionError(f"{what} is damaged: its size or checksum does not match")
    _, body = unseal(listing, kind="parts", owner=shard, at=chunk.key, what=what)
    try:
        columns = _with_added(_read_ipc(body)).select(_COLUMNS.names).cast(_COLUMNS)
        columns.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, KeyError, ValueError) as error:
        raise CorruptionError(f"{what} is damaged: {error}") from error
    if columns.num_rows != chunk.parts or any(c.null_count for c in columns.columns):
        raise CorruptionError(f"{what} is damaged: {columns.num_rows} parts, not {chunk.parts}")
    return PartTable(columns)


def add_stats(
    table: PartTable, stats: bytes | memoryview | None, chunk: Chunk, *, shard: str
) -> PartTable:
    """The same parts with their statistics, or as they are if those can't be read."""
    if not stats or not chunk.stats_key:
        return table
    what = f"statistics {chunk.stats_key} of shard {shard}"
    try:
        _, body = unseal(stats, kind="stats", owner=shard, at=chunk.stats_key, what=what)
        columns = _read_ipc(body)
        columns.validate(full=True)
    except (CorruptionError, pa.ArrowException, OSError, EOFError, ValueError):
        return table
    if columns.num_rows != len(table) or "rows" not in columns.column_names:
        return table
    return replace(table, stats=columns)


def _with_added(columns: pa.Table) -> pa.Table:
    for name, value in _ADDED.items():
        if name not in columns.column_names:
            columns = columns.append_column(name, pa.repeat(value, columns.num_rows))
    return columns


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _read_ipc(body: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(body)).read_all()
