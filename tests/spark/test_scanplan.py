"""Which pieces Spark scans by itself."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.build import build_delta
from strandline.parts.inline import encode_inline
from strandline.parts.layout import lay_out
from strandline.parts.parquet import Owner
from strandline.parts.rows import check_rows
from strandline.reading.descriptor import PartDescriptor
from strandline.spark.scanplan import decode_work, divide, encode_work, scans_natively
from strandline.spark.source_plan import Way, Work

SHARD = "s" + "0" * 32
SCHEMA = Schema.create(pa.schema([("id", pa.int64())]), ["id"])


def piece(name: str, diffs: list[int], times: list[int], *, as_of: int = 9) -> PartDescriptor:
    rows = pa.table({"id": list(range(len(diffs))), "_time": times, "_diff": diffs})
    checked = check_rows(rows, SCHEMA, lower=0, upper=Frontier(100))
    if name == "inline":
        found = encode_inline(checked)
    else:
        owner = Owner(SHARD, f"{SHARD}/w1/{name}.parquet")
        found = build_delta(lay_out(checked.updates, SCHEMA), SCHEMA, owner).part
    return PartDescriptor(name, "orders", SHARD, SCHEMA, found, as_of, as_of=as_of)


def test_parts_that_only_insert_are_scanned_and_all_else_is_the_tail() -> None:
    whole, cut = piece("whole", [1, 1], [3, 4]), piece("cut", [1, 1], [3, 20])
    mixed, twice = piece("mixed", [1, -1], [3, 4]), piece("twice", [2, 1], [3, 4])
    inline = piece("inline", [1, 1], [3, 4])
    divided = divide([whole, cut, mixed, twice, inline])
    assert divided.scanned == (whole, cut)
    assert divided.tail == (mixed, twice, inline)
    assert divided.scans() == [
        (False, [f"{SHARD}/w1/whole.parquet"]),
        (True, [f"{SHARD}/w1/cut.parquet"]),
    ]
    assert divided.is_light


def test_parts_are_told_apart_by_whether_a_place_lies_in_them() -> None:
    part = piece("part", [1, 1, 1], [3, 3, 3])
    lo, hi = part.piece.place_lo, part.piece.place_hi
    divided = divide([part, piece("mixed", [1, -1], [3, 4])])
    for places, is_near in (
        ([lo], True),
        ([0, hi], True),
        ([lo - 1, hi + 1], False),
        ([lo - 1, lo + 1, hi + 1], True),
        ([hi + 1], False),
        ([], False),
    ):
        near, far = divided.split(np.array(places, np.uint64))
        assert (near.scanned, far.scanned) == (((part,), ()) if is_near else ((), (part,)))
        assert (near.tail, far.tail) == (divided.tail, ())


TYPES = [
    (pa.int64(), True),
    (pa.uint8(), False),
    (pa.decimal128(38, 10), True),
    (pa.decimal256(40, 10), False),
    (pa.timestamp("us"), True),
    (pa.timestamp("ns", "UTC"), False),
    (pa.time64("us"), False),
    (pa.map_(pa.string(), pa.list_(pa.int32())), True),
    (pa.struct([("a", pa.float16())]), False),
    (pa.large_list(pa.int32()), False),
]


@pytest.mark.parametrize(("kind", "native"), TYPES, ids=str)
def test_only_types_that_spark_reads_as_we_do_are_scanned(kind, native) -> None:
    assert scans_natively(kind) is native


def test_work_comes_back_as_it_was_sent() -> None:
    part = piece("part", [1, -1], [3, 4])
    work = Work(Way.RANGE, (part,), (part,), 5, 2**64 - 1)
    back = decode_work(encode_work(work))
    assert (back.way, back.lo, back.hi) == (work.way, work.lo, work.hi)
    assert [each.piece for each in (*back.pieces, *back.against)] == [part.piece] * 2
