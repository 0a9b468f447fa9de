"""Tests of opening a store in a folder and in memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import strandline
from strandline.assembly import open_store
from strandline.journal.timeline import JournalTimeline
from strandline.shard.settings import Settings
from strandline.shard.timeline import PlainTimeline

COLUMNS = pa.schema([("id", pa.int64())])


def test_a_folder_is_a_store_for_many_openings(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    with strandline.open(str(path)) as store:
        shard = store.shard("orders", schema=COLUMNS, key=["id"])
        with shard.writer() as writer:
            writer.append(pa.table({"id": [1, 2]}))
    with strandline.open(str(path)) as again:
        assert again.shard("orders").snapshot().to_arrow()["id"].to_pylist() in ([1, 2], [2, 1])
        assert repr(again) == f"<Store {path}>"


def test_memory_works_without_a_disk() -> None:
    with strandline.open("memory://") as store:
        shard = store.shard("orders", schema=COLUMNS)
        with shard.writer() as writer:
            writer.append([{"id": 7}])
        assert shard.snapshot().to_pandas()["id"].tolist() == [7]


def test_a_pipelines_timeline_is_its_journal() -> None:
    with strandline.open("memory://") as store:
        assert isinstance(store.env.timelines("pipeline.shop"), JournalTimeline)
        assert isinstance(store.env.timelines("shop"), PlainTimeline)


def test_reading_verbs_never_create(tmp_path: Path) -> None:
    with pytest.raises(strandline.NotFoundError):
        open_store(str(tmp_path / "nowhere"), create=False)
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_keeps_its_own_objects(tmp_path: Path) -> None:
    with pytest.raises(strandline.UsageError, match="blob="):
        strandline.open(str(tmp_path / "lake"), blob="s3://elsewhere")


def test_x18_nobody_else_can_read_a_store(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    before = os.umask(0)
    try:
        with strandline.open(str(path)) as store:
            shard = store.shard("orders", schema=COLUMNS)
            with shard.writer() as writer:
                writer.append(pa.table({"id": list(range(100_000))}))
            modes = {each: stat.S_IMODE(each.stat().st_mode) for each in path.rglob("*")}
    finally:
        os.umask(before)
    assert {mode for each, mode in modes.items() if each.is_dir()} <= {0o700}
    assert {mode for each, mode in modes.items() if not each.is_dir()} == {0o600}


def _append_ten(path: str, worker: int) -> None:
    with strandline.open(path) as store, store.shard("orders").writer() as writer:
        for number in range(10):
            writer.append(pa.table({"id": [worker * 10 + number]}))


@pytest.mark.process
def test_many_processes_append_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "lake")
    with strandline.open(path) as store:
        shard = store.shard("orders", schema=COLUMNS, key=["id"])
        context = multiprocessing.get_context("spawn")
        started = [context.Process(target=_append_ten, args=(path, n)) for n in range(3)]
        for each in started:
            each.start()
        for each in started:
            each.join()
            assert each.exitcode == 0
        assert sorted(shard.snapshot().to_arrow()["id"].to_pylist()) == list(range(30))
        assert shard.upper == strandline.Frontier(30)


def _in_a_fork(run: Callable[[], str]) -> str:
    """What `run` says in a forked child, which is given half a minute."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(30)
            os.write(writable, run().encode())
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent is to be told
            os.write(writable, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writable)
    os.waitpid(child, 0)
    with os.fdopen(readable) as told:
        return told.read()


def _refused(*calls: Callable[[], object]) -> str:
    for number, call in enumerate(calls):
        try:
            call()
        except strandline.HandleClosedError as error:
            if "open the store again" in str(error):
                continue
        return f"call {number} was not refused"
    return "refused"


@pytest.mark.process
def test_a_fork_is_told_to_open_the_store_again(tmp_path: Path) -> None:
    with strandline.open(str(tmp_path / "lake")) as store:
        shard = store.shard("orders", schema=COLUMNS)
        reader, writer, snapshot = shard.reader(), shard.writer(), shard.snapshot
        writer.append(pa.table({"id": [1, 1]}))
        taken, subscription = snapshot(), shard.subscribe()
        assert snapshot().to_arrow().num_rows == 2  # From here on a child would lack threads.
        before = shard.state()

        def child() -> str:
            said = _refused(
                lambda: store.shard("orders"),
                shard.snapshot,
                lambda: shard.compact(full=True),
                reader.snapshot,
                lambda: writer.append(pa.table({"id": [2]})),
                taken.to_arrow,
                subscription.poll,
            )
            for each in (subscription, taken, reader, writer, store):
                each.close()
            return said

        assert _in_a_fork(child) == "refused"
        after = shard.state()
        assert (after.readers, after.writers) == (before.readers, before.writers)
        assert subscription.poll() is not None


@pytest.mark.process
def test_a_fork_that_opens_the_store_again_never_waits_for_threads_of_its_parent(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "lake")
    with strandline.open(path) as store:
        shard = store.shard("orders", schema=COLUMNS)

        def child() -> str:
            with strandline.open(path) as own, own.shard("orders").writer() as writer:
                writer.append(pa.table({"id": [7, 7]}))
                return str(own.shard("orders").snapshot().to_arrow()["id"].to_pylist())

        with shard.writer() as writer:
            writer.append(pa.table({"id": [1, 1]}))
        assert shard.snapshot().to_arrow().num_rows == 2
        assert "'spawn'" in _in_a_fork(child)
        assert shard.snapshot().to_arrow().num_rows == 4


@pytest.mark.process
def test_a_fork_that_collects_deletes_nothing_that_its_parent_reads(tmp_path: Path) -> None:
    settings = Settings(inline_max_bytes=0)
    with strandline.open(str(tmp_path / "lake"), settings=settings, upkeep=False) as store:
        shard = store.shard("orders", schema=COLUMNS, key=["id"])
        shard.retain("1 versions")
        with shard.writer() as writer:
            for number in range(4):
                writer.append(pa.table({"id": [number]}))
        shard.snapshot().close()
        snapshot = shard.snapshot()
        shard.compact(full=True)
        collector = store.upkeep.collector
        assert _in_a_fork(lambda: _refused(lambda: collector.collect(shard.machine))) == "refused"
        assert sorted(snapshot.to_arrow()["id"].to_pylist()) == list(range(4))
