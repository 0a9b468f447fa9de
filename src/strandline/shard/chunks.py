"""Loads the lists of parts that a state refers to, each of them once.

Chunks never change, so what was loaded stays right; the newest few are kept. A chunk that is
missing although a pin holds it is damage; statistics that are missing rule nothing out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import CorruptionError
from strandline.parts.chunk import add_stats, decode_chunk

if TYPE_CHECKING:
    from strandline.parts.chunk import PartTable
    from strandline.parts.part import Chunk
    from strandline.shard.env import Env

_KEPT = 64
"""A quarter of a million parts."""


class Chunks:
    """The part lists of one shard that this process has loaded. Any task may use it."""

    def __init__(self, env: Env, shard: str) -> None:
        self._env = env
        self._shard = shard
        self._kept: dict[str, PartTable] = {}
        self._guard = env.tasks.condition()

    def table(self, chunk: Chunk, *, shard_id: str, stats: bool) -> PartTable:
        """The parts of a chunk, with their statistics if they are asked for."""
        with self._guard:
            found = self._kept.get(chunk.key)
        if found is None:
            found = self._load(chunk, shard_id)
        if stats and found.stats is None and chunk.stats_key:
            found = self._load_stats(found, chunk, shard_id)
        with self._guard:
            self._kept.pop(chunk.key, None)
            self._kept[chunk.key] = found
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return found

    def _load(self, chunk: Chunk, shard_id: str) -> PartTable:
        listing = self._env.patient(lambda: self._env.blob.get(chunk.key), shard=self._shard)
        if listing is None:
            raise CorruptionError(
                f"shard {self._shard}: part list {chunk.key} is missing; run `strandline fsck`"
            )
        return decode_chunk(listing, chunk, shard=shard_id)

    def _load_stats(self, table: PartTable, chunk: Chunk, shard_id: str) -> PartTable:
        stats = self._env.patient(lambda: self._env.blob.get(chunk.stats_key), shard=self._shard)
        return add_stats(table, stats, chunk, shard=shard_id)
