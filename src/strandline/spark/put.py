"""Puts what tasks make, under the writer's id, with names that no other attempt has.

What an attempt leaves behind that did not count is an orphan under the writer's id. A put whose
fate is unknown is repeated under a new name, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from strandline.errors import MaybeAppliedError, NotAppliedError
from strandline.parts.build import build_delta, part_key
from strandline.parts.layout import cut, lay_out
from strandline.parts.parquet import Owner
from strandline.spark import slices
from strandline.spark.instruction import Staged
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from strandline.model.clock import Random
    from strandline.model.valuehash import U64
    from strandline.parts.layout import Laid
    from strandline.parts.part import Part
    from strandline.spark.instruction import Ground
    from strandline.store.blob import Blob

SCRATCH = frozenset(("errands", "ground", "rows", "works"))
"""Kinds of objects that jobs alone read: nothing that is committed ever refers to one."""
_PATIENCE = Backoff(first_ms=5, factor=2.0, cap_ms=1_000)
_ATTEMPTS = 8

_Got = TypeVar("_Got")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where one task, or the driver, works: the blob, and the ground it stands on."""

    ground: Ground
    blob: Blob
    random: Random
    sleep: Callable[[float], None]
    """Takes milliseconds."""

    def put_updates(
        self, updates: pa.Table, *, untimed: bool, hashes: U64 | None = None
    ) -> list[Part]:
        """Updates as parts; `untimed` ones are all at one time, which only their facts tell.

        `hashes` are the row hashes of the updates, if they are known.
        """
        laid = lay_out(updates, self.ground.schema)
        if hashes is not None and laid.order is not None:
            hashes = hashes[laid.order]
        parts: list[Part] = []
        start = 0
        for piece in cut(laid, rows_max=self.ground.part_rows, bytes_max=self.ground.part_bytes):
            stop = start + piece.updates.num_rows
            known = None if hashes is None else hashes[start:stop]
            parts.append(self._put_part(piece, known, untimed=untimed))
            start = stop
        return parts

    def put_rows(self, table: pa.Table, places: U64) -> Staged:
        """Rows in order of `places`, as an object of slices."""
        described, encoded = slices.stage(table, places)
        key = self.put_object(encoded, "rows")
        return Staged(key, described.schema, described.slices)

    def put_object(self, encoded: bytes, kind: str) -> str:
        """Any bytes; their key."""

        def attempt() -> str:
            key = self.new_key(kind)
            self.blob.put(key, encoded)
            return key

        return self.patient(attempt)

    def new_key(self, kind: str) -> str:
        return f"{self.ground.shard_id}/{self.ground.writer}/{self.random.token()}.{kind}"

    def unstaged(self, staged: Staged) -> list[pa.RecordBatch]:
        """The rows of staged slices; slices that lie side by side are one read."""
        batches = []
        for run in slices.runs(staged.slices):
            start, length = run[0].start, run[-1].stop - run[0].start
            batches += slices.unstage(staged, run, self.get_range(staged.key, start, length))
        return batches

    def patient(self, call: Callable[[], _Got]) -> _Got:
        """Repeat a call that may be repeated, for some seconds; then Spark repeats the task."""
        for attempt in range(_ATTEMPTS):
            try:
                return call()
            except (NotAppliedError, MaybeAppliedError):
                self.sleep(_PATIENCE.delay(attempt, self.random.uniform))
        return call()

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return self.patient(lambda: self.blob.get_range(key, start, length))

    def _put_part(self, piece: Laid, hashes: U64 | None, *, untimed: bool) -> Part:
        ground = self.ground

        def attempt() -> Part:
            key = part_key(ground.shard_id, ground.writer, self.random.token())
            owner = Owner(ground.shard_id, key)
            built = build_delta(piece, ground.schema, owner, hashes=hashes, untimed=untimed)
            self.blob.put(key, built.encoded)
            return built.part

        return self.patient(attempt)
