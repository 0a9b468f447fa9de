"""What the tasks of a read give, together, is what the shard holds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import strandline
from strandline.errors import UsageError
from strandline.model.schema import Schema
from strandline.reading.extract import extract
from strandline.reading.fetch import read_object
from strandline.reading.request import Bounds, Request
from strandline.reading.view import described
from strandline.spark.source_plan import Way, plan_changes, plan_snapshot
from strandline.spark.source_rows import (
    Instants,
    change_updates,
    changes,
    inserted,
    snapshot_rows,
    stamped,
)

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
NO_INSTANTS = Instants(np.zeros(0, np.int64), np.zeros(0, np.int64))


@pytest.fixture(params=[(), ("k",)], ids=["no key", "keyed"])
def shard(request, tmp_path):
    """Inserts, updates, deletions and duplicates, in parts and inline, before and after since."""
    settings = strandline.Settings(inline_max_bytes=600, part_target_rows=40)
    with strandline.open(str(tmp_path / "lake"), settings=settings, upkeep=False) as store:
        shard = store.shard("t", COLUMNS, key=request.param)
        rng = np.random.default_rng(7)
        live: dict[int, str] = {}
        with shard.writer() as writer:
            for step in range(12):
                chosen = rng.choice(120, size=60 if step % 4 == 0 else 5, replace=False)
                rows = []
                for key in chosen.tolist():
                    if key in live:
                        rows.append({"k": key, "v": live.pop(key), "_diff": -1})
                    if step % 4 == 0 or key % 3:
                        live[key] = f"{step}"
                        rows.append({"k": key, "v": live[key], "_diff": 1})
                writer.append(rows)
                if step == 5:
                    writer.append([{"k": 7_000 + n, "v": "twice"} for n in range(50)] * 2)
                    if not request.param:
                        writer.append([{"k": 7_000, "v": "twice", "_diff": -1}])
        yield shard


def pieces(shard, bounds, columns=None):
    state = shard.state()
    request = Request.parse(columns, None, state.schema)
    return described(shard.machine, state, request, bounds).parts


def fetcher(shard):
    blob = shard.machine.env.blob
    return lambda wanted, lo, hi: extract(wanted, read_object(blob, wanted))


def in_order(table):
    return sorted(tuple(row.values()) for row in table.select(["k", "v"]).to_pylist())


@pytest.mark.parametrize(("bytes_max", "compacted"), [(3_000, False), (6_000, True), (10**9, True)])
def test_tasks_of_any_size_give_the_snapshot(shard, bytes_max, compacted):
    if compacted:
        shard.retain("4 versions")
        shard.compact(full=True)
    for as_of in range(shard.since.time or 0, shard.upper.time, 3):
        works = plan_snapshot(pieces(shard, Bounds(as_of=as_of)), bytes_max=bytes_max)
        found = [
            row
            for work in works
            for table in snapshot_rows(work, fetcher(shard))
            for row in in_order(table)
        ]
        assert sorted(found) == in_order(shard.snapshot(as_of=as_of).to_arrow())


@pytest.mark.parametrize("bytes_max", [3_000, 10**9])
def test_tasks_of_any_size_give_the_changes(shard, bytes_max):
    start, end = 3, shard.upper.time
    works = plan_changes(pieces(shard, Bounds(after=start, upto=end)), bytes_max=bytes_max)
    balance: dict[tuple[object, ...], int] = {}
    for row in in_order(shard.snapshot(as_of=start - 1).to_arrow()):
        balance[row] = balance.get(row, 0) + 1
    schema = shard.state().schema
    kinds = set()
    for work in works:
        for updates in change_updates(work, fetcher(shard)):
            for row in changes(updates, schema, NO_INSTANTS).to_pylist():
                kind = row["_change_type"]
                kinds.add(kind)
                assert start <= row["_commit_version"] < end
                known = (row["k"], row["v"])
                sign = 1 if kind in {"insert", "update_postimage"} else -1
                balance[known] = balance.get(known, 0) + sign
    expected: dict[tuple[object, ...], int] = {}
    for row in in_order(shard.snapshot().to_arrow()):
        expected[row] = expected.get(row, 0) + 1
    assert {row: count for row, count in balance.items() if count} == expected
    updated = {"update_preimage", "update_postimage"}
    assert kinds == {"insert", "delete"} | (updated if shard.key else set())


def test_a_key_that_loses_a_row_and_gets_one_in_one_version_was_updated():
    schema = Schema.create(COLUMNS, ("k",))
    updates = pa.Table.from_pylist(
        [
            {"k": 1, "v": "new", "_time": 4, "_diff": 1},
            {"k": 1, "v": "old", "_time": 4, "_diff": -1},
            {"k": 2, "v": "gone", "_time": 4, "_diff": -1},
            {"k": 2, "v": "back", "_time": 5, "_diff": 1},
            {"k": 3, "v": "twice", "_time": 5, "_diff": 2},
        ],
        schema.updates(),
    )
    instants = Instants(np.array([4, 6]), np.array([4_000, 6_000]))
    found = changes(updates, schema, instants).to_pylist()
    assert sorted((r["k"], r["_change_type"], r["_commit_version"]) for r in found) == [
        (1, "update_postimage", 4),
        (1, "update_preimage", 4),
        (2, "delete", 4),
        (2, "insert", 5),
        (3, "insert", 5),
        (3, "insert", 5),
    ]
    told = {row["_commit_version"]: row["_commit_timestamp"].timestamp() for row in found}
    assert told == {4: 4.0, 5: 6.0}


def test_an_instant_that_is_not_known_is_null():
    found = Instants(np.array([4]), np.array([4_000])).of(np.array([3, 5]))
    assert [value is None for value in found.to_pylist()] == [False, True]


def test_a_stream_of_rows_refuses_what_it_cannot_show():
    rows = stamped(pa.table({"k": [1, 2]}), 3)
    assert inserted(rows, "t").to_pylist() == [{"k": 1}, {"k": 2}]
    less = rows.set_column(2, "_diff", pa.array([1, -1]))
    with pytest.raises(UsageError, match=r"version 3 of table t .*readChangeFeed"):
        inserted(less, "t")
    twice = rows.set_column(2, "_diff", pa.array([1, 2]))
    assert inserted(twice, "t").num_rows == 3


def test_columns_without_the_key_still_add_up(shard):
    names = ("v",) if not shard.key else ("v", "k")
    parts = pieces(shard, Bounds(as_of=9), names)
    works = plan_snapshot(parts, bytes_max=2_000)
    assert {work.way for work in works} != {Way.ROWS}
    found = [
        value
        for work in works
        for table in snapshot_rows(work, fetcher(shard))
        for value in table.column("v").to_pylist()
    ]
    assert sorted(found) == sorted(shard.snapshot(as_of=9).to_arrow().column("v").to_pylist())
