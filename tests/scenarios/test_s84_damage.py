"""S84: whatever a disk does to what a store keeps is refused by name, or changes nothing."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from strandline.errors import CorruptionError, NotAppliedError, StrandlineError
from strandline.store.consensus import CasResult
from strandline.store.locate import BLOB_FOLDER, CONSENSUS_FILE, open_folder
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.specimen import (
    BLOB_KINDS,
    COLUMNS,
    KINDS,
    fill,
    kind_of,
    numbered,
    open_ports,
    read_all,
)
from strandline.upkeep.findings import Severity
from strandline.upkeep.fsck import fsck

SEED = 84
ROUNDS = 4
RAW_FLIPS = 40


class Folder:
    """A filled store in a folder: what it must show, and what can be done to it."""

    def __init__(self, path):
        self.path = path
        self.blobs = path / BLOB_FOLDER

    def copy(self, to):
        shutil.copytree(self.path, to)
        return Folder(to)

    def read(self):
        with open_ports(*open_folder(str(self.path), create=False)) as store:
            return read_all(store)

    def objects(self):
        found = {}
        for path in sorted(self.blobs.rglob("*.*")):
            found[str(path.relative_to(self.blobs))] = path
        return found

    def sql(self, statement, *values):
        with closing(sqlite3.connect(self.path / CONSENSUS_FILE)) as connection, connection:
            return connection.execute(statement, values).fetchall()

    def versions(self):
        return self.sql("select key, seqno, data from versions order by key, seqno")

    def rewrite(self, key, seqno, data):
        self.sql("update versions set data = ? where key = ? and seqno = ?", data, key, seqno)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("s84") / "lake"
    with open_ports(*open_folder(str(path), create=True)) as store:
        fill(store)
    return Folder(path)


@pytest.fixture(scope="module")
def content(whole, tmp_path_factory):
    return whole.copy(tmp_path_factory.mktemp("s84") / "copy").read()


def named(key, seqno):
    """How an error must name a version of a key."""
    head, _, name = key.partition("/")
    return {
        "store": "the store's mark",
        "shard": f"version v{seqno} of shard {name}",
        "timeline": f"version v{seqno} of {key}",
        "timeline-members": f"version v{seqno} of {key}",
        "pulse": f"pulse {name} at v{seqno}",
    }[head]


def flip(data, chance):
    at = chance.randrange(8 * len(data))
    changed = bytearray(data)
    changed[at // 8] ^= 1 << (at % 8)
    return bytes(changed)


def cut(data, chance):
    return data[: chance.randrange(len(data))]


def grown(data, chance):
    return data + chance.randbytes(chance.randint(1, 40))


def zeroed(data, chance):
    at = chance.randrange(len(data))
    return data[:at] + bytes(len(data) - at)


DAMAGES = {damage.__name__: damage for damage in (flip, cut, grown, zeroed)}


def verdict(folder, content, name):
    """`same` or `refused`; anything else is the failure that this file is about."""
    try:
        found = folder.read()
    except CorruptionError as error:
        if name not in str(error):
            return f"unnamed: {error}"
        return "refused"
    return "same" if found == content else "silently wrong"


def test_s84_the_specimen_has_every_kind_of_object(whole):
    kinds = {kind_of(key) for key in whole.objects()}
    kinds |= {kind_of(key) for key, _, _ in whole.versions()}
    assert kinds == KINDS


@pytest.mark.parametrize("kind", sorted(BLOB_KINDS.values()))
def test_s84_a_damaged_object_is_refused_by_name_and_statistics_rule_nothing_out(
    kind, whole, content, tmp_path
):
    chance = random.Random(f"{SEED} {kind}")
    keys = [key for key in whole.objects() if kind_of(key) == kind]
    results = Counter()
    folder = whole.copy(tmp_path / "lake")
    for damage in DAMAGES.values():
        for _ in range(ROUNDS):
            key = chance.choice(keys)
            path = folder.blobs / key
            intact = path.read_bytes()
            damaged = damage(intact, chance)
            path.write_bytes(damaged)
            if damaged != intact:
                results[verdict(folder, content, key)] += 1
            path.write_bytes(intact)
    allowed = {"same"} if kind == "stats" else {"refused"}
    assert set(results) == allowed, results
    assert folder.read() == content, "the damage was taken back, and all is there again"


@pytest.mark.parametrize("kind", sorted(BLOB_KINDS.values()))
def test_s84_a_missing_object_is_named(kind, whole, content, tmp_path):
    folder = whole.copy(tmp_path / "lake")
    keys = [key for key in whole.objects() if kind_of(key) == kind]
    for key in keys:
        path = folder.blobs / key
        intact = path.read_bytes()
        path.unlink()
        name = "shard orders can't be loaded" if kind == "manifest" else key
        assert verdict(folder, content, name) == ("same" if kind == "stats" else "refused")
        path.write_bytes(intact)


def test_s84_a_damaged_version_of_any_key_is_refused_by_name(whole, content, tmp_path):
    """Every version that a reader needs: the last one of each key included."""
    chance = random.Random(SEED)
    folder = whole.copy(tmp_path / "lake")
    results = Counter()
    for key, seqno, intact in whole.versions():
        if not is_read(whole, key, seqno):
            continue
        damage = chance.choice(list(DAMAGES.values()))
        damaged = damage(intact, chance)
        if damaged == intact:
            continue
        folder.rewrite(key, seqno, damaged)
        results[verdict(folder, content, named(key, seqno))] += 1
        folder.rewrite(key, seqno, intact)
    assert set(results) == {"refused"}, results
    assert results["refused"] > 20
    assert folder.read() == content


def is_read(whole, key, seqno):
    """Whether a read of all rows needs this version: old ticks are history, old pulses nothing."""
    last = max(n for k, n, _ in whole.versions() if k == key)
    if key.startswith("shard/"):
        manifests = [int(k.split("/v")[1].split("/")[0]) for k in whole.objects() if "/v" in k]
        return key != "shard/orders" or seqno > max(manifests) or seqno == last
    return seqno == last


DISORDERS = {
    "a missing number": lambda a, b: [(a[0], None)],
    "a duplicate": lambda a, b: [(b[0], a[1])],
    "a reordering": lambda a, b: [(a[0], b[1]), (b[0], a[1])],
}


@pytest.mark.parametrize("disorder", DISORDERS)
@pytest.mark.parametrize("shard", ["notes", "orders", "stock"])
def test_s84_versions_out_of_order_are_refused(disorder, shard, whole, content, tmp_path):
    folder = whole.copy(tmp_path / "lake")
    key = f"shard/{shard}"
    versions = [(n, data) for k, n, data in whole.versions() if k == key]
    for first, second in zip(versions[-3:], versions[-2:], strict=False):
        for seqno, data in DISORDERS[disorder](first, second):
            if data is None:
                folder.sql("delete from versions where key = ? and seqno = ?", key, seqno)
            else:
                folder.rewrite(key, seqno, data)
        assert verdict(folder, content, f"shard {shard}") == "refused"
        for seqno, data in versions:
            folder.sql("insert or replace into versions values (?, ?, ?)", key, seqno, data)
    assert folder.read() == content


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_s84_a_process_that_follows_refuses_a_version_that_is_missing(behind, whole, tmp_path):
    """Neither rows that are lost nor rows that come twice: nothing, and nothing is appended."""
    folder = whole.copy(tmp_path / "lake")
    with (
        open_ports(*open_folder(str(folder.path), create=False)) as ours,
        open_ports(*open_folder(str(folder.path), create=False)) as theirs,
    ):
        orders, followed = ours.shard("orders"), theirs.shard("orders")
        with orders.writer() as writer, followed.writer() as late:
            before = followed.state().seqno.number
            for number in range(4):
                writer.append(numbered(5000 + number, 1))
            at = before + behind
            [(data,)] = folder.sql(
                "select data from versions where key = 'shard/orders' and seqno = ?", at
            )
            folder.sql("delete from versions where key = 'shard/orders' and seqno = ?", at)
            for _ in range(2):
                with pytest.raises(CorruptionError, match="shard orders"):
                    followed.snapshot()
                with pytest.raises(CorruptionError, match="shard orders"):
                    late.append(numbered(6000, 1))
            folder.sql("insert into versions values ('shard/orders', ?, ?)", at, data)
            assert followed.snapshot().to_arrow() == orders.snapshot().to_arrow()


def test_s84_two_parts_or_two_lists_in_each_others_place_are_refused(whole, content, tmp_path):
    folder = whole.copy(tmp_path / "lake")
    parts = [path for key, path in folder.objects().items() if kind_of(key) == "part"]
    for one, other in pairwise(parts):
        first, second = one.read_bytes(), other.read_bytes()
        one.write_bytes(second)
        other.write_bytes(first)
        swapped = {str(p.relative_to(folder.blobs)) for p in (one, other)}
        with pytest.raises(CorruptionError) as refused:
            folder.read()
        assert any(key in str(refused.value) for key in swapped)
        one.write_bytes(first)
        other.write_bytes(second)
    assert folder.read() == content


def test_s84_a_flip_anywhere_in_the_consensus_file_is_never_a_silent_wrong_answer(
    whole, content, tmp_path
):
    """The whole file, SQLite's own pages included: refused, or without effect."""
    chance = random.Random(SEED)
    intact = (whole.path / CONSENSUS_FILE).read_bytes()
    results = Counter()
    for number in range(RAW_FLIPS):
        folder = whole.copy(tmp_path / f"lake{number}")
        (folder.path / CONSENSUS_FILE).write_bytes(flip(intact, chance))
        try:
            results["same" if folder.read() == content else f"silently wrong {number}"] += 1
        except (CorruptionError, NotAppliedError) as error:
            known = ("consensus store", "version v", "pulse", "the store's mark", "shard ")
            named = any(name in str(error) for name in known)
            results["refused" if named else f"unnamed: {error}"] += 1
        except StrandlineError as error:
            results[f"unforeseen {type(error).__name__}: {error}"] += 1
    assert set(results) <= {"same", "refused"}, results


class Contradiction(MemoryConsensus):
    """A store whose index was damaged: it has the next version already, and shows none."""

    broken = False

    def compare_and_set(self, key, new):
        return CasResult.MISMATCH if self.broken else super().compare_and_set(key, new)


def test_s84_a_version_that_can_neither_be_written_nor_read_is_an_error_and_not_an_endless_loop():
    consensus = Contradiction(lambda: 0)
    store = open_ports(MemoryBlob(), consensus)
    shard = store.shard("orders", COLUMNS)
    consensus.broken = True
    with pytest.raises(CorruptionError, match=r"version v1 of shard orders can neither .*fsck"):
        shard.retain("1h")
    consensus.broken = False
    store.close()


def test_s84_what_nothing_refers_to_is_ignored(whole, content, tmp_path):
    """Half-written objects and strangers' files have no effect, wherever they lie."""
    folder = whole.copy(tmp_path / "lake")
    part = next(path for key, path in folder.objects().items() if kind_of(key) == "part")
    half = part.read_bytes()[:100]
    (part.parent / ".put-000000000000000000000000").write_bytes(half)
    (part.parent / f"{'0' * 32}.parquet").write_bytes(half)
    (part.parent / "people leave things here.txt").write_bytes(b"hello")
    stranger = folder.blobs / part.relative_to(folder.blobs).parts[0] / f"w{'0' * 32}"
    stranger.mkdir()
    (stranger / f"{'1' * 32}.parquet").write_bytes(half)
    os.utime(part.parent / ".put-000000000000000000000000", (0, 0))
    assert folder.read() == content
    with open_ports(*open_folder(str(folder.path), create=False)) as store:
        report = fsck(store.env, store.leases)
        assert report.sound
        listed = " ".join(finding.thing for finding in report.of(Severity.LEFTOVER))
        assert f"w{'0' * 32}/{'1' * 32}.parquet" in listed
        assert ".put-000000000000000000000000" in listed
        orders = store.shard("orders")
        with orders.writer() as writer:
            writer.append(numbered(5000, 1))
        assert orders.snapshot().count() == len(content["orders as of 8"]) + 1


def test_s84_nothing_is_lost_by_a_read_that_failed(whole, content, tmp_path):
    """After the refusal the shard still takes appends, and once mended shows all rows."""
    folder = whole.copy(tmp_path / "lake")
    part = next(path for key, path in folder.objects().items() if kind_of(key) == "part")
    intact = part.read_bytes()
    part.write_bytes(intact[:-1])
    with open_ports(*open_folder(str(folder.path), create=False)) as store:
        orders = store.shard("orders")
        with pytest.raises(CorruptionError):
            orders.snapshot(8).to_arrow()
        with orders.writer() as writer:
            writer.append(numbered(5000, 1))
        part.write_bytes(intact)
        assert orders.snapshot().count() == len(content["orders as of 8"]) + 1
    assert Path(part).read_bytes() == intact, "evidence is kept, never mended or removed"
