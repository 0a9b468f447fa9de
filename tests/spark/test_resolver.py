"""Ranges of several shards in one task: updates, tombstones, parts."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest
from msgspec.msgpack import encode
from msgspec.structs import replace
from tests.spark.workbench import SCHEMA, bench, blocks

import strandline
from strandline.model.engine import Rules
from strandline.parts.part import PLACE_MAX
from strandline.parts.tombstones import tomb_schema
from strandline.spark import slices
from strandline.spark.desk import Desk
from strandline.spark.instruction import Errand, RangeWork
from strandline.spark.parcels import wrap
from strandline.spark.plan import everywhere
from strandline.spark.resolver import Task, decode_outcome, encode_task, resolve_ranges, resolved


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


def test_blocks_of_a_store_that_was_made_anew_are_read_anew(tmp_path):
    held = pa.table({"k": range(5000), "v": ["old"] * 5000})
    came = slices.to_stream(incoming((7, "new", False)))
    for _ in range(2):
        with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
            desk = Desk(store, store.shard("t", SCHEMA.arrow(), key=["k"]), ("", 0))
            desk.shard.writer().append(held)
            state = desk.shard.state()
            site = desk.stand(state.schema).site
            work = replace(everywhere(desk.stored(state, 0, None)), rows=came)
            assert work.parts
            told = Task("t", site, Errand((work,), 0, time=1, inline_max=10**6))
            parcels = encode(wrap([encode_task(told)], lambda _, kind: kind))
            numbers = pa.table({"id": [0]}).to_batches()
            (batch,) = resolve_ranges(site, parcels, numbers)
            answer = decode_outcome(batch.column("answer")[0].as_py()).answer
            rows = slices.from_stream(answer.rows, "rows").to_pylist()
            assert [(row["v"], row["_diff"]) for row in rows] == [("old", -1), ("new", 1)]
        shutil.rmtree(tmp_path / "lake")
