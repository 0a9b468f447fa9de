"""What a shard's rows are stored in: parts, chunks of parts, and batches of both.

A **part** is one Parquet object. A **base** part holds live rows only, each as often as it
occurs, as of the time `t_min`; it has no `_time` and no `_diff` column, so that any Parquet
reader can read it. Every other part is a **delta** and carries both columns, but an **untimed**
one has no `_time`: all its updates are at `t_min`, which only the metadata says. So an append that
lost a race is moved to another time without its parts being written again.

A **chunk** is a list of up to `CHUNK_PARTS` parts, stored as one columnar object, so that a
state which refers to 100,000 parts stays small. A **batch** is the updates of `[lower, upper)`:

    rows(batch) == rows(inline) + rows(parts) + rows(parts of chunks)

These structs are a durable format: fields are appended, never moved or removed.
"""

from __future__ import annotations

import msgspec

from strandline.errors import invariant
from strandline.model.digest import Digest

CHUNK_PARTS = 4096
"""The most parts a chunk lists; a change to one part rewrites at most one chunk."""

PLACE_MAX = 2**64 - 1


class Part(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One Parquet object of a shard, and the facts needed to prune and to verify it."""

    key: str
    size: int
    checksum: int
    """xxh3-64 of the object's bytes."""
    rows: int
    digest: bytes
    """The packed multiset digest of its updates."""
    t_min: int
    t_max: int
    base: bool
    level: int
    place_lo: int
    place_hi: int
    """Both inclusive: where its keys lie, by the leading bits of their hash."""
    schema: int
    """The version of the schema it was written under."""
    stats: bytes = b""
    """Minima and maxima by field id, encoded; empty if there are none."""
    untimed: bool = False
    """Whether the object has no `_time` column; then `t_min == t_max` is the time of all."""
    inserts: bool = False
    """Whether every update is known to insert one row; of base parts that always holds."""
    footer: int = 0
    """xxh3-64 of the object's footer, to its end; 0 if not known, as of parts of old versions."""

    @property
    def total(self) -> Digest:
        return Digest.unpack(self.digest)

    @property
    def only_inserts(self) -> bool:
        return self.base or self.inserts


def restamped_part(part: Part, time: int) -> Part:
    """The same untimed part with all its updates at another time; its object stays as it is."""
    invariant(part.untimed, f"part {part.key} has its own times")
    return msgspec.structs.replace(part, t_min=time, t_max=time)


class Chunk(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reference to a columnar object that lists parts, with what all of them add up to."""

    key: str
    size: int
    checksum: int
    parts: int
    rows: int
    part_bytes: int
    digest: bytes
    t_min: int
    t_max: int
    place_lo: int
    place_hi: int
    stats_key: str = ""
    """The object with the statistics of these parts; empty if there are none."""

    @property
    def total(self) -> Digest:
        return Digest.unpack(self.digest)


class Inline(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A few rows kept in the metadata itself, as one Arrow record batch without its schema."""

    rows: int
    payload: bytes
    digest: bytes
    t_min: int
    t_max: int
    schema: int

    @property
    def total(self) -> Digest:
        return Digest.unpack(self.digest)


class Batch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The updates of a shard in `[lower, upper)`; never without rows.

    Times between two batches have no rows, so nothing is stored for them.
    """

    lower: int
    upper: int
    parts: tuple[Part, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    inline: Inline | None = None
    epoch: int = 0
    """The epoch of the owner that appended it; 0 for independent writers."""

    @property
    def total(self) -> Digest:
        total = Digest.ZERO if self.inline is None else self.inline.total
        for piece in self.parts:
            total = total + piece.total
        for chunk in self.chunks:
            total = total + chunk.total
        return total

    @property
    def rows(self) -> int:
        inline = 0 if self.inline is None else self.inline.rows
        return inline + sum(p.rows for p in self.parts) + sum(c.rows for c in self.chunks)

    @property
    def part_count(self) -> int:
        return len(self.parts) + sum(c.parts for c in self.chunks)

    def object_keys(self) -> tuple[str, ...]:
        """The objects it names itself; parts listed in chunks are not among them."""
        return (*(p.key for p in self.parts), *(k for c in self.chunks for k in chunk_keys(c)))


def chunk_keys(chunk: Chunk) -> tuple[str, ...]:
    return (chunk.key, chunk.stats_key) if chunk.stats_key else (chunk.key,)
