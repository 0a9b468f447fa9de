"""The check of a store: a sound one is sound, and every kind of damage is named."""

from __future__ import annotations

import pytest

from strandline.shard import command as c
from strandline.shard.findings import Severity
from strandline.shard.fsck import fsck
from strandline.shard.rounds import Wish

from .upkeep_lab import Table


@pytest.fixture
def table(lab):
    made = Table(lab, inline_max_bytes=0, manifest_every=5, moments_loose=6)
    for n in range(10):
        made.append(*((k, f"v{n}", 1) for k in range(n * 10, n * 10 + 10)))
    made.rounds.run_once(made.machine)
    made.append((1000, "late", 1))
    return made


def check(table, **options):
    return fsck(table.env, table.leases, **options)


@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_store_is_found_sound(table, deep):
    told = []
    report = check(table, deep=deep, report=lambda *step: told.append(step))
    assert report.sound, report.findings
    assert report.of(Severity.LEFTOVER) == []
    assert report.shards == 1
    assert told[-1][0] == "done"
    table.check()


def test_after_compaction_it_is_sound_too(table):
    table.retain(count=1)
    table.rounds.compact(table.machine, Wish(full=True))
    assert check(table, deep=True).sound


def test_a_missing_object_is_damage(table, lab):
    part = table.parts()[0]
    lab.blob.delete(part.key)
    [finding] = check(table).of(Severity.DAMAGE)
    assert part.key in finding.thing
    assert "missing" in finding.reason
    assert finding.advice


def test_a_short_object_is_damage(table, lab):
    part = table.parts()[0]
    lab.blob._objects[part.key] = lab.blob.get(part.key)[:-1]
    [finding] = check(table).of(Severity.DAMAGE)
    assert part.key in finding.thing


def test_a_flipped_bit_is_found_by_a_deep_check_only(table, lab):
    part = table.parts()[0]
    content = bytearray(lab.blob.get(part.key))
    content[len(content) // 2] ^= 1
    lab.blob._objects[part.key] = bytes(content)
    assert check(table).sound
    [finding] = check(table, deep=True).of(Severity.DAMAGE)
    assert part.key in finding.thing


def test_a_damaged_list_of_times_is_found_by_a_deep_check(table, lab):
    [chunk] = table.state.moment_chunks
    content = bytearray(lab.blob.get(chunk.key))
    content[-1] ^= 1
    lab.blob._objects[chunk.key] = bytes(content)
    [finding] = check(table, deep=True).of(Severity.DAMAGE)
    assert chunk.key in finding.thing


def test_a_damaged_record_is_damage_and_other_shards_are_still_checked(table, lab):
    other = Table(lab, name="stock")
    other.append((1, "x", 1))
    log = lab.consensus._logs["shard/orders"]
    last = len(log.versions) - 1
    from strandline.store.consensus import Versioned

    log.versions[last] = Versioned(log.versions[last].seqno, b"nonsense")
    report = check(table)
    assert {finding.shard for finding in report.of(Severity.DAMAGE)} == {"orders"}
    assert report.shards == 2


def test_orphans_are_listed_and_only_repair_deletes_them(table, lab):
    orphan = f"{table.state.id}/w{'5' * 32}/{'6' * 32}.parquet"
    lab.blob.put(orphan, b"four")
    [finding] = check(table).of(Severity.LEFTOVER)
    assert (finding.thing, finding.size, finding.repaired) == (orphan, 4, False)
    assert orphan in table.objects()
    before = table.objects()
    [finding] = check(table, repair=True).of(Severity.LEFTOVER)
    assert finding.repaired
    assert before - table.objects() == {orphan}
    table.check()


def test_repair_never_touches_damage(table, lab):
    part = table.parts()[0]
    lab.blob._objects[part.key] = b"garbage"
    before = table.objects()
    assert not check(table, deep=True, repair=True).sound
    assert table.objects() == before


def test_leases_of_the_dead_are_listed_and_dropped_by_repair(table):
    table.machine.demand(c.RegisterReader("r" + "9" * 32, "77.0", None, "gone"))
    [finding] = check(table).of(Severity.LEFTOVER)
    assert "r999" in finding.thing
    assert not finding.repaired
    [finding] = check(table, repair=True).of(Severity.LEFTOVER)
    assert finding.repaired
    assert "r" + "9" * 32 not in table.state.readers


def test_chunks_are_checked_with_the_parts_they_list(lab):
    table = Table(lab, inline_max_bytes=0, part_target_bytes=3000, unit_max_bytes=1 << 23)
    table.retain(count=1)
    table.append(*((k, f"{k * 7919:040x}", 1) for k in range(9000)))
    table.rounds.compact(table.machine, Wish(full=True))
    assert any(batch.chunks for batch in table.state.batches)
    assert check(table, deep=True).sound
    part = table.parts()[3]
    lab.blob.delete(part.key)
    [finding] = check(table).of(Severity.DAMAGE)
    assert part.key in finding.thing


def test_a_dropped_shard_is_sound(table):
    table.machine.demand(c.Drop())
    assert check(table, deep=True).sound


def test_a_shard_that_does_not_exist_is_said_so(table):
    assert not check(table, names=["nowhere"]).sound


def test_leftovers_of_broken_writes_are_found_in_folders(table, tmp_path):
    from dataclasses import replace

    from strandline.store.files import FilesBlob

    blob = FilesBlob(tmp_path)
    report = fsck(replace(table.env, blob=blob), table.leases, names=[])
    assert report.findings == []
    blob.close()
