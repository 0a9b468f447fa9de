"""Which appends are put by place, and how the places are divided among tasks."""

from __future__ import annotations

from itertools import pairwise

import pytest

from strandline.model.digest import Digest
from strandline.parts.part import PLACE_MAX, Part
from strandline.shard.settings import Settings
from strandline.spark.placing import (
    SHEAF_PARTS,
    Placing,
    decode_placing,
    encode_placing,
    is_worth_it,
    placings,
)

MB = 1024 * 1024
HALF = PLACE_MAX // 2


def part(number: int, lo: int = 0, hi: int = PLACE_MAX, size: int = 64 * MB) -> Part:
    return Part(
        key=f"s/w/{number:06}.parquet",
        size=size,
        checksum=0,
        rows=1,
        digest=Digest.ZERO.pack(),
        t_min=0,
        t_max=0,
        base=False,
        level=0,
        place_lo=lo,
        place_hi=hi,
        schema=0,
        stats=b"known",
        untimed=True,
    )


@pytest.mark.parametrize(
    ("parts", "worth"),
    [
        pytest.param([], False, id="nothing"),
        pytest.param([part(n, size=MB) for n in range(200)], False, id="many, but small"),
        pytest.param([part(0, size=4096 * MB)], False, id="large, but one"),
        pytest.param([part(n) for n in range(8)], False, id="as many as there may be runs"),
        pytest.param([part(n) for n in range(9)], True, id="more than there may be runs"),
        pytest.param(
            [part(n, 0, HALF) for n in range(8)] + [part(8 + n, HALF + 1) for n in range(8)],
            False,
            id="more, but side by side",
        ),
    ],
)
def test_a_large_append_whose_parts_lie_over_each_other_is_worth_it(parts, worth):
    settings = Settings(place_bytes=512 * MB, fanout=8)
    assert is_worth_it(parts, settings) is worth


@pytest.mark.parametrize("count", [2, 16, 400, SHEAF_PARTS, SHEAF_PARTS + 1, 3 * SHEAF_PARTS])
@pytest.mark.parametrize("slots", [1, 2, 32])
def test_each_sheaf_covers_every_place_once(count, slots):
    parts = [part(n) for n in range(count)]
    told = placings(parts, 2 * count * 64 * MB, slots)
    sheaves: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for each in told:
        sheaves.setdefault(tuple(one.key for one in each.parts), []).extend(each.ranges)
    assert len(sheaves) == -(-count // SHEAF_PARTS)
    assert sorted(key for keys in sheaves for key in keys) == [one.key for one in parts]
    for ranges in sheaves.values():
        assert ranges[0][0] == 0
        assert ranges[-1][1] == PLACE_MAX
        assert all(one[1] + 1 == other[0] for one, other in pairwise(ranges))


@pytest.mark.parametrize(
    ("unpacked", "slots", "ranges", "tasks"),
    [
        pytest.param(100 * MB, 2, 4, 4, id="little: ranges of a quarter"),
        pytest.param(512 * MB, 2, 4, 4, id="two tasks a slot"),
        pytest.param(12_800 * MB, 2, 100, 13, id="much: a task is eight ranges"),
        pytest.param(12_800 * MB, 64, 128, 128, id="many slots: smaller ranges, one each"),
    ],
)
def test_ranges_are_bounded_and_tasks_are_not_too_long(unpacked, slots, ranges, tasks):
    told = placings([part(n) for n in range(20)], unpacked, slots, range_bytes=128 * MB)
    assert (sum(len(each.ranges) for each in told), len(told)) == (ranges, tasks)


def test_a_task_is_told_only_of_parts_that_reach_its_places():
    parts = [part(0, 0, HALF), part(1, HALF + HALF // 2)]
    told = placings(parts, 64 * MB, 2, range_bytes=16 * MB)
    assert len(told) == 4
    for each in told:
        lo, hi = each.ranges[0][0], each.ranges[-1][1]
        reaching = [one.key for one in parts if one.place_lo <= hi and one.place_hi >= lo]
        assert [one.key for one in each.parts] == reaching
    assert [len(each.parts) for each in (told[0], told[-1])] == [1, 1]
    assert all(not one.stats for each in told for one in each.parts)


def test_what_a_task_is_told_travels_as_bytes():
    placing = Placing((part(1),), ((0, 5), (6, PLACE_MAX)), 7)
    assert decode_placing(encode_placing(placing)) == placing
