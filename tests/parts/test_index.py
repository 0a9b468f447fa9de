"""Single row groups of a part: the right ones, proven, and the same rows as the whole part."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import CorruptionError
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts import parquet
from strandline.parts.build import Built, build_base, build_delta
from strandline.parts.envelope import checksum
from strandline.parts.index import (
    TAIL_BYTES,
    PartIndex,
    check_groups,
    decode_group,
    read_index,
    tail_length,
)
from strandline.parts.layout import lay_out, places_of
from strandline.parts.parquet import Owner, decode_part, footer_of
from strandline.parts.part import Part, restamped_part
from strandline.parts.rows import check_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST = Path(__file__).parent.parent / "golden" / "first"
SHARD = "s" + "0" * 32
OWNER = Owner(SHARD, f"{SHARD}/w{'1' * 32}/{'2' * 32}.parquet")
COLUMNS = pa.schema([("k", pa.int32()), ("v", pa.string())])
SCHEMA = Schema.create(COLUMNS, ("k",))
LOOSE = Schema.create(COLUMNS)


@pytest.fixture(autouse=True)
def _small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1024)


def updates_of(keys: Sequence[int], schema: Schema = SCHEMA) -> pa.Table:
    given = pa.table({"k": keys, "v": [f"v{n % 13}" for n in range(len(keys))]})
    return check_rows(given, schema, lower=7, upper=Frontier(8)).updates


def delta(
    keys: Sequence[int] = range(3000), schema: Schema = SCHEMA, *, untimed: bool = False
) -> Built:
    return build_delta(lay_out(updates_of(keys, schema), schema), schema, OWNER, untimed=untimed)


def base() -> Built:
    live = updates_of(range(3000)).select(COLUMNS.names)
    return build_base(lay_out(live, SCHEMA), SCHEMA, OWNER, time=9, level=2)


def content(index: PartIndex, group: int, encoded: bytes) -> bytes:
    return encoded[int(index.starts[group]) : int(index.stops[group])]


def by_groups(
    encoded: bytes, part: Part, schema: Schema = SCHEMA, groups: Sequence[int] | None = None
) -> list[pa.Table]:
    index = read_index(encoded[-TAIL_BYTES:], part, OWNER)
    wanted = range(len(index)) if groups is None else groups
    return [
        decode_group(index, group, content(index, group, encoded), part, schema, OWNER)
        for group in wanted
    ]


@pytest.mark.parametrize(
    "built",
    [delta, base, lambda: delta(untimed=True), lambda: delta(schema=LOOSE)],
    ids=["delta", "base", "untimed", "no key"],
)
def test_all_groups_together_are_the_part(built):
    made = built()
    schema = LOOSE if made.part.place_hi == 2**64 - 1 else SCHEMA
    found = by_groups(made.encoded, made.part, schema)
    assert [each.num_rows for each in found] == [1024, 1024, 952]
    whole = decode_part(made.encoded, made.part, schema, owner=OWNER)
    assert pa.concat_tables(found).equals(whole)
    check_groups(made.encoded, made.part, schema, OWNER)


def test_groups_are_read_under_a_later_schema():
    made = delta()
    later = SCHEMA.evolve(pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int8())]))
    whole = decode_part(made.encoded, made.part, later, owner=OWNER)
    assert pa.concat_tables(by_groups(made.encoded, made.part, later)).equals(whole)


def test_groups_of_an_untimed_part_have_the_time_it_was_moved_to():
    made = delta(untimed=True)
    [found] = by_groups(made.encoded, restamped_part(made.part, 12), groups=[1])
    assert set(found["_time"].to_pylist()) == {12}


@settings(max_examples=60, deadline=None)
@given(
    # Few keys with many updates each: places that lie in several groups.
    spread=st.sampled_from([2, 7, 500, 10**6]),
    count=st.integers(1, 5000),
    seed=st.integers(0, 2**32),
    wanted=st.lists(st.integers(0, 10**6), max_size=8),
)
def test_no_group_that_holds_a_wanted_place_is_left_out(spread, count, seed, wanted):
    chance = np.random.default_rng(seed)
    made = delta(chance.integers(0, spread, count).tolist())
    index = read_index(made.encoded, made.part, OWNER)
    keys = [key % (spread + 1) for key in wanted]
    places = places_of(pa.table({"k": pa.array(keys, pa.int32())}), SCHEMA)
    chosen = index.groups_of(np.unique(places))
    for group, table in enumerate(by_groups(made.encoded, made.part)):
        if set(keys) & set(table["k"].to_pylist()):
            assert group in chosen
    if not keys:
        assert chosen == []


def test_one_key_costs_one_group():
    made = delta(range(20_000))
    index = read_index(made.encoded, made.part, OWNER)
    assert len(index) == 20
    costs = []
    for key in range(0, 20_000, 97):
        places = places_of(pa.table({"k": pa.array([key], pa.int32())}), SCHEMA)
        costs.append(len(index.groups_of(places)))
    assert sum(costs) <= len(costs) + 2


def test_without_places_every_group_may_hold_anything():
    made = delta(schema=LOOSE)
    index = read_index(made.encoded, made.part, OWNER)
    assert index.proven
    assert index.groups_of(np.array([5], np.uint64)) == [0, 1, 2]


def test_a_part_of_an_old_version_has_an_index_that_proves_nothing():
    part = msgspec.msgpack.decode((FIRST / "part.bin").read_bytes(), type=Part)
    encoded = (FIRST / "part.parquet").read_bytes()
    index = read_index(encoded, part, OWNER)
    assert not index.proven
    assert index.groups_of(np.zeros(0, np.uint64)) == [0]


def test_the_footer_is_enough_and_less_is_not():
    made = delta()
    length = len(footer_of(made.encoded))
    assert tail_length(made.encoded[-8:], made.part, OWNER) == length
    assert len(read_index(made.encoded[-length:], made.part, OWNER)) == 3
    for short in (0, 7, 8, length - 1):
        with pytest.raises(CorruptionError, match="footer"):
            read_index(made.encoded[len(made.encoded) - short :], made.part, OWNER)


def test_x10_a_flipped_byte_anywhere_is_noticed_or_was_not_read():
    made = delta()
    sound = by_groups(made.encoded, made.part)
    read = read_index(made.encoded, made.part, OWNER).stops[-1]
    footer = len(made.encoded) - len(footer_of(made.encoded))
    chance = random.Random(3)
    noticed = 0
    for _ in range(1500):
        at = chance.randrange(len(made.encoded))
        broken = bytearray(made.encoded)
        broken[at] ^= 1 << chance.randrange(8)
        try:
            found = by_groups(bytes(broken), made.part)
        except CorruptionError:
            noticed += 1
            continue
        assert found == sound
        assert at < 4 or read <= at < footer, "only what nobody reads may be damaged"
    assert noticed > 1000


def test_x10_bytes_of_another_group_are_refused():
    made = delta()
    index = read_index(made.encoded, made.part, OWNER)
    other = content(index, 1, made.encoded)
    for wrong in (other, other[:-1], b"", bytes(int(index.stops[0] - index.starts[0]))):
        with pytest.raises(CorruptionError, match="row group 0"):
            decode_group(index, 0, wrong, made.part, SCHEMA, OWNER)


def forged(facts: dict[str, str], keys: Sequence[int] = range(3000)) -> tuple[bytes, Part]:
    """A part whose footer says these things, listed by a state that believes it."""
    made = delta(keys)
    laid = lay_out(updates_of(keys), SCHEMA)
    own = {
        "strandline.format": "1",
        "strandline.shard": OWNER.shard,
        "strandline.key": OWNER.key,
    }
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, laid.updates.schema.with_metadata(own), compression="snappy"
    ) as writer:
        writer.write_table(laid.updates.replace_schema_metadata(own), row_group_size=1024)
        writer.add_key_value_metadata(facts)
    encoded = sink.getvalue().to_pybytes()
    part = msgspec.structs.replace(
        made.part,
        size=len(encoded),
        checksum=checksum(encoded),
        footer=checksum(footer_of(encoded)),
    )
    return encoded, part


def true_facts() -> tuple[list[int], list[int]]:
    encoded, part = forged({"strandline.sums": "0" * 48})
    index = read_index(encoded, part, OWNER)
    laid = lay_out(updates_of(range(3000)), SCHEMA)
    sums = [checksum(content(index, group, encoded)) for group in range(3)]
    return laid.places[::1024].tolist(), sums


def _hex(numbers: Sequence[int]) -> str:
    return "".join(f"{number:016x}" for number in numbers)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda places, sums: (places, sums), None),
        (lambda places, sums: ([places[0], places[2], places[1]], sums), "not in the order"),
        (lambda places, sums: (places[:2], sums), "2 first places of 3"),
        (lambda places, sums: ([*places, 2**64 - 1], sums), "4 first places of 3"),
        (lambda places, sums: ([places[0] + 1, *places[1:]], sums), "outside of its places"),
        (lambda places, sums: ([*places[:2], 2**64 - 1], sums), "outside of its places"),
        (lambda places, sums: ([places[0], places[1] + 1, places[2]], sums), "does not begin"),
        (lambda places, sums: (places, sums[:2]), "2 checksums of 3"),
        (lambda places, sums: (places, [sums[1], sums[0], sums[2]]), "checksum does not match"),
    ],
)
def test_x10_an_index_that_lies_is_damage_and_never_other_rows(change, words):
    places, sums = change(*true_facts())
    encoded, part = forged({"strandline.places": _hex(places), "strandline.sums": _hex(sums)})
    if words is None:
        check_groups(encoded, part, SCHEMA, OWNER)
        return
    with pytest.raises(CorruptionError, match=words):
        check_groups(encoded, part, SCHEMA, OWNER)


@pytest.mark.parametrize("fact", ["", "0", "zz" * 24, "é" * 24, "0" * 47])
@pytest.mark.parametrize("name", ["strandline.places", "strandline.sums"])
def test_x10_facts_that_are_no_numbers_are_damage(name, fact):
    places, sums = true_facts()
    facts = {"strandline.places": _hex(places), "strandline.sums": _hex(sums), name: fact}
    encoded, part = forged(facts)
    with pytest.raises(CorruptionError, match=OWNER.key):
        read_index(encoded, part, OWNER)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.34, 0.5, 0.9, 1.0])
def test_groups_within_a_range_hold_all_of_its_places_and_are_neighbours(share):
    made = delta()
    index = read_index(made.encoded, made.part, OWNER)
    laid = lay_out(updates_of(range(3000)), SCHEMA)
    places = laid.places
    assert places is not None
    lo = int(places[int(share * 1500)])
    hi = int(places[int(share * 2999)])
    found = index.groups_within(lo, hi)
    assert found == list(range(int(share * 1500) // 1024, int(share * 2999) // 1024 + 1))
    assert index.groups_within(0, int(places[0]) - 1) == []
    loose = delta(schema=LOOSE)
    whole = read_index(loose.encoded, loose.part, OWNER)
    assert whole.groups_within(lo, hi) == [0, 1, 2]
