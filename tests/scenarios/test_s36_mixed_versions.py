"""S36: a stale initialisation never wins, and a name has one shard at a time."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest

from strandline.errors import (
    HandleClosedError,
    LeaseLostError,
    NotFoundError,
    SchemaError,
)
from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.store.locate import open_folder
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.specimen import COLUMNS, fill, numbered, open_ports, read_all


def memory(_path):
    return MemoryBlob(), MemoryConsensus(iter(range(10**12, 10**13)).__next__)


def folder(path):
    return open_folder(str(path / "lake"), create=True)


@pytest.fixture(params=[memory, folder])
def ports(request, tmp_path):
    return request.param(tmp_path)


def test_s36_a_stale_initialisation_of_a_truncated_shard_is_rejected(ports):
    """Whoever decided to create the shard long ago comes late with its first version."""
    blob, consensus = ports
    with open_ports(blob, consensus) as store:
        stale = _first_version(consensus, store)
        fill(store)
        content = read_all(store)
        assert consensus.scan("shard/orders", SeqNo(0), 1)[0].seqno > SeqNo(0), "truncated"
        assert consensus.compare_and_set("shard/orders", stale) is CasResult.MISMATCH
        assert read_all(store) == content


def _first_version(consensus, store):
    """The very bytes that created the shard."""
    store.shard("orders", COLUMNS, ["id"])
    return consensus.scan("shard/orders", SeqNo(0), 1)[0]


def test_s36_a_stale_initialisation_of_the_store_its_pulses_and_timelines_is_rejected(ports):
    blob, consensus = ports
    with open_ports(blob, consensus) as store:
        fill(store)
        content = read_all(store)
        for key in consensus.keys(""):
            if not key.startswith("shard/"):
                head = consensus.head(key)
                consensus.truncate(key, head.seqno)
                stale = Versioned(SeqNo(0), head.data)
                assert consensus.compare_and_set(key, stale) is CasResult.MISMATCH, key
        assert read_all(store) == content


def test_s36_a_process_that_opens_a_shard_with_other_columns_is_told(ports):
    with open_ports(*ports) as store:
        fill(store)
        with pytest.raises(SchemaError, match=r"shard orders exists with other columns \(id, name"):
            store.shard("orders", pa.schema([("id", pa.string())]), ["id"])
        with pytest.raises(SchemaError, match="has the key"):
            store.shard("orders", COLUMNS, ["name"])


def test_s36_a_name_that_is_used_again_is_a_new_shard_and_old_handles_say_so(ports):
    blob, consensus = ports
    with open_ports(blob, consensus) as store:
        old = store.shard("orders", COLUMNS, ["id"])
        writer, reader = old.writer(), old.reader()
        writer.append(numbered(0, 3))
        snapshot = old.snapshot()
        first = old.state().id
        store.drop("orders")
        with pytest.raises(NotFoundError, match="shard orders was dropped"):
            store.shard("orders")
        with pytest.raises(NotFoundError, match="dropped"):
            old.snapshot()
        assert store.shards() == []
        new = store.shard("orders", pa.schema([("other", pa.string())]))
        assert new.state().id != first
        assert new.upper.time == 0
        told = (LeaseLostError, NotFoundError, HandleClosedError, SchemaError)
        with pytest.raises(told):
            writer.append(numbered(5, 1))
        with pytest.raises(told):
            reader.snapshot()
        with pytest.raises(told):
            old.snapshot(0, timeout_ms=0).to_arrow()
        snapshot.close()
        with new.writer() as fresh:
            fresh.append(pa.table({"other": ["x"]}))
        assert new.snapshot().to_arrow().to_pylist() == [{"other": "x"}]


def test_s36_what_a_creation_that_died_left_behind_does_not_stop_the_next_one(tmp_path):
    path = tmp_path / "lake"
    path.mkdir()
    (path / ".new-000000000000000000000000").write_bytes(b"half")
    (path / "blobs").mkdir()
    with open_ports(*open_folder(str(path), create=True)) as store:
        assert store.shards() == []


CREATOR = """
    import sys
    import pyarrow as pa
    from strandline.assembly import open_store
    sys.stdin.readline()
    with open_store(sys.argv[1], upkeep=False) as store:
        shard = store.shard("orders", pa.schema([("id", pa.int64())]), ["id"])
        with shard.writer() as writer:
            writer.append(pa.table({"id": [int(sys.argv[2])]}))
        print(store.id, shard.state().id)
"""


@pytest.mark.process
def test_s36_processes_that_create_the_same_store_and_shard_at_once_agree_on_one_id(tmp_path):
    script, path = textwrap.dedent(CREATOR), str(tmp_path / "lake")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", script, path, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = {racer.communicate(timeout=60)[0] for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert len(answers) == 1
    with open_ports(*open_folder(path, create=False)) as store:
        ids = store.shard("orders").snapshot().to_arrow().column("id").to_pylist()
    assert sorted(ids) == [0, 1, 2]
