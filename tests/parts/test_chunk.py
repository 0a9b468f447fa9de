"""Lists of parts as columnar objects."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from strandline.errors import CorruptionError, InvariantError, NewerFormatError
from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.parts.chunk import (
    EncodedChunk,
    PartTable,
    add_stats,
    chunk_key,
    decode_chunk,
    encode_chunk,
)
from strandline.parts.envelope import checksum
from strandline.parts.filters import parse_filter
from strandline.parts.part import CHUNK_PARTS, PLACE_MAX, Chunk, Part
from strandline.parts.stats import Range, Stats, encode_stats

SCHEMA = Schema.create(pa.schema([("k", pa.int64()), ("v", pa.string())]), ("k",))
FIRST = Path(__file__).parent.parent / "golden" / "first"
SHARD = "s" + "0" * 32
KEY = chunk_key(SHARD, "w" + "1" * 32, "2" * 32)


def part(n: int, *, stats: bool = True) -> Part:
    known = Stats(10, {1: Range("i", n * 10, n * 10 + 9, 0), 2: Range("s", b"a", b"b", 3)})
    return Part(
        key=f"{SHARD}/w{'1' * 32}/{n:032x}.parquet",
        size=100 + n,
        checksum=2**64 - 1 - n,
        rows=10,
        digest=Digest(10, n, 2**64 - 1).pack(),
        t_min=n,
        t_max=n + 2,
        base=n % 2 == 0,
        level=n % 3,
        place_lo=n << 50,
        place_hi=PLACE_MAX - n,
        schema=1,
        stats=encode_stats(known) if stats else b"",
        untimed=n % 5 == 0,
        inserts=n % 2 == 0,
        footer=2**64 - 9 + n % 2,
    )


PARTS = [part(n) for n in range(20)]


def encoded() -> EncodedChunk:
    return encode_chunk(PartTable.of(PARTS, SCHEMA), shard=SHARD, key=KEY)


def decoded() -> PartTable:
    made = encoded()
    table = decode_chunk(made.listing, made.chunk, shard=SHARD)
    return add_stats(table, made.stats, made.chunk, shard=SHARD)


def bare(parts: list[Part]) -> list[Part]:
    return [msgspec.structs.replace(each, stats=b"") for each in parts]


def test_parts_come_back_as_they_were_with_and_without_statistics():
    assert decoded().parts() == bare(PARTS)
    assert decoded().parts(with_stats=True) == PARTS
    assert decoded().part(7) == bare(PARTS)[7]
    assert len(decoded()) == 20


def test_a_list_from_before_parts_had_indexes_is_read():
    chunk = msgspec.msgpack.decode((FIRST / "chunk.bin").read_bytes(), type=Chunk)
    found = decode_chunk((FIRST / "chunk.parts").read_bytes(), chunk, shard=SHARD).parts()
    since_then = {"untimed": False, "inserts": False, "footer": 0}
    assert found == [msgspec.structs.replace(each, **since_then) for each in bare(PARTS)]


def test_a_chunk_adds_up_what_it_lists():
    chunk = encoded().chunk
    total = Digest.ZERO
    for each in PARTS:
        total += each.total
    assert chunk.total == total
    assert (chunk.parts, chunk.rows, chunk.part_bytes) == (20, 200, sum(p.size for p in PARTS))
    assert (chunk.t_min, chunk.t_max) == (0, 21)
    assert (chunk.place_lo, chunk.place_hi) == (0, PLACE_MAX)
    assert chunk.stats_key == KEY.replace(".parts", ".stats")


def test_parts_without_statistics_have_no_statistics_object():
    made = encode_chunk(PartTable.of([part(1, stats=False)], SCHEMA), shard=SHARD, key=KEY)
    assert (made.chunk.stats_key, made.stats) == ("", b"")
    table = decode_chunk(made.listing, made.chunk, shard=SHARD)
    assert table.matching(parse_filter([("k", "=", 1)], SCHEMA)).all()


def test_parts_are_found_by_time_and_by_value():
    table = decoded()
    assert table.touching().all()
    assert table.touching(after=20).tolist() == [n + 2 > 20 for n in range(20)]
    assert table.touching(until=3).tolist() == [n <= 3 for n in range(20)]
    wanted = parse_filter([("k", "in", [15, 42])], SCHEMA)
    chosen = table.select(table.matching(wanted) & table.touching(until=3))
    assert [p.t_min for p in chosen.parts()] == [1]
    assert chosen.parts(with_stats=True) == [PARTS[1]]
    assert table.select(table.matching(parse_filter(None, SCHEMA))) is table


def test_tables_are_joined_with_what_is_known_of_each():
    joined = PartTable.concat(
        [PartTable.of(PARTS[:2], SCHEMA), PartTable.of([part(5, stats=False)], SCHEMA)]
    )
    assert joined.matching(parse_filter([("k", "=", 15)], SCHEMA)).tolist() == [False, True, True]
    assert len(PartTable.concat([])) == 0
    without = PartTable.concat([PartTable.of([part(5, stats=False)], SCHEMA)])
    assert without.stats is None


@pytest.mark.parametrize("count", [0, CHUNK_PARTS + 1])
def test_a_chunk_is_neither_empty_nor_too_large(count: int):
    table = PartTable.of([part(1, stats=False)] * count, SCHEMA)
    with pytest.raises(InvariantError):
        encode_chunk(table, shard=SHARD, key=KEY)


def test_every_flip_and_cut_of_a_listing_is_reported():
    made = encoded()
    for at in range(0, len(made.listing), 7):
        flipped = bytearray(made.listing)
        flipped[at] ^= 16
        for damaged in (bytes(flipped), made.listing[:at]):
            with pytest.raises(CorruptionError, match=KEY):
                decode_chunk(damaged, made.chunk, shard=SHARD)


def test_damage_that_fits_its_checksum_is_reported_too():
    made = encoded()
    for at in range(0, len(made.listing), 7):
        flipped = bytearray(made.listing)
        flipped[at] ^= 16
        damaged = bytes(flipped)
        forged = msgspec.structs.replace(made.chunk, checksum=checksum(damaged))
        with pytest.raises((CorruptionError, NewerFormatError)):
            decode_chunk(damaged, forged, shard=SHARD)


def test_x17_a_listing_of_another_shard_is_refused():
    made = encoded()
    with pytest.raises(CorruptionError, match="not what it should be"):
        decode_chunk(made.listing, made.chunk, shard="s" + "9" * 32)


def test_a_listing_of_another_length_is_refused():
    made = encoded()
    with pytest.raises(CorruptionError, match="20 parts, not 21"):
        decode_chunk(made.listing, msgspec.structs.replace(made.chunk, parts=21), shard=SHARD)


def test_statistics_that_can_not_be_read_rule_nothing_out():
    made = encoded()
    table = decode_chunk(made.listing, made.chunk, shard=SHARD)
    flipped = bytearray(made.stats)
    flipped[40] ^= 1
    other = encode_chunk(PartTable.of(PARTS[:3], SCHEMA), shard=SHARD, key=KEY)
    for stats in (None, b"", b"junk", bytes(flipped), made.stats[:-3], other.stats):
        assert add_stats(table, stats, made.chunk, shard=SHARD).stats is None
    assert add_stats(table, made.stats, made.chunk, shard="s" + "9" * 32).stats is None
