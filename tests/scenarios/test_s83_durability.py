"""S83: what was acknowledged survives a power cut at any call, and so does all that it needs."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from strandline.model.ids import SeqNo
from strandline.shard.settings import Settings
from strandline.store.consensus import Versioned
from strandline.store.files import FilesBlob
from strandline.store.memory import MemoryConsensus
from strandline.store.sqlite import SqliteConsensus
from strandline.testing.disk import ForgetfulDisk, PowerCutError
from strandline.testing.specimen import COLUMNS, numbered, open_ports

SETTINGS = Settings(
    inline_max_bytes=0,
    manifest_every=3,
    fanout=2,
    fetch_concurrency=1,
    commit_deadline_ms=200,
    read_deadline_ms=50,
)
APPENDS = 4
# What a power cut leaves: as little as it may, or what a generator draws.
REMAINS = [None, 1, 2]


class NoFolderSync(ForgetfulDisk):
    """The mutant: files are synced, and the folders that name them are not."""

    def sync(self, descriptor):
        if "content" in dir(self._open.get(descriptor)):
            super().sync(descriptor)


class NoFileSync(ForgetfulDisk):
    """The other mutant: names survive, and what they stand for does not."""

    def sync(self, descriptor):
        if "content" not in dir(self._open.get(descriptor)):
            super().sync(descriptor)


class Machine:
    """A computer with one disk; consensus is kept elsewhere and forgets nothing."""

    def __init__(self, disk):
        self.disk = disk
        self.consensus = MemoryConsensus(iter(range(10**12, 10**13)).__next__)
        self.acknowledged = []

    def open(self):
        return open_ports(FilesBlob(Path("lake"), self.disk), self.consensus.client(), SETTINGS)

    def work(self, cut_at):
        """Append and tend until the power goes, after so many calls; whether it did."""
        self.disk.cut_at = None
        store = self.open()
        shard = store.shard("orders", COLUMNS, ["id"])
        writer = shard.writer()
        self.disk.calls.clear()
        self.disk.cut_at = cut_at
        try:
            for each in range(APPENDS):
                writer.append(numbered(10 * each, 3))
                self.acknowledged += range(10 * each, 10 * each + 3)
                store.upkeep.run_once(shard.machine)
        except PowerCutError:
            return True
        finally:
            store.close()  # It reaches consensus only, and lets the tasks of the dead end.
        return False

    def ids(self):
        with self.open() as store:
            found = store.shard("orders").snapshot(timeout_ms=0).to_arrow()
            return sorted(found.column("id").to_pylist())


def losses(disk_type, remains):
    """Cut the power at every call in turn; what went missing, by the number of the call."""
    found = {}
    cuts = 0
    while True:
        machine = Machine(disk_type())
        if not machine.work(cuts):
            return found, cuts
        machine.disk.power_cut(None if remains is None else random.Random(f"{remains} {cuts}"))
        if machine.acknowledged:
            seen = None
            # A part that is gone is damage to the reader, and the loss to this test.
            with suppress(Exception):
                seen = machine.ids()
            if seen is None or not set(machine.acknowledged) <= set(seen):
                found[cuts] = (machine.acknowledged, seen)
        cuts += 1


@pytest.mark.parametrize("remains", REMAINS)
def test_s83_an_acknowledged_append_survives_a_power_cut_at_every_call(remains):
    lost, cuts = losses(ForgetfulDisk, remains)
    assert cuts > 50, "appends, compactions, manifests and deletions were all cut"
    assert lost == {}


@pytest.mark.parametrize("mutant", [NoFolderSync, NoFileSync])
def test_s83_a_store_that_does_not_sync_is_caught(mutant):
    lost, _ = losses(mutant, None)
    assert lost


def test_s83_upkeep_deletes_nothing_before_what_replaces_it_is_durable():
    """Without any cut: all rows are there, from fewer objects than were put."""
    machine = Machine(ForgetfulDisk())
    assert not machine.work(None)
    machine.disk.power_cut()
    assert machine.ids() == machine.acknowledged
    assert len(machine.acknowledged) == 3 * APPENDS


def test_s83_every_commit_of_the_consensus_file_is_synced(tmp_path):
    """WAL with FULL syncs the log at each commit: acknowledged is on the disk (SQLite's words)."""
    consensus = SqliteConsensus(tmp_path / "consensus.db")
    for lane in (consensus._writing, consensus._reading):
        with lane.connection() as connection:
            (synchronous,) = connection.execute("pragma synchronous").fetchone()
            (full,) = connection.execute("pragma fullfsync").fetchone()
            (mode,) = connection.execute("pragma journal_mode").fetchone()
        assert (synchronous, full, mode) == (2, 1, "wal")
    consensus.close()


def test_s83_what_is_acknowledged_is_in_the_files_and_not_in_the_process(tmp_path):
    """The files as they are at this moment, without a goodbye, hold every version."""
    consensus = SqliteConsensus(tmp_path / "consensus.db")
    for number in range(5):
        consensus.compare_and_set("shard/a", Versioned(SeqNo(number), b"x" * 100))
        images = {path.name: path.read_bytes() for path in tmp_path.glob("consensus.db*")}
        after = tmp_path / f"after{number}"
        after.mkdir()
        for name, data in images.items():
            if not name.endswith("-shm"):  # Shared memory: gone when the power goes.
                (after / name).write_bytes(data)
        again = SqliteConsensus(after / "consensus.db")
        assert again.head("shard/a").seqno == SeqNo(number)
        again.close()
    consensus.close()
