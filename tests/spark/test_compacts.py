"""Compaction in tasks: the same rows in fewer parts, and nobody is disturbed."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strandline
from strandline.shard.settings import Settings
from strandline.spark import parcels
from strandline.spark.compacts import Carrier
from strandline.spark.jobs import Jobs
from strandline.spark.put import SCRATCH

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


def parts_of(shard):
    return [part for batch in shard.state().batches for part in batch.parts]


@pytest.mark.parametrize("key", [["k"], []])
def test_units_are_merged_in_tasks_and_swapped_here(spark, tmp_path, key):
    settings = Settings(inline_max_bytes=0, part_target_rows=20_000)
    with strandline.open(str(tmp_path / "lake"), upkeep=False, settings=settings) as store:
        shard = store.shard("t", schema=COLUMNS, key=key)
        shard.retain("1 versions")
        with shard.writer() as writer:
            for start in range(0, 60_000, 10_000):
                ids = list(range(start, start + 10_000))
                writer.append(pa.table({"k": ids, "v": [f"row {n}" for n in ids]}))
            writer.append(pa.table({"k": [0], "v": ["row 0"], "_diff": [-1]}))
        before = shard.snapshot().to_arrow().sort_by("k")
        jobs = Jobs(spark, shard.id)
        desk = store.table("t")._desk
        desk.compact(full=True, carrier=Carrier(desk, jobs, small=0))
        assert jobs.count >= 1
        assert shard.snapshot().to_arrow().sort_by("k").equals(before)
        assert all(part.base for part in parts_of(shard))
        assert len(parts_of(shard)) < 7


@pytest.mark.parametrize(("slots", "tasks"), [(1, 2), (2, 4), (8, 8)])
def test_a_full_merge_is_shared_by_tasks_range_by_range(spark, tmp_path, slots, tasks):
    """What a single process gives, part by part: only who wrote it differs."""
    settings = Settings(inline_max_bytes=0, part_target_rows=20_000)
    found = []
    for way in ("tasks", "here"):
        url = str(tmp_path / way)
        with strandline.open(url, upkeep=False, settings=settings) as store:
            shard = store.shard("t", schema=COLUMNS, key=["k"])
            shard.retain("1 versions")
            with shard.writer() as writer:
                for start in range(0, 60_000, 20_000):
                    ids = list(range(start, start + 20_000))
                    writer.append(pa.table({"k": ids, "v": [f"row {n}" for n in ids]}))
                gone = list(range(0, 60_000, 11))
                values = [f"row {n}" for n in gone]
                writer.append(pa.table({"k": gone, "v": values, "_diff": [-1] * len(gone)}))
            desk = store.table("t")._desk
            if way == "tasks":
                jobs = Counting(spark, shard.id, slots)
                desk.compact(full=True, carrier=Carrier(desk, jobs, small=0), slots=slots)
                assert jobs.tasks == [tasks]
            else:
                # The same cuts, one after the other in this process.
                desk.compact(full=True, carrier=None, slots=slots)
            found.append(
                [(each.rows, each.digest, each.place_lo, each.base) for each in parts_of(shard)]
            )
            assert shard.snapshot().count() == 60_000 - len(gone)
    assert found[0] == found[1]
    assert len(found[0]) == max(tasks, 4)


def test_what_tasks_merge_is_put_where_it_is_too_much_for_a_closure(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(parcels, "CARRIED_BYTES", 0)
    settings = Settings(inline_max_bytes=0, part_target_rows=20_000)
    with strandline.open(str(tmp_path / "lake"), upkeep=False, settings=settings) as store:
        shard = store.shard("t", schema=COLUMNS, key=["k"])
        shard.retain("1 versions")
        with shard.writer() as writer:
            for n in range(50):
                writer.append(pa.table({"k": range(n * 1000, n * 1000 + 1000), "v": ["x"] * 1000}))
        jobs = Counting(spark, shard.id, 2)
        desk = store.table("t")._desk
        desk.compact(full=True, carrier=Carrier(desk, jobs, small=0), slots=2)
        assert jobs.told
        assert max(jobs.told) < 1000
        assert shard.snapshot().count() == 50_000
        kinds = {each.key.rpartition(".")[2] for each in store.env.blob.list(f"{shard.id}/")}
        assert not kinds & SCRATCH


class Counting(Jobs):
    """Notes how many tasks each job has, and how many bytes its closure carries."""

    def __init__(self, *args):
        super().__init__(*args)
        self.tasks = []
        self.told = []

    def over(self, frame, task, *told):
        self.told.append(sum(map(len, told)))
        return super().over(frame, task, *told)

    def numbers(self, count):
        self.tasks.append(count)
        return super().numbers(count)


def test_small_units_need_no_job(spark, tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        shard = store.shard("t", schema=COLUMNS, key=["k"])
        with shard.writer() as writer:
            for n in range(3):
                writer.append(pa.table({"k": [n], "v": ["x"]}))
        jobs = Jobs(spark, shard.id)
        desk = store.table("t")._desk
        desk.compact(full=True, carrier=Carrier(desk, jobs))
        assert jobs.count == 0
        assert shard.snapshot().count() == 3
        assert not [batch for batch in shard.state().batches if batch.inline is not None]
        store.table("t").compact(spark)
        assert shard.snapshot().count() == 3
