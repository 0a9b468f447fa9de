"""Garbage collection: in order, and safe to stop after every call."""

from __future__ import annotations

import pytest

from strandline.errors import NotAppliedError
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.testing.lab import Lab
from strandline.upkeep.collect import Collector
from strandline.upkeep.rounds import Rounds, Wish

from .upkeep_lab import Table


def filled(lab, **settings):
    table = Table(lab, inline_max_bytes=0, **settings)
    table.retain(count=1)
    for n in range(10):
        table.append((n, "a", 1), (n - 1, "a", -1) if n else (99, "b", 1))
    return table


def parts_of(table):
    return {k for k in table.objects() if k.endswith(".parquet")}


def test_what_a_compaction_replaced_is_deleted_and_forgotten(lab):
    table = filled(lab)
    table.rounds.compact(table.machine, Wish(full=True))
    assert parts_of(table) == {part.key for part in table.parts()}
    assert table.state.garbage == ()
    table.check()


def test_a_reader_of_an_older_version_keeps_what_it_needs(lab):
    table = filled(lab)
    other = lab.env()
    reader = lab.leases(other).reader(Machine(other, "orders"), since=None, purpose="slow")
    pin = reader.pin()
    needed = {part.key for part in table.parts()}
    table.rounds.compact(table.machine, Wish(full=True))
    assert needed <= table.objects()
    pin.give_back()
    reader.close()
    table.rounds.run_once(table.machine)
    assert not needed & table.objects()


def test_a_dropped_shard_leaves_nothing_behind(lab):
    table = filled(lab, part_target_bytes=3000, unit_max_bytes=1 << 23)
    table.append(*((k, f"{k * 7919:040x}", 1) for k in range(9000)))
    table.rounds.compact(table.machine, Wish(full=True))
    assert any(batch.chunks for batch in table.state.batches)
    table.machine.demand(c.Drop())
    table.rounds.run_once(table.machine)
    assert {k for k in table.objects() if not k.endswith(".manifest")} == set()
    assert table.state.garbage == ()


class Stopping:
    """Lets so many calls through and then fails for good, as a process that is killed."""

    def __init__(self, inner, left):
        self.inner = inner
        self.left = left

    def __getattr__(self, name):
        call = getattr(self.inner, name)

        def stopped(*args):
            if self.left[0] <= 0:
                raise NotAppliedError("killed")
            self.left[0] -= 1
            return call(*args)

        return stopped


def test_after_a_kill_at_any_call_the_next_collection_finishes_the_job(lab):
    from dataclasses import replace

    finished = False
    for calls in range(200):
        lab = Lab()
        table = filled(lab)
        rounds = table.rounds
        rounds._advance(table.machine, None)
        rounds._compact(table.machine, None, Wish(full=True))
        left = [calls]
        env = replace(
            table.env,
            blob=Stopping(table.env.blob, left),
            consensus=Stopping(table.env.consensus, left),
            settings=replace(table.env.settings, read_deadline_ms=0, commit_deadline_ms=0),
        )
        machine = Machine(env, "orders")
        leases = table.leases
        try:
            Collector(env, leases).collect(machine)
            finished = True
        except NotAppliedError:
            pass
        table.check()
        table.rounds.run_once(table.machine)
        table.check()
        assert parts_of(table) == {part.key for part in table.parts()}
        assert table.state.garbage == ()
        for each in lab.opened:
            each.close()
        if finished:
            break
    assert finished
    assert calls > 2


def test_records_before_the_newest_manifest_are_forgotten_and_the_shard_still_opens(lab):
    table = filled(lab, manifest_every=4)
    table.rounds.run_once(table.machine)
    table.rounds.run_once(table.machine)
    from strandline.model.ids import SeqNo

    kept = lab.consensus.scan("shard/orders", SeqNo(0), 1000)
    assert kept[0].seqno.number == table.state.manifest.seqno
    fresh = Machine(lab.env(), "orders").refresh()
    assert fresh == table.state


def test_a_sweep_finds_only_what_nothing_can_refer_to(lab):
    table = filled(lab)
    state = table.state
    dead = f"{state.id}/w{'5' * 32}/{'6' * 32}.parquet"
    mine = f"{state.id}/{table.writer.id}/{'7' * 32}.parquet"
    for k in (dead, mine):
        lab.blob.put(k, b"x")
    collector = table.rounds.collector
    assert [entry.key for entry in collector.sweep(table.machine, delete=False)] == [dead]
    assert dead in table.objects()
    collector.sweep(table.machine, delete=True)
    assert dead not in table.objects()
    assert mine in table.objects()
    table.check()


@pytest.mark.parametrize("count", [1, 3])
def test_racing_collectors_agree(lab, count):
    table = filled(lab)
    table.rounds._advance(table.machine, None)
    table.rounds._compact(table.machine, None, Wish(full=True))
    env = lab.env()
    other = Rounds(env, lab.leases(env))
    machine = Machine(env, "orders")
    for _ in range(count):
        table.rounds.run_once(table.machine)
        other.run_once(machine)
    assert table.state.garbage == ()
    table.check()
