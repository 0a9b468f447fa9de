"""What travels comes back the same, and nothing else is taken for it."""

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.model.schema import Schema
from strandline.spark.instruction import (
    Answer,
    Counts,
    Errand,
    RangeWork,
    Slice,
    Staged,
    decode_answer,
    decode_errand,
    decode_ground,
    encode_answer,
    encode_errand,
    encode_ground,
    make_ground,
)

SHARD, OTHER = "s" + "0" * 32, "s" + "1" * 32
SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))
STAGED = Staged("a/b/c.rows", b"schema", (Slice(1, 2**64 - 1, 0, 10, 3, 99),))


def test_a_ground_comes_back_with_its_schema():
    ground = make_ground(SCHEMA, shard=("t", SHARD), writer="w", limits=(1, 2, 3))
    found = decode_ground(encode_ground(ground, "a/b.ground"), "a/b.ground")
    assert found == ground
    assert found.schema == SCHEMA
    with pytest.raises(CorruptionError):
        decode_ground(encode_ground(ground, "a/b.ground"), "a/c.ground")


def test_an_errand_comes_back_and_only_for_its_shard():
    work = RangeWork(0, 2**64 - 1, b"rows", (STAGED,), (), b"inline")
    errand = Errand((work,), 7, time=8, compare_stored=("v",), inline_max=5)
    encoded = encode_errand(errand, SHARD)
    assert decode_errand(encoded, SHARD) == errand
    with pytest.raises(CorruptionError):
        decode_errand(encoded, OTHER)
    assert work.weight == 4 + 10


def test_an_answer_comes_back_and_damage_is_noticed():
    answer = Answer(digests=((3, b"x"),), rows=b"r", staged=(STAGED,), counts=Counts(1, 2, 3))
    encoded = encode_answer(answer, SHARD)
    assert decode_answer(encoded, SHARD) == answer
    with pytest.raises(CorruptionError):
        decode_answer(encoded[:-1], SHARD)


def test_counts_add_up():
    assert Counts(1, 2, 3, 4, 5) + Counts(10, 20, 30, 40, 50) == Counts(11, 22, 33, 44, 55)
