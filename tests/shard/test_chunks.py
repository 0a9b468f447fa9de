"""Loading lists of parts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.parts.chunk import EncodedChunk, PartTable, encode_chunk
from strandline.parts.part import PLACE_MAX, Part
from strandline.parts.stats import encode_stats, measure
from strandline.shard.chunks import Chunks
from strandline.testing.lab import Lab

SCHEMA = Schema.create(pa.schema([("id", pa.int64())]), ["id"])
SHARD = "s" + "0" * 32


def _chunk(lab: Lab, token: str = "x") -> EncodedChunk:
    stats = encode_stats(measure([(1, pa.array([1, 2]))], 2))
    zero = Digest.ZERO.pack()
    part = Part("s/w/p.parquet", 1, 1, 2, zero, 3, 5, False, 0, 0, PLACE_MAX, 1, stats)
    made = encode_chunk(PartTable.of([part], SCHEMA), shard=SHARD, key=f"s/w/{token}.parts")
    lab.blob.put(made.chunk.key, made.listing)
    lab.blob.put(made.chunk.stats_key, made.stats)
    return made


def test_a_list_is_loaded_once_and_its_statistics_when_they_are_asked_for(lab: Lab) -> None:
    made = _chunk(lab)
    chunks = Chunks(lab.env(), "orders")
    assert chunks.table(made.chunk, shard_id=SHARD, stats=False).stats is None
    lab.blob.delete(made.chunk.key)
    assert chunks.table(made.chunk, shard_id=SHARD, stats=True).stats is not None
    lab.blob.delete(made.chunk.stats_key)
    assert chunks.table(made.chunk, shard_id=SHARD, stats=True).stats is not None
    assert len(chunks.table(made.chunk, shard_id=SHARD, stats=False)) == 1


def test_a_missing_list_is_damage_and_missing_statistics_are_not(lab: Lab) -> None:
    made = _chunk(lab)
    lab.blob.delete(made.chunk.stats_key)
    chunks = Chunks(lab.env(), "orders")
    assert chunks.table(made.chunk, shard_id=SHARD, stats=True).stats is None
    lab.blob.delete(made.chunk.key)
    with pytest.raises(CorruptionError, match=f"{made.chunk.key} is missing"):
        Chunks(lab.env(), "orders").table(made.chunk, shard_id=SHARD, stats=False)


def test_only_the_newest_lists_are_kept(lab: Lab) -> None:
    chunks = Chunks(lab.env(), "orders")
    made = [_chunk(lab, f"t{number}") for number in range(70)]
    for each in made:
        chunks.table(each.chunk, shard_id=SHARD, stats=False)
        lab.blob.delete(each.chunk.key)
    chunks.table(made[-1].chunk, shard_id=SHARD, stats=False)
    with pytest.raises(CorruptionError):
        chunks.table(made[0].chunk, shard_id=SHARD, stats=False)
