"""The check of a store: a sound one is sound, and every kind of damage is named."""

from __future__ import annotations

import os
from dataclasses import replace

import msgspec
import pytest

from strandline.parts.stats import Range, decode_stats, encode_stats
from strandline.shard import command as c
from strandline.shard.pulses import begin_pulse
from strandline.store.consensus import Versioned
from strandline.store.files import FilesBlob
from strandline.testing.lab import Client
from strandline.upkeep.findings import Severity, check_rows
from strandline.upkeep.fsck import _Fsck, fsck
from strandline.upkeep.rounds import Wish

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


def test_leftovers_of_broken_writes_are_listed_and_only_old_ones_removed_by_repair(table, tmp_path):
    blob = FilesBlob(tmp_path)
    blob.put("somewhere/object", b"v")
    old, young = tmp_path / "somewhere/.put-old", tmp_path / "somewhere/.put-young"
    for file in (old, young):
        file.write_bytes(b"half")
    modified_ms = min(left.modified_ms for left in blob.leftovers())
    os.utime(old, (0, 0))
    table.lab.clock.now = modified_ms + 1000
    env = replace(table.env, blob=blob)
    found = _Fsck(env, table.leases)
    found._leftovers()
    assert {f.thing: f.severity for f in found.report.findings} == {
        "somewhere/.put-old": Severity.LEFTOVER,
        "somewhere/.put-young": Severity.NOTE,
    }
    assert old.exists()
    repaired = _Fsck(env, table.leases, repair=True)
    repaired._leftovers()
    [finding] = repaired.report.of(Severity.LEFTOVER)
    assert (finding.size, finding.repaired) == (4, True)
    assert not old.exists()
    assert young.exists()
    assert blob.get("somewhere/object") == b"v"
    blob.close()


def test_a_timeline_with_a_missing_member_is_noted_and_a_damaged_one_is_damage(lab):
    process = Client(lab)
    process.attach()
    process.own().close()
    assert fsck(process.env, process.leases).findings == []
    del lab.consensus._logs["shard/stock"]
    [finding] = fsck(process.env, process.leases).findings
    assert finding.severity is Severity.NOTE
    assert "stock does not exist" in finding.reason
    log = lab.consensus._logs["timeline/shop"]
    last = max(log.versions)
    log.versions[last] = Versioned(log.versions[last].seqno, b"nonsense")
    [finding] = fsck(process.env, process.leases).of(Severity.DAMAGE)
    assert finding.thing == "timeline shop"


def test_statistics_that_would_hide_rows_are_damage(table):
    state = table.state
    part = next(p for b in state.batches for p in b.parts if p.stats)
    known = decode_stats(part.stats)
    ids = {each.name: each.id for each in state.schema.fields}
    low = known.ranges[ids["id"]].low
    wrong = Range("i", low + 1, known.ranges[ids["id"]].high, 0)
    stats = encode_stats(replace(known, ranges={**known.ranges, ids["id"]: wrong}))
    updates = next(t for t in table.tables() if t.num_rows == part.rows)
    right = [*check_rows(part, updates, state.schema)]
    lying = [*check_rows(msgspec.structs.replace(part, stats=stats), updates, state.schema)]
    assert [reason for reason in lying if reason not in right] == [
        "the statistics of column id rule out rows that it has"
    ]


def test_without_repair_nobody_is_suspected(table, lab):
    other = lab.env()
    pulse = begin_pulse(other.consensus, other.random, lease_ms=1, owner="a process that died")
    table.machine.demand(c.RegisterReader("r" + "9" * 32, pulse.id, None, "gone"))
    key = f"pulse/{pulse.slot}"
    before = lab.consensus.head(key)
    for _ in range(5):
        lab.clock.now += 1000
        check(table)
    assert lab.consensus.head(key) == before


def recreated(table):
    """Drop a shard under a writer that has put a part which never counted, and create it anew."""
    state = table.state
    orphan = f"{state.id}/w{'5' * 32}/{'6' * 32}.parquet"
    table.lab.blob.put(orphan, b"four")
    table.machine.demand(c.Drop())
    new = f"s{table.env.random.token()}"
    table.machine.commit(c.Create("orders", new, state.schema, table.lab.clock.now))
    return state, orphan


def test_r18_what_a_dropped_shard_left_is_deleted_by_repair_unless_a_reader_may_need_it(table, lab):
    """R18."""
    pin = table.leases.own_reader(table.machine).pin()
    old, orphan = recreated(table)
    needed = {p.key for b in old.batches for p in b.parts}
    [finding] = check(table).of(Severity.LEFTOVER)
    assert (finding.thing, finding.size, finding.repaired) == (orphan, 4, False)
    assert orphan in table.objects()
    [finding] = check(table, repair=True).of(Severity.LEFTOVER)
    assert finding.repaired
    assert orphan not in table.objects()
    assert needed <= table.objects()
    pin.give_back()
    table.rounds.collector.collect(table.machine)
    assert not needed & table.objects()
    assert check(table).of(Severity.LEFTOVER) == []


def test_r18_what_no_record_names_is_reported_and_stays(table, lab):
    """R18: a store whose records were lost keeps its objects, whatever is asked."""
    before = table.objects()
    del lab.consensus._logs["shard/orders"]
    report = fsck(table.env, lab.leases(table.env), repair=True)
    assert table.objects() == before
    [finding] = report.findings
    assert finding.severity is Severity.NOTE
    assert "no record names" in finding.reason
