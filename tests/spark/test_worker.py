"""What runs in workers, called without Spark: the same functions, and how they fail."""

from __future__ import annotations

import shutil

import msgspec
import pyarrow as pa
import pytest

import strandline
from strandline.spark import worker
from strandline.spark.desk import Desk
from strandline.spark.errands import send
from strandline.spark.instruction import Errand, RangeWork, Site, decode_answer
from strandline.spark.relay import TaskFailedError
from strandline.spark.slices import from_stream, to_stream

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])
ROWS = pa.table({"k": [1, 2], "v": ["a", "b"]})


@pytest.fixture
def desk(tmp_path):
    with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
        yield Desk(store, store.shard("t", schema=COLUMNS, key=["k"]), (str(tmp_path), 10**8))


def site_of(desk: Desk) -> bytes:
    return desk.stand(desk.shard.state().schema).site


def answer(desk: Desk, batches) -> object:
    (batch,) = batches
    return decode_answer(batch.column("answer")[0].as_py(), desk.shard.id)


def test_rows_are_appended_and_staged_and_given_back(desk):
    site = site_of(desk)
    appended = answer(desk, worker.append_rows(site, None, ROWS.to_batches()))
    assert from_stream(appended.rows, "it").num_rows == 2
    staged = answer(desk, worker.stage_rows(site, 0, ROWS.to_batches()))
    told = msgspec.msgpack.encode(staged.staged)
    numbers = pa.table({"id": [0]}).to_batches()
    found = pa.Table.from_batches(list(worker.read_staged(site, told, numbers)))
    assert sorted(found["k"].to_pylist()) == [1, 2]


def test_errands_are_carried_out_by_their_number(desk):
    site = site_of(desk)
    errands = [
        Errand((RangeWork(0, 2**64 - 1, rows=to_stream(ROWS)),), None, time=0, inline_max=10**6)
    ]
    sent = msgspec.msgpack.encode(send(errands, desk.shard.id, lambda _, kind: kind))
    numbers = pa.table({"id": [0]}).to_batches()
    upserted = answer(desk, worker.upsert_ranges(site, sent, numbers))
    assert upserted.counts.upserted == 2
    assert answer(desk, worker.lookup_ranges(site, sent, numbers)).rows == b""
    keys = ROWS.select(["k"]).to_batches()
    assert answer(desk, worker.lookup_rows(site, sent, 10**6, keys)).rows == b""


def test_a_machine_without_the_folder_says_so(tmp_path):
    site = msgspec.msgpack.encode(Site(str(tmp_path / "elsewhere"), "a/b.ground"))
    with pytest.raises(TaskFailedError, match=r"strandline:NotFoundError.*same path"):
        list(worker.append_rows(site, None, ROWS.to_batches()))


def test_a_machine_with_another_store_in_that_folder_says_so(desk, tmp_path):
    known = msgspec.msgpack.decode(site_of(desk), type=Site)
    with strandline.open(str(tmp_path / "other"), upkeep=False) as other:
        site = msgspec.msgpack.encode(Site(other.url, known.ground))
    with pytest.raises(TaskFailedError, match=r"is not the driver's"):
        list(worker.append_rows(site, None, ROWS.to_batches()))


def test_workers_never_open_consensus(desk, monkeypatch):
    site = site_of(desk)
    monkeypatch.setattr("sqlite3.connect", lambda *_, **__: pytest.fail("consensus was opened"))
    worker.bench_of.cache_clear()
    worker._blob.cache_clear()
    assert answer(desk, worker.append_rows(site, None, ROWS.to_batches())).rows_in == 2


def test_a_folder_that_was_made_anew_is_opened_anew(tmp_path):
    for _ in range(2):
        with strandline.open(str(tmp_path / "lake"), upkeep=False) as store:
            made = Desk(store, store.shard("t", schema=COLUMNS, key=["k"]), ("", 0))
            found = answer(made, worker.append_rows(site_of(made), None, ROWS.to_batches()))
            assert found.rows_in == 2
        shutil.rmtree(tmp_path / "lake")
