"""What a batch adds up to, and which objects it names."""

from __future__ import annotations

import msgspec
import pytest

from strandline.errors import CorruptionError, InvariantError
from strandline.model.digest import Digest
from strandline.parts.part import (
    CHUNK_PARTS,
    PLACE_MAX,
    Batch,
    Chunk,
    Inline,
    Part,
    chunk_keys,
    restamped_part,
)
from strandline.testing import toy

A = [(1, 0, 1), (2, 0, 1)]
B = [(3, 1, 1)]
C = [(4, 2, -1)]


def _chunk(key: str, stats_key: str = "") -> Chunk:
    return Chunk(
        key=key,
        size=10,
        checksum=1,
        parts=3,
        rows=1,
        part_bytes=300,
        digest=toy.digest_of(C).pack(),
        t_min=2,
        t_max=2,
        place_lo=0,
        place_hi=PLACE_MAX,
        stats_key=stats_key,
    )


@pytest.mark.parametrize(
    ("batch", "updates", "rows", "parts", "keys"),
    [
        pytest.param(Batch(0, 3), [], 0, 0, (), id="nothing"),
        pytest.param(Batch(0, 3, inline=toy.toy_inline(A)), A, 2, 0, (), id="inline"),
        pytest.param(Batch(0, 3, parts=(toy.toy_part("p", A),)), A, 2, 1, ("p",), id="a part"),
        pytest.param(Batch(0, 3, chunks=(_chunk("c"),)), C, 1, 3, ("c",), id="a chunk"),
        pytest.param(
            Batch(0, 3, (toy.toy_part("p", A),), (_chunk("c", "s"),), toy.toy_inline(B)),
            A + B + C,
            4,
            4,
            ("p", "c", "s"),
            id="all of them",
        ),
    ],
)
def test_a_batch_is_the_sum_of_its_pieces(batch, updates, rows, parts, keys):
    assert batch.total == toy.digest_of(updates)
    assert batch.rows == rows
    assert batch.part_count == parts
    assert batch.object_keys() == keys


def test_a_chunk_names_its_statistics_only_if_it_has_them():
    assert chunk_keys(_chunk("c")) == ("c",)
    assert chunk_keys(_chunk("c", "s")) == ("c", "s")


def test_pieces_know_their_totals():
    assert toy.toy_part("p", A).total == toy.digest_of(A)
    assert toy.toy_inline(B).total == toy.digest_of(B)
    assert _chunk("c").total == toy.digest_of(C)
    assert Batch(0, 1).total == Digest.ZERO


def test_a_digest_of_the_wrong_length_is_damage():
    with pytest.raises(CorruptionError):
        _ = msgspec.structs.replace(toy.toy_part("p", A), digest=b"short").total


def test_the_fields_of_a_durable_struct_only_grow_at_the_end():
    """They are stored by position: another order would read old bytes wrongly."""
    assert Part.__struct_fields__[:16] == (
        *("key", "size", "checksum", "rows", "digest", "t_min", "t_max"),
        *("base", "level", "place_lo", "place_hi", "schema", "stats"),
        *("untimed", "inserts", "footer"),
    )
    assert Chunk.__struct_fields__[:12] == (
        *("key", "size", "checksum", "parts", "rows", "part_bytes", "digest"),
        *("t_min", "t_max", "place_lo", "place_hi", "stats_key"),
    )
    inline = ("rows", "payload", "digest", "t_min", "t_max", "schema")
    assert Inline.__struct_fields__[:6] == inline
    batch = ("lower", "upper", "parts", "chunks", "inline", "epoch")
    assert Batch.__struct_fields__[:6] == batch
    assert CHUNK_PARTS == 4096


def test_a_restamped_part_differs_in_its_time_alone():
    part = Part("k", 1, 2, 3, b"", 5, 5, False, 0, 0, PLACE_MAX, 1, untimed=True, footer=9)
    moved = restamped_part(part, 8)
    assert moved == msgspec.structs.replace(part, t_min=8, t_max=8)
    with pytest.raises(InvariantError, match="its own times"):
        restamped_part(msgspec.structs.replace(part, untimed=False), 8)
