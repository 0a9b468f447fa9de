"""Ranges of several shards in one task: updates, tombstones, parts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.msgpack import encode
from tests.spark.workbench import SCHEMA, bench, blocks

from strandline.model.engine import Rules
from strandline.parts.part import PLACE_MAX
from strandline.parts.tombstones import tomb_schema
from strandline.spark import slices
from strandline.spark.instruction import Errand, RangeWork
from strandline.spark.resolver import Task, decode_outcome, encode_task, resolved


def incoming(*rows):
    keys, values, deletes = zip(*rows, strict=True)
    values = pa.array(values, pa.string())
    return pa.table({"k": keys, "v": values, "_delete": deletes, "_order0": values})


def task(rows, room, **more):
    work = RangeWork(0, PLACE_MAX, rows=slices.to_stream(rows))
    errand = Errand((work,), None, time=4, inline_max=room, compare_stored=("v",))
    return Task("t", b"t", errand, **more)


@pytest.mark.parametrize("room", [0, 10**6])
def test_updates_and_tombstones_come_from_the_same_rows(tmp_path, room):
    table = bench()
    tombs = bench(table.blob, tomb_schema(SCHEMA, Rules(("v",), bury=True)))
    told = task(
        incoming((1, "a", False), (2, "b", True)),
        room,
        tombs="t_tombs",
        tombs_site=b"g",
        buried=RangeWork(0, PLACE_MAX),
    )
    found = resolved(told, blocks(table, tmp_path), {b"t": table, b"g": tombs}.__getitem__)
    assert [each.collection for each in found] == ["t", "t_tombs"]
    for each in found:
        if room:
            rows = slices.from_stream(each.answer.rows, "rows").to_pylist()
            assert [row["_diff"] for row in rows] == [1]
        else:
            assert [(part.rows, part.t_min) for part in each.answer.parts] == [(1, 4)]
            assert [time for time, _ in each.answer.digests] == [4]


def test_what_is_told_and_answered_travels_as_bytes(tmp_path):
    made = bench()
    told = task(incoming((1, "a", False)), 10**6)
    assert encode_task(told) == encode_task(told)
    (found,) = resolved(told, blocks(made, tmp_path), lambda _: made)
    assert decode_outcome(encode(found)) == found
