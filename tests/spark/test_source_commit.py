"""Committing what tasks have staged: once, in bounded memory, whatever other writers do."""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pytest

import strandline
from strandline.model.digest import Digest
from strandline.shard.txn import Txn
from strandline.spark import perform
from strandline.spark.instruction import make_ground
from strandline.spark.plan import Gathered
from strandline.spark.source_commit import Job, _differences, commit_append, commit_upsert
from strandline.spark.source_store import end_term_writer, term_writer, term_writer_of

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def store(tmp_path):
    settings = strandline.Settings(listed_parts=3)
    with strandline.open(str(tmp_path / "lake"), settings=settings, upkeep=False) as store:
        store.shard("t", COLUMNS, key=["k"])
        yield store


@pytest.fixture
def job(store):
    """Jobs of one writer, each with its own transaction."""
    shard = store.shard("t")
    term = term_writer(store, shard, 60_000)
    limits = (32_768, 1_000_000, 10**8)
    schema = shard.state().schema
    ground = make_ground(schema, shard=("t", shard.id), writer=term.writer, limits=limits)
    with term_writer_of(store, shard, term) as writer:
        yield lambda txn=None: Job(store, shard, writer, ground, txn)
    end_term_writer(store, shard, term)


def batches(keys, value):
    return [pa.record_batch({"k": list(keys), "v": [value] * len(keys)})]


def content(store):
    return {row["k"]: row["v"] for row in store.shard("t").snapshot().to_arrow().to_pylist()}


def test_parts_and_rows_that_came_back_are_one_append(store, job):
    bench = job().bench
    answers = [perform.append(bench, batches([n], "part"), None, 0) for n in range(5)]
    answers.append(perform.append(bench, batches([9], "row"), None, 10**6))
    commit_append(job(), answers)
    assert content(store) == {**dict.fromkeys(range(5), "part"), 9: "row"}
    (batch,) = store.shard("t").state().batches
    assert batch.chunks  # More parts than a state should list.
    assert batch.upper == 1


def test_an_append_takes_the_time_that_is_next_by_then(store, job):
    answers = [perform.append(job().bench, batches([1], "late"), None, 0)]
    with store.shard("t").writer() as other:
        other.append([{"k": 2, "v": "early"}])
    commit_append(job(), answers)
    assert store.shard("t").upper.time == 2
    assert content(store) == {1: "late", 2: "early"}


def test_a_batch_that_counted_leaves_no_parts(store, job):
    for _ in range(2):
        answers = [perform.append(job().bench, batches([1], "a"), None, 0)]
        commit_append(job(Txn("app", 1)), answers)
    assert store.shard("t").snapshot().count() == 1
    blob = store.env.blob
    assert len([entry for entry in blob.list("") if entry.key.endswith(".parquet")]) == 1


@pytest.mark.parametrize("most", [0, 10**6], ids=["staged", "in hand"])
def test_an_upsert_is_resolved_range_by_range(store, job, most, monkeypatch):
    monkeypatch.setattr("strandline.spark.plan.RANGE_BYTES", 1_000)
    bench = job().bench
    commit_append(job(), [perform.append(bench, batches(range(300), "old"), None, 0)])
    answers = [perform.stage(bench, batches(range(100, 200), "new"), most)]
    commit_upsert(job(), answers)
    expected = {n: "new" if 100 <= n < 200 else "old" for n in range(300)}
    assert content(store) == expected
    assert not [entry for entry in store.env.blob.list("") if entry.key.endswith(".rows")]


def test_the_rows_that_wait_for_the_commit_are_few_however_many_ranges_there_are(
    store, job, monkeypatch
):
    monkeypatch.setattr("strandline.spark.plan.RANGE_BYTES", 10_000)
    one = job()
    came = batches(range(5_000), "x" * 20)
    gathered = Gathered.from_answers([perform.stage(one.bench, came, 10**6)], one.ground.schema)
    load = _differences(one, one.desk(), gathered, store.shard("t").state())
    assert sum(part.rows for part in load.parts) + load.few.num_rows == 5_000
    assert len(load.parts) > 1
    assert 0 < load.few.nbytes <= 2 * store.env.settings.inline_max_bytes


def test_an_upsert_without_rows_or_changes_is_no_version(store, job):
    commit_upsert(job(), [])
    assert store.shard("t").upper.time == 0
    told = Txn("app", 0, Digest.ZERO)
    commit_upsert(job(told), [perform.stage(job().bench, batches([1], "a"), 10**6)])
    same = perform.stage(job().bench, batches([1], "a"), 10**6)
    commit_upsert(job(), [same])
    assert store.shard("t").upper.time == 1
    # As a batch of an application it has to be remembered.
    commit_upsert(job(Txn("app", 1, Digest.ZERO)), [same])
    assert store.shard("t").txn("app") == 1
    assert content(store) == {1: "a"}


@pytest.mark.parametrize(("bytes_max", "kept"), [("0", False), ("1000000", True)])
def test_an_upsert_keeps_blocks_where_the_environment_says_and_as_many(
    store, job, tmp_path, monkeypatch, bytes_max, kept
):
    bench = job().bench
    commit_append(job(), [perform.append(bench, batches(range(5000), "old"), None, 0)])
    monkeypatch.setenv("STRANDLINE_CACHE_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("STRANDLINE_CACHE_BYTES", bytes_max)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "theirs"))
    commit_upsert(job(), [perform.stage(bench, batches([7], "new"), 10**6)])
    assert content(store)[7] == "new"
    found = [path for path in tmp_path.glob("*/strandline-cache-*/**/*") if path.is_file()]
    assert {path.relative_to(tmp_path).parts[0] for path in found} == ({"mine"} if kept else set())
