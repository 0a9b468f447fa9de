"""X20: today's code reads what format 1 wrote, and refuses by name what a newer one wrote.

what was written by     old code (format 1)            today's code
--------------------    -----------------------------  ----------------------------
format 1                reads and writes               reads and writes (golden store)
a newer format          refused by name, untouched     refused by name, untouched
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.errors import CorruptionError, NewerFormatError
from strandline.parts.envelope import checksum
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.part import Part
from strandline.store.locate import BLOB_FOLDER, CONSENSUS_FILE, open_folder
from strandline.testing.specimen import KINDS, kind_of, numbered, open_ports, read_all
from strandline.upkeep.fsck import fsck

STORES = Path(__file__).parent.parent / "golden" / "stores"
CONTENT = json.loads((STORES / "format1.json").read_text())


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(STORES / "format1.tar.xz") as archive:
        # The golden archive is ours; early releases of Python 3.11 know no filters yet.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safe)
    return folder / "lake"


@pytest.fixture
def golden(unpacked, tmp_path):
    shutil.copytree(unpacked, tmp_path / "lake")
    return tmp_path / "lake"


def opened(path):
    return open_ports(*open_folder(str(path), create=False))


def plain(content):
    return json.loads(json.dumps(content))


def test_a_store_of_format_1_reads_as_it_always_did(golden):
    with opened(golden) as store:
        assert plain(read_all(store)) == CONTENT
        assert fsck(store.env, store.leases, deep=True).sound


def test_a_store_of_format_1_is_written_compacted_and_read_again(golden):
    with opened(golden) as store:
        orders = store.shard("orders")
        with orders.writer() as writer:
            writer.append(numbered(9000, 5))
        orders.compact(full=True)
    with opened(golden) as store:
        found = plain(read_all(store))
        assert fsck(store.env, store.leases, deep=True).sound
    before = CONTENT["orders as of 8"]
    assert found["orders as of 8"] == before
    assert len(found["orders as of 9"]) == len(before) + 5
    assert found["notes as of 2"] == CONTENT["notes as of 2"]


def newer(data):
    """The same object, as a format 2 would mark it."""
    return data[:4] + (2).to_bytes(2, "big") + data[6:]


def rewrite(path, kind):
    """Mark every object of a kind as newer; whether there was any."""
    found = False
    for file in sorted((path / BLOB_FOLDER).rglob("*.*")):
        if kind_of(str(file.relative_to(path / BLOB_FOLDER))) == kind:
            file.write_bytes(newer(file.read_bytes()))
            found = True
    with closing(sqlite3.connect(path / CONSENSUS_FILE)) as connection, connection:
        for key, seqno, data in connection.execute("select * from versions").fetchall():
            if kind_of(key) == kind:
                where = (newer(data), key, seqno)
                connection.execute(
                    "update versions set data = ? where key = ? and seqno = ?", where
                )
                found = True
    return found


CONSENSUS = sorted({"mark", "record", "tick", "members", "pulse"})


@pytest.mark.parametrize("kind", CONSENSUS)
def test_a_newer_version_of_a_key_is_refused_by_name_and_left_as_it_is(kind, golden):
    assert rewrite(golden, kind)
    before = files(golden)
    with pytest.raises(NewerFormatError, match=r"has format 2, .*upgrade"), opened(golden) as store:
        read_all(store)
    after = files(golden)
    blobs = {name: data for name, data in before.items() if name.startswith(BLOB_FOLDER)}
    assert {name: after[name] for name in blobs} == blobs


@pytest.mark.parametrize("kind", sorted(KINDS - set(CONSENSUS) - {"part"}))
def test_a_newer_object_is_refused_by_name(kind, golden):
    """A state of format 1 would not refer to one, so its checksum already tells."""
    assert rewrite(golden, kind)
    if kind == "stats":
        with opened(golden) as store:
            assert plain(read_all(store)) == CONTENT, (
                "statistics of a newer format rule nothing out"
            )
        return
    with pytest.raises(CorruptionError, match=r"damaged|format 2"), opened(golden) as store:
        read_all(store)


def test_a_newer_part_is_refused_by_name(golden):
    with opened(golden) as store:
        schema = store.shard("orders").state().schema
    owner = Owner(f"s{'1' * 32}", f"s{'1' * 32}/w{'2' * 32}/{'3' * 32}.parquet")
    facts = {
        "strandline.format": "2",
        "strandline.shard": owner.shard,
        "strandline.key": owner.key,
    }
    sink = pa.BufferOutputStream()
    pq.write_table(numbered(0, 3).replace_schema_metadata(facts), sink)
    encoded = sink.getvalue().to_pybytes()
    part = Part(owner.key, len(encoded), checksum(encoded), 3, b"", 0, 0, True, 0, 0, 0, 1)
    with pytest.raises(NewerFormatError, match=f"part {owner.key} has format 2.*upgrade"):
        decode_part(encoded, part, schema, owner=owner)


def test_a_newer_consensus_file_is_refused_and_left_as_it_is(golden):
    with closing(sqlite3.connect(golden / CONSENSUS_FILE)) as connection:
        connection.execute("pragma user_version = 2")
    before = files(golden)
    with pytest.raises(NewerFormatError, match=r"consensus store .* has format 2"):
        opened(golden)
    assert files(golden) == before


def files(path):
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.endswith(("-shm", "-wal"))
    }
