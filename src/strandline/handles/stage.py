"""Puts the rows of an append where they stay, before it is known whether the append counts.

A few rows stay inline; more become parts, and more parts than a state should list become
chunks. Everything lies under the writer's own id, so what an append that never counted leaves
behind is found by its name.

A put of unknown fate is not repeated under its key: the object is made again under a new one,
and the old key, which nothing refers to, is an orphan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from strandline.errors import BoundsError, MaybeAppliedError, StoreError
from strandline.handles.parallel import run_all
from strandline.parts.build import Built, build_delta, part_key
from strandline.parts.chunk import EncodedChunk, PartTable, chunk_key, encode_chunk
from strandline.parts.inline import encode_inline
from strandline.parts.layout import cut, lay_out
from strandline.parts.parquet import Owner
from strandline.parts.part import CHUNK_PARTS, Batch, Chunk, Part
from strandline.shard.env import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.model.digest import Digest
    from strandline.model.frontier import Frontier, Time
    from strandline.parts.layout import Laid
    from strandline.parts.rows import Checked
    from strandline.shard.env import Env
    from strandline.shard.state import State

TIMES_MAX = 100_000
"""The most times with rows in one append: each is remembered by itself."""

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class Prepared:
    """An append whose rows are durable and which may be committed, once or not at all."""

    writer: str
    token: str
    lower: Time
    upper: Frontier
    batch: Batch | None
    digests: dict[Time, Digest]
    objects: tuple[str, ...] = ()
    """Everything that was put for it."""

    @property
    def rows(self) -> int:
        return 0 if self.batch is None else self.batch.rows


class Stage:
    """Where one writer puts things."""

    def __init__(self, env: Env, name: str, writer: str) -> None:
        self._env = env
        self._name = name
        self._writer = writer

    def prepare(
        self, checked: Checked, state: State, *, lower: Time, upper: Frontier, epoch: int = 0
    ) -> Prepared:
        """Make the rows durable; returns when they are."""
        token = self._env.random.token()
        if not checked.digests:
            return Prepared(self._writer, token, lower, upper, None, {})
        self.check_count(len(checked.digests))
        # A closed shard has no last time, so its last batch ends after its last row.
        end = max(checked.digests) + 1 if upper.time is None else upper.time
        batch = self._inline(checked, state, Batch(lower, end, epoch=epoch))
        objects: tuple[str, ...] = ()
        if batch is None:
            parts = self._put_parts(checked, state)
            chunks, objects = self.put_chunks(parts, state)
            objects = (*(part.key for part in parts), *objects)
            listed = () if chunks else tuple(parts)
            batch = Batch(lower, end, parts=listed, chunks=chunks, epoch=epoch)
        return Prepared(self._writer, token, lower, upper, batch, checked.digests, objects)

    def check_count(self, times: int) -> None:
        """Refuse an append that has rows at more times than one record should list."""
        if times > TIMES_MAX:
            raise BoundsError(
                f"shard {self._name}: an append may have rows at {TIMES_MAX} times, this one has "
                f"them at {times}: append it in several steps"
            )

    def put_chunks(
        self, parts: Sequence[Part], state: State
    ) -> tuple[tuple[Chunk, ...], tuple[str, ...]]:
        """Chunks for a list of parts and the keys of their objects; none if it is short."""
        if len(parts) <= self._env.settings.listed_parts:
            return (), ()
        table = PartTable.of(parts, state.schema)
        chunks: list[Chunk] = []
        objects: list[str] = []
        for start in range(0, len(parts), CHUNK_PARTS):
            chunk = self._put_chunk(table.slice(start, start + CHUNK_PARTS), state.id)
            chunks.append(chunk)
            objects += [key for key in (chunk.key, chunk.stats_key) if key]
        return tuple(chunks), tuple(objects)

    def discard(self, prepared: Prepared) -> None:
        """Delete what was put for an append that certainly does not count and never will."""
        for key in prepared.objects:
            try:
                self._env.blob.delete(key)
            except StoreError:
                # It stays an orphan under this writer's id, which the collector finds.
                self._env.metrics.add("retries", self._name)

    def _inline(self, checked: Checked, state: State, empty: Batch) -> Batch | None:
        """A batch of inline rows, if they are few, and few wait to be moved into parts."""
        settings = self._env.settings
        if checked.updates.nbytes > 2 * settings.inline_max_bytes:
            return None
        inline = encode_inline(checked)
        if inline is None or len(inline.payload) > settings.inline_max_bytes:
            return None
        if state.inline_bytes() + len(inline.payload) > settings.inline_total_bytes:
            return None
        return Batch(empty.lower, empty.upper, inline=inline, epoch=empty.epoch)

    def _put_parts(self, checked: Checked, state: State) -> list[Part]:
        settings = self._env.settings
        laid = lay_out(checked.updates, checked.schema)
        pieces = cut(laid, rows_max=settings.part_target_rows, bytes_max=settings.part_target_bytes)
        jobs = [self._part_job(piece, checked, state) for piece in pieces]
        return run_all(self._env.tasks, f"append {self._name}", jobs, settings.fetch_concurrency)

    def _part_job(self, piece: Laid, checked: Checked, state: State) -> Callable[[], Part]:
        return lambda: self._put_part(piece, checked, state.id)

    def _put_part(self, piece: Laid, checked: Checked, shard: str) -> Part:
        # Without a key nothing moved, but a piece does not know where it starts.
        hashes = None if piece.order is None else checked.hashes[piece.order]
        if piece.updates.num_rows == checked.updates.num_rows and piece.order is None:
            hashes = checked.hashes

        def make(token: str) -> Built:
            owner = Owner(shard, part_key(shard, self._writer, token))
            return build_delta(piece, checked.schema, owner, hashes=hashes)

        def put(built: Built) -> None:
            self._env.blob.put(built.part.key, built.encoded)

        built = self._put_new(make, put)
        self._env.metrics.add("parts_written", self._name)
        self._env.metrics.add("bytes_written", self._name, built.part.size)
        return built.part

    def _put_chunk(self, table: PartTable, shard: str) -> Chunk:
        def make(token: str) -> EncodedChunk:
            return encode_chunk(table, shard=shard, key=chunk_key(shard, self._writer, token))

        def put(made: EncodedChunk) -> None:
            if made.stats:
                self._env.blob.put(made.chunk.stats_key, made.stats)
            self._env.blob.put(made.chunk.key, made.listing)

        return self._put_new(make, put).chunk

    def _put_new(self, make: Callable[[str], _Made], put: Callable[[_Made], None]) -> _Made:
        """Make and put an object; again with a new name if it is not known whether it is there."""
        env = self._env
        deadline = env.clock.monotonic_ms() + env.settings.commit_deadline_ms
        for pause_ms in PATIENCE.delays(env.random):
            made = make(env.random.token())
            try:
                env.insistent(lambda made=made: put(made), shard=self._name)  # type: ignore[misc]
            except MaybeAppliedError:
                if env.clock.monotonic_ms() >= deadline:
                    raise
                env.metrics.add("doubts", self._name)
                env.tasks.sleep(pause_ms)
            else:
                return made
        raise AssertionError("delays have no end")
