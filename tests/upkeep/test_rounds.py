"""One round of upkeep: each step when it is due, and nothing when there is nothing to do."""

from __future__ import annotations

import pytest

from strandline.errors import CancelledError, LeaseLostError, NotFoundError
from strandline.shard import command as c
from strandline.shard.cancel import Cancel
from strandline.shard.machine import Machine
from strandline.upkeep.collect import Collector
from strandline.upkeep.rounds import Wish

from .upkeep_lab import Table


def test_a_shard_at_rest_costs_no_commit(lab):
    table = Table(lab)
    for n in range(5):
        table.append((n, "x", 1))
    table.rounds.run_once(table.machine)
    before = table.state.seqno
    for _ in range(5):
        assert not table.rounds.run_once(table.machine)
    assert table.state.seqno == before


def test_since_follows_retention_by_count_and_by_the_stores_clock(lab):
    table = Table(lab)
    table.retain(count=3)
    for n in range(10):
        table.append((n, "x", 1))
    table.rounds.run_once(table.machine)
    assert table.state.readable_from() == 7
    table.retain(duration_ms=25)
    table.append((11, "x", 1))
    table.rounds.run_once(table.machine)
    assert table.state.readable_from() == 8
    table.check()


def test_a_hold_keeps_since_back(lab):
    table = Table(lab)
    table.retain(count=1)
    table.machine.demand(c.Hold("report", 0, 1))
    for n in range(5):
        table.append((n, "x", 1))
    table.rounds.run_once(table.machine)
    assert table.state.readable_from() == 0
    table.machine.demand(c.Unhold("report", 1))
    table.rounds.run_once(table.machine)
    assert table.state.readable_from() == 4
    table.check()


def test_a_reader_that_is_gone_keeps_nothing_from_a_compaction_that_was_asked_for(lab):
    table = Table(lab)
    table.retain(count=1)
    table.append((0, "x", 1))
    table.leases.term_reader(table.machine, since=0, term_ms=1)
    for n in range(1, 5):
        table.append((n, "x", 1))
    table.rounds.compact(table.machine, Wish(full=True))
    assert table.state.readable_from() == 4
    assert all(part.base for part in table.parts())
    table.check()


def test_inline_rows_are_flushed_into_one_part(lab):
    table = Table(lab, inline_flush_batches=4)
    for n in range(4):
        table.append((n, "x", 1))
    table.rounds.run_once(table.machine)
    [part] = table.parts()
    assert (part.rows, part.t_min, part.t_max, part.level) == (4, 0, 3, 0)
    assert all(batch.inline is None for batch in table.state.batches)
    table.check()


def test_old_moments_move_into_objects_and_go_with_since(lab):
    table = Table(lab, moments_loose=6)
    for n in range(9):
        table.append((n, "x", 1))
    table.rounds.run_once(table.machine)
    [chunk] = table.state.moment_chunks
    assert chunk.count == 4
    assert lab.blob.get(chunk.key) is not None
    table.retain(count=1)
    table.rounds.run_once(table.machine)
    table.rounds.run_once(table.machine)
    assert table.state.moment_chunks == ()
    assert lab.blob.get(chunk.key) is None
    table.check()


def test_r15_moments_whose_object_was_swept_with_its_writer_stay_listed(lab):
    table = Table(lab, moments_loose=6)
    for n in range(9):
        table.append((n, "x", 1))
    other = lab.env()
    put = table.env.blob.put

    def suspended(key, value):
        """The process is away until its leases have run out and a repair has been here."""
        put(key, value)
        if key.endswith(".times"):
            elsewhere = Machine(other, "orders")
            pulses = frozenset(elsewhere.state.heartbeats().values())
            elsewhere.demand(c.Expire(pulses))
            assert Collector(other, lab.leases(other)).sweep(elsewhere, delete=True)

    table.env.blob.put = suspended
    with pytest.raises(LeaseLostError):
        table.rounds.run_once(table.machine)
    assert table.state.moment_chunks == ()
    assert len(table.state.moments) == 9


def test_a_manifest_is_written_when_it_is_due(lab):
    table = Table(lab, manifest_every=5)
    for n in range(9):
        table.append((n, "x", 1))
    table.rounds.run_once(table.machine)
    assert table.state.manifest is not None
    assert lab.blob.get(table.state.manifest.key) is not None


def test_many_parts_are_listed_in_a_chunk(lab, monkeypatch):
    from strandline.upkeep import rounds, units

    small = units.Policy(direct_parts=8, runs_max=1000)
    monkeypatch.setattr(rounds, "policy_of", lambda settings: small)
    table = Table(lab, inline_max_bytes=0)
    for n in range(12):
        table.append((n, "x", 1))
    assert table.rounds.run_once(table.machine)
    [chunk] = [chunk for batch in table.state.batches for chunk in batch.chunks]
    assert chunk.parts == 10
    table.check()
    table.retain(count=1)
    table.rounds.compact(table.machine, Wish(full=True))
    assert not any(batch.chunks for batch in table.state.batches)
    table.check()


def test_a_long_compaction_tells_how_far_it_is_and_can_be_cancelled(lab):
    table = Table(lab, inline_max_bytes=0)
    for n in range(12):
        table.append((n, "x", 1))
    told = []
    cancel = Cancel(table.env.tasks.event())
    cancel.cancel()
    with pytest.raises(CancelledError):
        table.rounds.compact(table.machine, Wish(full=True, cancel=cancel))
    table.rounds.compact(
        table.machine, Wish(full=True, report=lambda what, done, total: told.append((done, total)))
    )
    assert told[-1] == (12, 12)
    table.check()


def test_a_dropped_shard_can_not_be_compacted(lab):
    table = Table(lab)
    table.machine.demand(c.Drop())
    with pytest.raises(NotFoundError, match="dropped"):
        table.rounds.compact(table.machine, Wish())


def test_a_staged_batch_of_many_parts_can_still_be_withdrawn_after_a_round(lab, monkeypatch):
    from strandline.model.frontier import Frontier
    from strandline.testing.lab import Client, rows
    from strandline.upkeep import rounds as module, units

    small = units.Policy(direct_parts=4, runs_max=1000)
    monkeypatch.setattr(module, "policy_of", lambda settings: small)
    process = Client(lab, inline_max_bytes=0)
    process.attach()
    machine = process.machines["orders"]
    owner = process.own()
    for n in range(6):
        owner.stage("orders", rows(n))
        owner.commit()
    owner.stage("orders", rows(99))
    module.Rounds(process.env, process.leases).run_once(machine)
    batches = machine.refresh().batches
    assert [batch.upper for batch in batches][-2:] == [6, 7]
    assert any(batch.chunks for batch in batches[:-1])
    process.own().close()
    assert machine.refresh().upper == Frontier(6)


def test_parts_merged_past_the_end_of_their_batch_are_listed_in_a_chunk(lab, monkeypatch):
    from strandline.upkeep import rounds as module, units

    small = units.Policy(part_bytes=1500, range_rows=64, direct_parts=8, fold_min=1)
    monkeypatch.setattr(module, "policy_of", lambda settings: small)
    table = Table(lab, inline_max_bytes=0)
    table.retain(count=1)
    for n in range(3):
        table.append(*((k, f"{k * 7919:040x}", 1) for k in range(n * 500, n * 500 + 500)))
    for _ in range(5):  # Empty appends: `since` passes the last batch.
        table.append((0, "nothing", 0))
    for _ in range(5):
        table.rounds.run_once(table.machine)
    [batch] = table.state.batches
    assert table.state.readable_from() > batch.upper
    assert batch.chunks
    table.check()


def test_a_timeline_forgets_when_it_committed_what_is_older_than_its_members_keep(lab):
    from strandline.model.ids import SeqNo
    from strandline.shard.state import WEEK_MS, Retention
    from strandline.testing.lab import Client, rows
    from strandline.upkeep.rounds import Rounds

    process = Client(lab)
    process.attach()
    owner = process.own()
    for n in range(6):
        owner.stage("orders", rows(n))
        owner.commit()
        lab.clock.now += 1000

    def ticks():
        return len(lab.consensus.scan("timeline/shop", SeqNo(0), 100))

    commits = ticks()
    rounds = Rounds(process.env, process.leases)
    orders, stock = process.machines["orders"], process.machines["stock"]
    orders.demand(c.Retain(Retention(None, 1)))
    stock.demand(c.Retain(Retention(None, None)))
    rounds.run_once(orders)
    lab.clock.now += 2 * WEEK_MS
    rounds.run_once(orders)
    assert ticks() == commits, "stock, the other member, keeps everything"
    stock.demand(c.Retain(Retention(3 * WEEK_MS)))
    lab.clock.now += WEEK_MS // 2
    rounds.run_once(orders)
    assert ticks() == commits, "stock still keeps that"
    stock.demand(c.Retain(Retention(2 * WEEK_MS)))
    rounds.run_once(orders)
    assert ticks() == commits, "it was looked through a moment ago"
    lab.clock.now += WEEK_MS // 2
    rounds.run_once(orders)
    assert ticks() == 1
    assert process.timeline.time_at(lab.clock.now) == 5
    assert process.upper("orders").last() == 5
    owner.close()


def test_history_of_an_attached_shard_is_as_old_as_its_commits(lab):
    from strandline.model.frontier import Frontier
    from strandline.shard.state import Retention
    from strandline.testing.lab import Client, rows
    from strandline.upkeep.rounds import Rounds

    hour = 3_600_000
    process = Client(lab)
    process.attach()
    orders = process.machines["orders"]
    orders.demand(c.Retain(Retention(hour, None)))
    rounds = Rounds(process.env, process.leases)
    with process.own() as owner:
        owner.stage("orders", rows(0))
        owner.commit()
        owner.stage("orders", rows(1))
        lab.clock.now += 3 * hour
        owner.commit()
    lab.clock.now += hour // 2
    rounds.run_once(orders)
    assert process.timeline.time_at(lab.clock.now - hour) == 0
    assert orders.refresh().since == Frontier(0), "within the last hour, 0 was current"
    lab.clock.now += hour
    rounds.run_once(orders)
    assert orders.refresh().since == Frontier(1)


@pytest.mark.parametrize("held", [False, True], ids=["count", "hold"])
def test_a_timeline_knows_the_instants_of_all_that_its_members_can_read(lab, held):
    from strandline.shard.state import WEEK_MS, Retention
    from strandline.testing.lab import Client, rows
    from strandline.upkeep.rounds import Rounds

    process = Client(lab)
    process.attach()
    orders = process.machines["orders"]
    if held:
        orders.demand(c.Hold("h", 2, 0, "for people"))
    orders.demand(c.Retain(Retention(None, 1 if held else 4)))
    at = []
    with process.own() as owner:
        for n in range(6):
            owner.stage("orders", rows(n))
            owner.commit()
            at.append(lab.clock.now)
            lab.clock.now += WEEK_MS
    rounds = Rounds(process.env, process.leases)
    rounds.run_once(orders)
    lab.clock.now += WEEK_MS
    rounds.run_once(orders)
    assert orders.refresh().since.time == 2
    line = process.timeline
    assert [line.instant_of(t) for t in range(6)] == [None, None, *at[2:]]
    assert [line.time_at(ms) for ms in at] == [None, None, 2, 3, 4, 5]


def test_a_retention_that_is_set_while_history_is_merged_counts(lab, monkeypatch):
    from strandline.model.frontier import Frontier
    from strandline.shard.state import Retention
    from strandline.testing.lab import Client, rows
    from strandline.upkeep.rounds import Rounds

    hour, day = 3_600_000, 24 * 3_600_000
    process, other = Client(lab), Client(lab)
    process.attach()
    orders = process.machines["orders"]
    orders.demand(c.Retain(Retention(hour, None)))
    with process.own() as owner:
        owner.stage("orders", rows(0))
        owner.commit()
        owner.stage("orders", rows(1))
        lab.clock.now += 10 * day
        owner.commit()
    lab.clock.now += 2 * hour
    real = orders.commit

    def late(command):
        if isinstance(command, c.AdvanceSince):
            other.machines["orders"].demand(c.Retain(Retention(7 * day, None)))
        return real(command)

    monkeypatch.setattr(orders, "commit", late)
    rounds = Rounds(process.env, process.leases)
    rounds.run_once(orders)
    assert process.timeline.time_at(lab.clock.now - 7 * day) == 0
    assert orders.refresh().since == Frontier(0)
