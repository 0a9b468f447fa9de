"""X17: an object in another one's place, or an older one in its own, is refused."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

from strandline.errors import CorruptionError
from strandline.store.locate import BLOB_FOLDER, CONSENSUS_FILE, open_folder
from strandline.testing.specimen import COLUMNS, fill, kind_of, numbered, open_ports, read_all


class Place:
    """A filled store, with a second shard that looks like the first."""

    def __init__(self, path):
        self.path = path

    def objects(self, kind):
        blobs = self.path / BLOB_FOLDER
        found = {str(file.relative_to(blobs)): file for file in sorted(blobs.rglob("*.*"))}
        return [file for key, file in found.items() if kind_of(key) == kind]

    def sql(self, statement, *values):
        with closing(sqlite3.connect(self.path / CONSENSUS_FILE)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def read(self):
        with open_ports(*open_folder(str(self.path), create=False)) as store:
            found = read_all(store)
            found["twin"] = sorted(store.shard("twin").snapshot().to_arrow()["id"].to_pylist())
            return found


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("x17") / "lake"
    with open_ports(*open_folder(str(path), create=True)) as store:
        fill(store)
        twin = store.shard("twin", COLUMNS, ["id"])
        with twin.writer() as writer:
            for each in range(6):
                writer.append(numbered(100 * each, 30))
        store.upkeep.run_once(twin.machine)
    return path


@pytest.fixture
def place(original, tmp_path):
    shutil.copytree(original, tmp_path / "lake")
    return Place(tmp_path / "lake")


def swap(one, other):
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def test_the_original_reads(place):
    assert place.read()["twin"]


@pytest.mark.parametrize("kind", ["part", "manifest"])
def test_two_objects_of_a_kind_that_were_swapped_are_refused(kind, place):
    first, *_, last = place.objects(kind)
    swap(first, last)
    with pytest.raises(CorruptionError, match=r"damaged|not what it should be|is damaged"):
        place.read()


def test_a_part_of_another_shard_with_the_same_size_and_checksum_would_still_be_refused(place):
    """The footer says whose part it is; the state's checksum is only the first line."""
    from strandline.parts.envelope import checksum
    from strandline.parts.parquet import Owner, decode_part, encode_part
    from strandline.parts.part import Part

    with open_ports(*open_folder(str(place.path), create=False)) as store:
        schema = store.shard("orders").state().schema
    rows = numbered(0, 3).cast(schema.arrow())
    theirs = Owner(f"s{'1' * 32}", f"s{'1' * 32}/w{'2' * 32}/{'3' * 32}.parquet")
    ours = Owner(f"s{'4' * 32}", f"s{'4' * 32}/w{'5' * 32}/{'6' * 32}.parquet")
    encoded = encode_part(rows, theirs)
    part = Part(ours.key, len(encoded), checksum(encoded), 3, b"", 0, 0, True, 0, 0, 0, 1)
    with pytest.raises(CorruptionError, match=f"it is {theirs.key} of {theirs.shard}"):
        decode_part(encoded, part, schema, owner=ours)


def test_a_manifest_copied_from_another_shard_is_refused(place):
    manifests = place.objects("manifest")
    assert len(manifests) >= 2
    manifests[0].write_bytes(manifests[-1].read_bytes())
    with pytest.raises(CorruptionError, match=r"manifest .* is damaged"):
        place.read()


def test_a_manifest_copied_with_its_reference_is_still_refused():
    """Even if the checksum is made to fit: the seal says whose manifest it is."""
    from strandline.model.ids import SeqNo
    from strandline.shard.codec import decode_manifest
    from strandline.store.memory import MemoryBlob, MemoryConsensus

    blob, consensus = MemoryBlob(), MemoryConsensus(iter(range(10**12, 10**13)).__next__)
    with open_ports(blob, consensus) as store:
        fill(store)
        manifest = store.shard("orders").state().manifest
    data = blob.get(manifest.key)
    decode_manifest("orders", SeqNo(manifest.seqno), data, manifest.key)
    for name, seqno in (("stock", manifest.seqno), ("orders", manifest.seqno + 1)):
        with pytest.raises(CorruptionError, match="not what it should be"):
            decode_manifest(name, SeqNo(seqno), data, manifest.key)


RECORDS = {
    "a record copied to the next number": (
        "update versions set data = (select data from versions where key = 'shard/notes' "
        "and seqno = 3) where key = 'shard/notes' and seqno = 4"
    ),
    "a record of another shard": (
        "update versions set data = (select data from versions where key = 'shard/stock' "
        "and seqno = 4) where key = 'shard/notes' and seqno = 4"
    ),
    "the head rolled back to an older record": (
        "update versions set data = (select data from versions where key = 'shard/notes' "
        "and seqno = 0) where key = 'shard/notes' and seqno = 5"
    ),
    "a timeline rolled back": (
        "update versions set data = (select data from versions where key = 'timeline/shop' "
        "and seqno = 1) where key = 'timeline/shop' and seqno = 2"
    ),
    "members in the place of ticks": (
        "update versions set data = (select data from versions where key = "
        "'timeline-members/shop') where key = 'timeline/shop' and seqno = 2"
    ),
    "a mark in the place of a pulse": (
        "update versions set data = (select data from versions where key = 'store') "
        "where key = 'pulse/0'"
    ),
}


@pytest.mark.parametrize("case", RECORDS)
def test_a_record_in_the_place_of_another_is_refused(case, place):
    before = place.read()
    place.sql(RECORDS[case])
    with pytest.raises(CorruptionError, match="is not what it should be: found"):
        place.read()
    assert before["shards"]


def test_a_part_rolled_back_to_an_older_valid_one_is_refused(place):
    """Objects are never rewritten, so an older version is another object: another key."""
    old, *_, new = place.objects("part")
    new.write_bytes(old.read_bytes())
    with pytest.raises(CorruptionError, match="is damaged"):
        place.read()
