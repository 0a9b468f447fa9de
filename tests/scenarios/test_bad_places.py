"""Stores that fail, and places that are no store: named, with what to do, and nothing lost."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.assembly import open_store
from strandline.errors import (
    CorruptionError,
    HandleClosedError,
    NewerFormatError,
    NotAppliedError,
    NotFoundError,
    SinceError,
    StrandlineError,
    UsageError,
)
from strandline.shard.settings import Settings
from strandline.store.disk import OsDisk
from strandline.store.files import FilesBlob
from strandline.store.locate import BLOB_FOLDER, CONSENSUS_FILE
from strandline.store.sqlite import SqliteConsensus
from strandline.testing.specimen import open_ports

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
IMPATIENT = Settings(commit_deadline_ms=150, read_deadline_ms=50, inline_max_bytes=0)
ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
GOOD = [{"id": 7, "name": "x"}]


# ---- a store that can't do what it should


class FailingDisk(OsDisk):
    """The real disk, until it is told to fail every write with an error."""

    error: int | None = None

    def _may(self):
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))

    def write(self, file, value):
        self._may()
        super().write(file, value)

    def create(self, folder, name):
        if self.error != errno.ENOSPC:
            self._may()
        return super().create(folder, name)

    def make_folder(self, folder, name):
        self._may()
        super().make_folder(folder, name)

    def rename(self, folder, old, new):
        self._may()
        super().rename(folder, old, new)


DISKS = {
    errno.ENOSPC: "the disk is full: free some space",
    errno.EDQUOT: "quota is used up: free some space",
    errno.EROFS: "the file system is read-only: mount it writable",
    errno.EACCES: "permission denied",
    errno.EIO: "input/output error: check it",
}


def ids(shard):
    return sorted(shard.snapshot().to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("number", DISKS, ids=errno.errorcode.get)
def test_a_disk_that_fails_writes_is_named_with_what_to_do_and_nothing_is_lost(number, tmp_path):
    disk = FailingDisk()
    consensus = SqliteConsensus(tmp_path / CONSENSUS_FILE)
    with open_ports(FilesBlob(tmp_path / BLOB_FOLDER, disk), consensus, IMPATIENT) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            writer.append(ROWS)
            disk.error = number
            with pytest.raises(StrandlineError, match=DISKS[number]) as told:
                writer.append(GOOD)
            assert "write object" in str(told.value)
            assert ids(shard) == [1, 2]
            disk.error = None
            writer.append(GOOD)
            assert ids(shard) == [1, 2, 7]
    assert not list(tmp_path.rglob(".put-*")), "no half-written file stays"


def test_a_consensus_file_that_is_full_is_named_and_goes_on_once_there_is_room(tmp_path):
    """SQLite's own limit on pages stands for a disk without room."""
    consensus = SqliteConsensus(tmp_path / CONSENSUS_FILE, busy_ms=100)
    settings = replace(IMPATIENT, inline_max_bytes=64_000)
    blob = FilesBlob(tmp_path / BLOB_FOLDER)
    with open_ports(blob, consensus, settings) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            writer.append(ROWS)
            with consensus._writing.connection() as connection:
                (pages,) = connection.execute("pragma page_count").fetchone()
                connection.execute(f"pragma max_page_count = {pages}")
            with pytest.raises(NotAppliedError, match=r"consensus store .* the disk is full: free"):
                writer.append([{"id": 9, "name": "x" * 30_000}])
            assert ids(shard) == [1, 2]
            with consensus._writing.connection() as connection:
                connection.execute("pragma max_page_count = 1000000")
            writer.append(GOOD)
            assert ids(shard) == [1, 2, 7]


def test_a_consensus_file_that_is_read_only_is_named(tmp_path):
    consensus = SqliteConsensus(tmp_path / CONSENSUS_FILE, busy_ms=100)
    with open_ports(FilesBlob(tmp_path / BLOB_FOLDER), consensus, IMPATIENT) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            writer.append(ROWS)
            with consensus._writing.connection() as connection:
                connection.execute("pragma query_only = on")
            with pytest.raises(NotAppliedError, match=r"consensus store .*read-only"):
                shard.retain("1h")
            with consensus._writing.connection() as connection:
                connection.execute("pragma query_only = off")
            shard.retain("1h")
            assert ids(shard) == [1, 2]


# ---- folders that are not what they should be


def filled(path):
    with open_store(str(path), upkeep=False, settings=IMPATIENT) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            writer.append(ROWS)
    return path


def a_file(path):
    path.write_text("hello")


def other_things(path):
    path.mkdir()
    (path / "photos.txt").write_text("hello")


def a_folder_in_place_of_the_file(path):
    (path / CONSENSUS_FILE).mkdir(parents=True)


def another_database(path):
    path.mkdir()
    with closing(sqlite3.connect(path / CONSENSUS_FILE)) as connection:
        connection.execute("create table mine (x)")


def no_database(path):
    path.mkdir()
    (path / CONSENSUS_FILE).write_bytes(b"hello " * 1000)


def an_empty_file(path):
    path.mkdir()
    (path / CONSENSUS_FILE).write_bytes(b"")


def a_newer_database(path):
    filled(path)
    with closing(sqlite3.connect(path / CONSENSUS_FILE)) as connection:
        connection.execute("pragma user_version = 2")


def a_cut_database(path):
    filled(path)
    whole = (path / CONSENSUS_FILE).read_bytes()
    (path / CONSENSUS_FILE).write_bytes(whole[: len(whole) // 2])


def a_link(path):
    path.mkdir()
    (path / "elsewhere.db").write_bytes(b"")
    (path / CONSENSUS_FILE).symlink_to(path / "elsewhere.db")


PLACES = [
    (a_file, UsageError, "is a file, not a folder"),
    (other_things, UsageError, r"holds other things \('photos.txt'\).*give an empty or a new"),
    (a_folder_in_place_of_the_file, StrandlineError, "consensus store"),
    (another_database, CorruptionError, "was not written by Strandline"),
    (no_database, CorruptionError, "is damaged, or is no SQLite file"),
    (an_empty_file, CorruptionError, "was not written by Strandline"),
    (a_newer_database, NewerFormatError, "has format 2, this version reads up to 1: upgrade"),
    (a_cut_database, CorruptionError, "consensus store .* is damaged"),
    (a_link, NotAppliedError, "symbolic link: links are never followed"),
]


@pytest.mark.parametrize(
    ("make", "kind", "message"), PLACES, ids=lambda v: getattr(v, "__name__", "")
)
def test_a_place_that_is_no_store_is_refused_by_name_and_left_as_it_was(
    make, kind, message, tmp_path
):
    path = tmp_path / "lake"
    make(path)
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    with pytest.raises(kind, match=message) as told:
        open_store(str(path), settings=IMPATIENT)
    assert "lake" in str(told.value)
    after = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert {p: data for p, data in after.items() if p in before} == before


def test_a_store_that_does_not_exist_is_not_created_when_nobody_asked(tmp_path):
    with pytest.raises(NotFoundError, match="there is no Strandline store in"):
        open_store(str(tmp_path / "lake"), create=False)
    assert not (tmp_path / "lake").exists()


def test_a_folder_that_is_deleted_while_it_is_open_is_noticed(tmp_path):
    path = filled(tmp_path / "lake")
    store = open_store(str(path), upkeep=False, settings=IMPATIENT)
    shard = store.shard("orders")
    shutil.move(path, tmp_path / "moved")
    with pytest.raises(NotAppliedError, match=r"consensus store .* has gone.*open the store again"):
        shard.snapshot()
    with pytest.raises(StrandlineError):
        shard.writer()
    assert not path.exists(), "it is not made again behind the owner's back"
    shutil.move(tmp_path / "moved", path)
    assert ids(shard) == [1, 2]
    store.close()


def test_handles_that_were_closed_say_so():
    store = open_store("memory://")
    shard = store.shard("orders", COLUMNS, ["id"])
    writer, reader = shard.writer(), shard.reader()
    writer.append(ROWS)
    snapshot = shard.snapshot()
    snapshot.close()
    writer.close()
    reader.close()
    for call in (lambda: writer.append(GOOD), reader.snapshot, snapshot.to_arrow):
        with pytest.raises(HandleClosedError, match="closed"):
            call()
    store.close()
    with pytest.raises(HandleClosedError, match="closed"):
        store.shard("orders")


def test_a_time_that_was_merged_away_says_from_where_on_it_can_be_read():
    with open_store("memory://", settings=IMPATIENT) as store:
        shard = store.shard("orders", COLUMNS, ["id"])
        with shard.writer() as writer:
            for each in range(5):
                writer.append([{"id": each, "name": "x"}])
        shard.retain("1 version")
        shard.compact(full=True)
        with pytest.raises(SinceError, match="oldest time") as told:
            shard.snapshot(0).to_arrow()
        assert told.value.oldest == 4
        assert ids(shard) == [0, 1, 2, 3, 4]
