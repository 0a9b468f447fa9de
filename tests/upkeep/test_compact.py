"""Compaction: whatever it does, every readable time reads as before."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.shard import command as c
from strandline.shard.state import Retention
from strandline.upkeep import outputs
from strandline.upkeep.rounds import Wish
from strandline.upkeep.units import RESIDUE

from .upkeep_lab import Table


def fill(table, *, appends, keys=20, seed=0, rows=8):
    """Random insertions and retractions of rows that are there."""
    chance = random.Random(seed)
    live: dict[int, str] = {}
    for n in range(appends):
        updates = []
        for key in chance.sample(range(keys), min(rows, keys)):
            if key in live:
                updates.append((key, live.pop(key), -1))
            if chance.random() < 0.7:
                live[key] = f"v{n}"
                updates.append((key, live[key], 1))
        table.append(*(updates or [(0, "x", 1)]))


@pytest.mark.parametrize("key", [("id",), ()])
@pytest.mark.parametrize("inline", [0, 1 << 15])
@pytest.mark.parametrize("count", [1, 5, None])
def test_after_every_append_and_round_every_readable_time_reads_the_same(lab, key, inline, count):
    table = Table(lab, key=key, inline_max_bytes=inline, inline_flush_batches=7)
    table.retain(count=count)
    for n in range(12):
        fill(table, appends=3, seed=n)
        table.rounds.run_once(table.machine)
        table.check()
    table.rounds.compact(table.machine, Wish(full=True))
    table.check()
    assert len(table.parts()) <= 3


@pytest.mark.parametrize("key", [("id",), ()])
@pytest.mark.parametrize("count", [1, 5, None])
def test_divided_parts_read_the_same_and_come_to_rest(lab, key, count, monkeypatch):
    monkeypatch.setattr(outputs, "DIVIDE_BYTES", 1)
    table = Table(lab, key=key, inline_max_bytes=0, fanout=3)
    table.retain(count=count)
    divided = False
    for n in range(8):
        fill(table, appends=4, seed=n)
        table.rounds.run_once(table.machine)
        table.check()
        kinds = {(part.base, part.inserts) for part in table.parts()}
        divided = divided or {(False, True), (False, False)} <= kinds
    assert divided or count == 1
    table.rounds.compact(table.machine, Wish(full=True))
    table.check()
    assert len(table.parts()) <= 3
    before = {part.key for part in table.parts()}
    table.rounds.compact(table.machine, Wish(full=True))
    assert {part.key for part in table.parts()} == before


def test_a_full_compaction_leaves_base_parts_of_live_rows(lab):
    table = Table(lab, inline_max_bytes=0)
    table.retain(count=1)
    fill(table, appends=30)
    table.rounds.compact(table.machine, Wish(full=True))
    table.check()
    [base] = table.parts()
    assert base.base
    assert base.rows == sum(table.expected(29).values())
    assert (base.t_min, base.t_max) == (29, 29)


def test_rows_that_occur_more_than_once_are_repeated_and_very_many_stay_a_diff(lab):
    table = Table(lab)
    table.retain(count=1)
    table.append((1, "three", 3), (2, "many", 1024), (3, "more", 1025), (4, "negative", -2))
    table.append((5, "one", 1))
    table.rounds.compact(table.machine, Wish(full=True))
    table.check()
    base = next(part for part in table.parts() if part.base)
    rest = next(part for part in table.parts() if not part.base)
    assert base.rows == 3 + 1024 + 1
    assert (rest.rows, rest.level) == (2, RESIDUE)
    before = table.state.seqno
    table.rounds.compact(table.machine, Wish(full=True))
    assert {part.key for part in table.parts()} == {base.key, rest.key}, before


def test_everything_that_cancels_leaves_nothing(lab):
    table = Table(lab, inline_max_bytes=0)
    table.retain(count=1)
    table.append((1, "a", 1), (2, "b", 2))
    table.append((1, "a", -1), (2, "b", -2))
    table.rounds.compact(table.machine, Wish(full=True))
    table.check()
    assert table.state.batches == ()
    assert table.state.total == Digest.ZERO
    table.append((1, "a", 1))
    table.check()


def test_small_ranges_split_and_stay_in_order(lab):
    table = Table(lab, inline_max_bytes=0, part_target_bytes=6_000, unit_max_bytes=60_000)
    table.retain(count=1)
    for n in range(6):
        table.append(*((n * 500 + k, f"name {n} {k}", 1) for k in range(500)))
        table.rounds.run_once(table.machine)
        table.check()
    table.rounds.compact(table.machine, Wish(full=True))
    table.check()
    parts = sorted(table.parts(), key=lambda part: part.place_lo)
    assert len(parts) >= 4
    assert all(part.base for part in parts)
    for one, other in pairwise(parts):
        assert one.place_hi < other.place_lo


def test_many_outputs_go_into_chunks_and_come_out_of_them_again(lab):
    table = Table(lab, inline_max_bytes=0, part_target_bytes=3000, unit_max_bytes=1 << 23)
    table.retain(count=1)
    chance = random.Random(0)
    names = [chance.randbytes(40).hex() for _ in range(8000)]
    table.append(*((k, name, 1) for k, name in enumerate(names)))
    table.rounds.compact(table.machine, Wish(full=True))
    table.check()
    assert any(batch.chunks for batch in table.state.batches)
    for n in range(4):
        table.append(*((k, names[k], -1) for k in range(n * 300, n * 300 + 300)))
        table.rounds.compact(table.machine, Wish(full=True))
        table.check()
    assert table.stored(table.time - 1) == table.expected(table.time - 1)


def test_two_compactors_at_once_do_the_work_once(lab):
    ours = Table(lab, inline_max_bytes=0)
    ours.retain(count=1)
    fill(ours, appends=20)
    theirs = Table(lab)
    theirs.model, theirs.time = ours.model, ours.time
    from strandline.shard.chunks import Chunks
    from strandline.upkeep.compact import Work, carry_out
    from strandline.upkeep.compaction import plan
    from strandline.upkeep.units import policy_of

    works = []
    for side in (ours, theirs):
        side.rounds._advance(side.machine, None)
        pin = side.leases.own_reader(side.machine).pin()
        state = pin.state()
        policy = policy_of(side.env.settings)
        [unit] = plan(state, {}, policy, full=True)
        writer = side.leases.writer(side.machine, purpose="test")
        works.append((Work(side.machine, writer, Chunks(side.env, "orders"), policy), state, unit))
    assert carry_out(*works[0])
    before = ours.objects()
    assert not carry_out(*works[1])
    assert ours.objects() == before, "the second one's outputs are deleted"
    ours.check()


def test_an_append_during_a_compaction_neither_waits_nor_fails(lab):
    table = Table(lab, inline_max_bytes=0)
    table.retain(count=1)
    fill(table, appends=20)
    appended = []

    def report(what, done, total):
        if not appended:
            appended.append(what)
            table.append((999, "meanwhile", 1))

    table.rounds.compact(table.machine, Wish(full=True, report=report))
    assert appended
    table.check()


@pytest.mark.parametrize("inline", [0, 32 * 1024])
@pytest.mark.parametrize("full", [True, False])
def test_a_compaction_ends_although_appends_go_on_and_since_moves(lab, inline, full):
    table = Table(lab, inline_max_bytes=inline, inline_flush_batches=4)
    table.retain(count=1)
    fill(table, appends=20)
    passes = []

    def report(what, done, total):
        passes.append(what)
        assert len(passes) < 100
        fill(table, appends=10)
        table.rounds._advance(table.machine, None)

    table.rounds.compact(table.machine, Wish(full=full, report=report))
    # All there was, once or in a few passes that each have less left to merge.
    assert 0 < len(passes) <= 6
    table.check()


def test_damage_is_noticed_before_anything_is_swapped(lab):
    table = Table(lab, inline_max_bytes=0)
    table.retain(count=1)
    fill(table, appends=4)
    victim = table.parts()[0]
    lab.blob._objects[victim.key] = lab.blob._objects[victim.key][:-1] + b"x"
    before = table.state.batches
    with pytest.raises(CorruptionError, match=victim.key):
        table.rounds.compact(table.machine, Wish(full=True))
    assert table.state.batches == before


def test_attached_shards_are_compacted_only_as_far_as_their_timeline_has_committed(lab):
    from strandline.testing.lab import Client, rows

    process = Client(lab)
    process.attach()
    machine = process.machines["orders"]
    machine.demand(c.Retain(Retention(None, 1)))
    owner = process.own()
    for n in range(3):
        owner.stage("orders", rows(n))
        owner.commit()
    owner.stage("orders", rows(99))
    from strandline.upkeep.rounds import Rounds

    Rounds(process.env, process.leases).compact(machine, Wish(full=True))
    state = machine.refresh()
    assert state.readable_from() == 2
    assert [batch.upper for batch in state.batches] == [3, 4]
    assert state.batches[-1].inline is not None
    owner.close()


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_large_unit_never_holds_all_its_rows(lab, key, monkeypatch):
    from strandline.parts import parquet
    from strandline.upkeep import groups

    monkeypatch.setattr(groups, "WHOLE_BYTES", 1)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 4096)
    table = Table(lab, key=key, inline_max_bytes=0, part_target_bytes=300_000)
    table.retain(count=1)
    for n in range(6):
        ids = pa.array(range(n, 600_000, 6), pa.int64())
        names = pa.array([f"some name of row {k}, long enough to count" for k in range(len(ids))])
        rows = pa.table({"id": ids, "name": names})
        table.writer.compare_and_append(rows, lower=n, upper=n + 1)
    whole = 6 * rows.nbytes
    base = pa.total_allocated_bytes()
    peak = 0

    def report(what, done, total):
        nonlocal peak
        peak = max(peak, pa.total_allocated_bytes() - base)

    total = table.state.total
    table.rounds.compact(table.machine, Wish(full=True, report=report))
    assert table.state.total == total
    assert sum(part.rows for part in table.parts()) == 600_000
    assert peak < whole / 4


def test_outputs_are_taken_back_only_if_nothing_names_them(lab):
    from strandline.shard.chunks import Chunks
    from strandline.upkeep.compact import Work, _take_back
    from strandline.upkeep.units import policy_of

    table = Table(lab, inline_max_bytes=0, part_target_bytes=3000, unit_max_bytes=1 << 23)
    table.retain(count=1)
    table.append(*((k, f"{k * 7919:040x}", 1) for k in range(9000)))
    table.rounds._advance(table.machine, None)
    pin = table.leases.own_reader(table.machine).pin()
    table.rounds._compact(table.machine, None, Wish(full=True))
    state = table.state
    assert state.garbage
    assert any(batch.chunks for batch in state.batches)
    writer = table.leases.writer(table.machine, purpose="test")
    unnamed = f"{state.id}/{writer.id}/{'8' * 32}.parquet"
    lab.blob.put(unnamed, b"x")
    policy = policy_of(table.env.settings)
    before = table.objects()
    _take_back(Work(table.machine, writer, Chunks(table.env, "orders"), policy), sorted(before))
    kept = {key for key in before if not key.endswith(".manifest")} - {unnamed}
    assert kept <= table.objects()
    assert unnamed not in table.objects()
    pin.give_back()


def test_nothing_is_taken_back_where_garbage_lists_whole_chunks(lab):
    from strandline.shard.chunks import Chunks
    from strandline.upkeep.compact import Work, _take_back
    from strandline.upkeep.units import policy_of

    table = Table(lab, inline_max_bytes=0, part_target_bytes=3000, unit_max_bytes=1 << 23)
    table.retain(count=1)
    table.append(*((k, f"{k * 7919:040x}", 1) for k in range(9000)))
    table.rounds.compact(table.machine, Wish(full=True))
    pin = table.leases.own_reader(table.machine).pin()
    listed = {part.key for part in table.parts()}
    writer = table.leases.writer(table.machine, purpose="test")
    table.machine.demand(c.Drop())
    policy = policy_of(table.env.settings)
    _take_back(Work(table.machine, writer, Chunks(table.env, "orders"), policy), sorted(listed))
    assert listed <= table.objects()
    pin.give_back()
