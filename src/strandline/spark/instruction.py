"""What tasks are told, and what they answer: structs that travel as bytes, without code. Pure.

    ground     what all tasks of one writer share: the shard, its schema, where parts may lie
    errand     what one task of a range job has to carry out, range after range
    answer     what any task gives back: facts about what it put, or rows if they are few

A ground is an object under the writer's id. A task that does not find it is on a machine that
does not see the store, and says so, instead of putting parts where nobody will look for them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from strandline.parts.envelope import decoded, seal, unseal
from strandline.parts.part import Batch, Part
from strandline.shard.change import pack_schema, unpack_schema

if TYPE_CHECKING:
    from strandline.model.schema import Schema


class Ground(msgspec.Struct, frozen=True, array_like=True):
    """What all tasks of one writer share, under one version of the schema."""

    shard: str
    shard_id: str
    writer: str
    packed: bytes
    """The schema."""
    inline_max: int
    part_rows: int
    part_bytes: int

    @property
    def schema(self) -> Schema:
        return _schema(self.packed)


class Site(msgspec.Struct, frozen=True, array_like=True):
    """Where a task finds its ground: all that its closure carries."""

    url: str
    ground: str
    """The key of the ground's object."""
    cache_folder: str = ""
    cache_bytes: int = 0


class Slice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record batch of a staged object: rows of neighbouring places, in order."""

    place_lo: int
    place_hi: int
    start: int
    stop: int
    rows: int
    checksum: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class Staged(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object of rows that are on their way; it goes once they have arrived."""

    key: str
    schema: bytes
    slices: tuple[Slice, ...]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.slices)


class RangeWork(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The keys at `[place_lo, place_hi]`: what came for them, and where their old rows are."""

    place_lo: int
    place_hi: int
    rows: bytes = b""
    """An Arrow stream, if what came is small."""
    staged: tuple[Staged, ...] = ()
    parts: tuple[Part, ...] = ()
    inline: bytes = b""
    """An Arrow stream of updates that the metadata itself holds."""

    @property
    def weight(self) -> int:
        return len(self.rows) + sum(each.size for each in self.staged)


class Errand(msgspec.Struct, frozen=True, array_like=True):
    """What one task of a range job does: for each range, one after the other."""

    ranges: tuple[RangeWork, ...]
    as_of: int | None
    """The old rows are those as of this time; `None`: there are none."""
    time: int | None = None
    """All that came is at this time; `None`: each row says itself."""
    compare_stored: tuple[str, ...] = ()
    inline_max: int = 0
    """Results of up to so many bytes are given back, larger ones are put."""


class Merge(msgspec.Struct, frozen=True, array_like=True):
    """One unit of compaction, for a task that sees the store's objects alone."""

    reason: str
    parts: tuple[Part, ...]
    inline: tuple[Batch, ...]
    """Batches of inline rows, which take part with their parts left out."""
    base: bool
    halvings: int
    level: int
    since: int
    bytes_max: int
    span: tuple[int, int] | None = None
    """If given, only what lies at its places, from the first to the last."""


class Counts(msgspec.Struct, frozen=True, array_like=True):
    """What came of rows."""

    upserted: int = 0
    deleted: int = 0
    unchanged: int = 0
    late: int = 0
    superseded: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            *(
                one + two
                for one, two in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True
                )
            )
        )


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a task gives back."""

    parts: tuple[Part, ...] = ()
    digests: tuple[tuple[int, bytes], ...] = ()
    """By time, of the rows in `parts`."""
    rows: bytes = b""
    """An Arrow stream, if it is small."""
    staged: tuple[Staged, ...] = ()
    counts: Counts = Counts()
    rows_in: int = 0
    bytes_in: int = 0
    number: int = 0
    """Of what it was told, where tasks are told by number."""


_grounds = msgspec.msgpack.Decoder(Ground)
_errands = msgspec.msgpack.Decoder(Errand)
_answers = msgspec.msgpack.Decoder(Answer)
_encoder = msgspec.msgpack.Encoder()


def make_ground(
    schema: Schema, *, shard: tuple[str, str], writer: str, limits: tuple[int, int, int]
) -> Ground:
    """`shard` is its name and id, `limits` are for inline bytes, and a part's rows and bytes."""
    return Ground(*shard, writer, pack_schema(schema), *limits)


def encode_ground(ground: Ground, key: str) -> bytes:
    return seal("ground", ground.shard_id, key, _encoder.encode(ground))


def decode_ground(encoded: bytes | memoryview, key: str) -> Ground:
    what = f"the ground {key} of a task"
    owner, body = unseal(encoded, kind="ground", owner=None, at=key, what=what)
    return decoded(_grounds, body, f"{what} of shard {owner}")


def encode_errand(errand: Errand, shard_id: str) -> bytes:
    return seal("errand", shard_id, "", _encoder.encode(errand))


def decode_errand(encoded: bytes, shard_id: str) -> Errand:
    _, body = unseal(encoded, kind="errand", owner=shard_id, at="", what="a task's errand")
    return decoded(_errands, body, "a task's errand")


def encode_answer(answer: Answer, shard_id: str) -> bytes:
    return seal("answer", shard_id, "", _encoder.encode(answer))


def decode_answer(encoded: bytes, shard_id: str) -> Answer:
    _, body = unseal(encoded, kind="answer", owner=shard_id, at="", what="a task's answer")
    return decoded(_answers, body, "a task's answer")


@lru_cache(maxsize=64)
def _schema(packed: bytes) -> Schema:
    return unpack_schema(packed)
