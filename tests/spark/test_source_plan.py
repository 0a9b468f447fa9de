"""How reads are divided into tasks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest

from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.parts.inline import decode_inline, inline_of
from strandline.parts.layout import places_of
from strandline.parts.part import PLACE_MAX, Part
from strandline.reading.descriptor import PartDescriptor
from strandline.spark.source_plan import TASKS_MAX, Way, admit, plan_changes, plan_snapshot

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
KEYED = Schema.create(COLUMNS, ("k",))
PLAIN = Schema.create(COLUMNS)
HALF = 2**63


def piece(name, schema, *, places=(0, PLACE_MAX), times=(0, 0), size=10, inserts=True, rows=10):
    part = Part(
        key=name,
        size=size,
        checksum=0,
        rows=rows,
        digest=Digest.ZERO.pack(),
        t_min=times[0],
        t_max=times[1],
        base=False,
        level=0,
        place_lo=places[0],
        place_hi=places[1],
        schema=1,
        inserts=inserts,
    )
    return PartDescriptor(name, "t", "s" + "0" * 32, schema, part, owed=0, as_of=9)


def shown(works):
    return [(work.way, [each.id for each in work.pieces]) for work in works]


@pytest.mark.parametrize("schema", [KEYED, PLAIN])
def test_what_only_inserts_is_packed_by_bytes(schema):
    parts = [piece(name, schema) for name in "abcde"]
    assert shown(plan_snapshot(parts, bytes_max=25)) == [
        (Way.ROWS, ["a", "b"]),
        (Way.ROWS, ["c", "d"]),
        (Way.ROWS, ["e"]),
    ]
    assert plan_snapshot([], bytes_max=25) == []


def test_only_pieces_that_retractions_overlap_are_added_up():
    low, high = (0, HALF - 1), (HALF, PLACE_MAX)
    parts = [
        piece("low", KEYED, places=low),
        piece("high", KEYED, places=high),
        piece("retracts", KEYED, places=(HALF + 5, HALF + 9), inserts=False),
    ]
    assert shown(plan_snapshot(parts, bytes_max=1000)) == [
        (Way.ROWS, ["low"]),
        (Way.RANGE, ["high", "retracts"]),
    ]


def test_ranges_cover_all_places_and_are_cut_where_parts_begin():
    parts = [
        piece("low", KEYED, places=(3, HALF + 99)),
        piece("high", KEYED, places=(HALF + 100, PLACE_MAX)),
        piece("retracts", KEYED, inserts=False),
    ]
    works = plan_snapshot(parts, bytes_max=15)
    assert [(work.lo, work.hi) for work in works] == [(0, HALF + 99), (HALF + 100, PLACE_MAX)]
    assert shown(works) == [
        (Way.RANGE, ["retracts", "low"]),
        (Way.RANGE, ["retracts", "high"]),
    ]
    many = plan_snapshot(parts, bytes_max=1)
    edges = [(work.lo, work.hi) for work in many]
    assert edges[0][0] == 0
    assert edges[-1][1] == PLACE_MAX
    assert all(last + 1 == first for (_, last), (first, _) in pairwise(edges))


def test_without_a_key_what_may_be_retracted_is_left_to_one_task():
    parts = [piece("a", PLAIN), piece("b", PLAIN), piece("retracts", PLAIN, inserts=False)]
    works = plan_snapshot(parts, bytes_max=10)
    assert shown(works) == [
        (Way.UNTOUCHED, ["a"]),
        (Way.UNTOUCHED, ["b"]),
        (Way.TOUCHED, ["a", "b"]),
    ]
    assert all([each.id for each in work.against] == ["retracts"] for work in works)


def test_changes_without_a_key_meet_where_their_times_do():
    parts = [
        piece("old", PLAIN, times=(0, 3)),
        piece("new", PLAIN, times=(4, 5)),
        piece("retracts", PLAIN, times=(5, 6), inserts=False),
    ]
    assert shown(plan_changes(parts, bytes_max=100)) == [
        (Way.ROWS, ["old"]),
        (Way.RANGE, ["new", "retracts"]),
    ]


@pytest.mark.parametrize(
    ("limits", "end"),
    [
        ({}, 9),
        ({"max_versions": 2}, 2),
        ({"max_rows": 10}, 4),
        ({"max_rows": 30}, 8),
        ({"max_rows": 1}, 1),
        ({"max_rows": 30, "max_versions": 5}, 5),
        ({"max_rows": 10_000}, 9),
    ],
)
def test_a_batch_goes_as_far_as_its_limits_allow_but_at_least_one_version(limits, end):
    # Ten rows at times 0 to 3, then ten at each of 4 and 5, and five at 8.
    parts = [
        piece("a", PLAIN, times=(0, 3), rows=10),
        piece("b", PLAIN, times=(4, 5), rows=20),
        piece("c", PLAIN, times=(8, 8), rows=5),
    ]
    assert admit(parts, 0, 9, **limits) == end


def test_a_snapshot_counts_the_rows_before_it_too():
    parts = [piece("a", PLAIN, times=(0, 3), rows=10), piece("b", PLAIN, times=(4, 5), rows=20)]
    for most, end in ((1, 4), (10, 4), (20, 5), (30, 6)):
        assert admit(parts, 3, 6, max_rows=most, snapshot=True) == end


def test_a_batch_never_goes_back():
    assert admit([], 5, 5, max_rows=1) == 5
    assert admit([], 5, 4, max_versions=3) == 5


def test_a_descriptor_of_changes_is_planned_like_any_other():
    parts = [replace(piece("a", KEYED), as_of=None, upto=3)]
    assert shown(plan_changes(parts, bytes_max=1)) == [(Way.ROWS, ["a"])]


@pytest.mark.parametrize("schema", [KEYED, PLAIN])
@pytest.mark.parametrize("inserts", [True, False])
@pytest.mark.parametrize("plan", [plan_snapshot, plan_changes])
def test_a_partition_of_no_size_makes_no_more_tasks_than_spark_can_plan(schema, inserts, plan):
    """A petabyte by the kilobyte: a million million tasks, as told."""
    parts = [piece(f"{n}", schema, size=2**46, inserts=inserts or n > 0) for n in range(16)]
    assert 0 < len(plan(parts, bytes_max=1024)) <= TASKS_MAX + len(parts)


def test_ranges_list_exactly_the_pieces_that_reach_into_them():
    step = (PLACE_MAX + 1) // 50
    spans = [(n * step, min(PLACE_MAX, (n + 1 + n % 7) * step)) for n in range(50)]
    parts = [piece(f"{n}", KEYED, places=each, inserts=False) for n, each in enumerate(spans)]
    works = plan_snapshot(parts, bytes_max=25)
    assert len(works) > 10
    assert [work.lo for work in works[1:]] == [work.hi + 1 for work in works[:-1]]
    for work in works:
        wanted = {f"{n}" for n, (lo, hi) in enumerate(spans) if lo <= work.hi and hi >= work.lo}
        assert {each.id for each in work.pieces} == wanted


@pytest.mark.parametrize("plan", [plan_snapshot, plan_changes])
def test_inline_rows_travel_once_however_many_ranges_there_are(plan):
    names = ["k", "v", "_time", "_diff"]
    found = []
    for time in range(3):
        rows = pa.table([range(100), [f"{time}"] * 100, [time] * 100, [-1, 1] * 50], names)
        held = inline_of(rows.cast(KEYED.updates()), KEYED)
        found.append(replace(piece(f"i{time}", KEYED), piece=held))
    parts = [piece("part", KEYED, size=1000), *found]
    works = plan(parts, bytes_max=10)
    assert len(works) > 90
    assert {work.way for work in works} == {Way.RANGE}
    count = 0
    for work in works:
        few = [each for each in work.pieces if each.part is None]
        assert len(few) <= 1
        for each in few:
            rows = decode_inline(each.piece, KEYED, shard="t")
            places = places_of(rows, KEYED)
            assert work.lo <= places[0]
            assert places[-1] <= work.hi
            count += rows.num_rows
    assert count == 300
