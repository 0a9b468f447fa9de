"""S85: a manifest is published before anything that it stands for goes, whoever dies when."""

from __future__ import annotations

import pytest

from strandline.model.ids import SeqNo
from strandline.shard.settings import Settings
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.faults import FailNth, Fault, FaultKind, FaultyBlob, FaultyConsensus
from strandline.testing.specimen import COLUMNS, numbered, open_ports
from strandline.testing.task import SimulatedCrash
from strandline.upkeep.fsck import fsck

SETTINGS = Settings(
    inline_max_bytes=700,
    inline_flush_batches=4,
    moments_loose=4,
    manifest_every=3,
    fanout=2,
    fetch_concurrency=1,
    commit_deadline_ms=300,
    read_deadline_ms=100,
)
BEFORE, AFTER = FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER
TIMES = 8
ROUNDS = 2


class Lab:
    """A store in memory that outlives its processes."""

    def __init__(self):
        self.blob = MemoryBlob()
        self.consensus = MemoryConsensus(iter(range(10**12, 10**13)).__next__)
        self.rows = []

    def prepare(self):
        """A history that is due for everything upkeep does."""
        with self.open() as store:
            shard = store.shard("orders", COLUMNS, ["id"])
            with shard.writer() as writer:
                for each in range(TIMES):
                    writer.append(numbered(100 * each, 1 if each % 3 else 30))
            self.rows = self.read(store)

    def open(self, plan=None):
        blob, consensus = self.blob.client(), self.consensus.client()
        if plan is None:
            return open_ports(blob, consensus, SETTINGS)
        return open_ports(FaultyBlob(blob, plan), FaultyConsensus(consensus, plan), SETTINGS)

    def read(self, store):
        shard = store.shard("orders")
        return [sorted(shard.snapshot(t).to_arrow()["id"].to_pylist()) for t in range(TIMES)]

    def tend_and_die(self, nth, kind, matches):
        """Upkeep under a plan; the process dies at its `nth` matching call. Whether it did."""
        armed = False
        plan = FailNth(nth, Fault(kind), lambda call, key: armed and matches(call, key))
        store = self.open(plan)
        machine = store.machine("orders")
        machine.refresh()
        store.leases.own_reader(machine)
        armed = True
        try:
            for _ in range(ROUNDS):
                store.upkeep.run_once(machine)
        except SimulatedCrash:
            return True
        finally:
            armed = False
            store.close()
        return False

    def recover(self):
        """What a process that comes after finds: the rows, the version, what is damaged."""
        with self.open() as store:
            rows = self.read(store)
            report = fsck(store.env, store.leases, deep=True)
            assert report.sound, report.findings
            return rows, store.machine("orders").refresh().upper


def every_call(_call, _key):
    return True


def test_s85_upkeep_without_a_crash_writes_a_manifest_and_truncates():
    lab = Lab()
    lab.prepare()
    assert not lab.tend_and_die(10**9, BEFORE, every_call)
    first = lab.consensus.scan("shard/orders", SeqNo(0), 1)[0].seqno
    assert first > SeqNo(0)
    assert lab.recover()[0] == lab.rows


@pytest.mark.parametrize("kind", [BEFORE, AFTER])
def test_s85_a_crash_at_any_call_of_upkeep_loses_nothing_and_two_recoveries_are_the_same(kind):
    nth = 0
    while True:
        lab = Lab()
        lab.prepare()
        died = lab.tend_and_die(nth, kind, every_call)
        first = lab.recover()
        assert first[0] == lab.rows, f"call {nth}"
        assert lab.recover() == first, f"call {nth}: the second recovery differs"
        if not died:
            break
        nth += 1
    assert nth > 30, "flush, compaction, index, manifest, deletions and truncation"


POINTS = {
    "after the manifest's data, before its publication": (
        AFTER,
        lambda call, key: call == "blob.put" and key.endswith(".manifest"),
    ),
    "after its publication, before any truncation": (
        BEFORE,
        lambda call, _key: call == "consensus.truncate",
    ),
    "after a truncation, before the next one": (
        AFTER,
        lambda call, _key: call == "consensus.truncate",
    ),
    "in the middle of deleting objects": (AFTER, lambda call, _key: call == "blob.delete"),
}


@pytest.mark.parametrize("point", POINTS)
def test_s85_a_crash_at_a_named_point_is_repaired_by_the_next_round(point):
    kind, matches = POINTS[point]
    nth = 0
    while True:
        lab = Lab()
        lab.prepare()
        if not lab.tend_and_die(nth, kind, matches):
            break
        before = lab.recover()
        with lab.open() as store:
            machine = store.machine("orders")
            for _ in range(ROUNDS):
                store.upkeep.run_once(machine)
            report = fsck(store.env, store.leases, deep=True, repair=True)
            assert report.sound
            left = [entry.key for entry in lab.blob.list("") if entry.key.endswith(".manifest")]
            assert left == [machine.state.manifest.key], "no manifest stays but the newest"
        assert lab.recover() == before
        nth += 1
    assert nth >= 1, "the point was reached"


def test_s85_a_manifest_that_was_never_published_is_never_read():
    """Its data is there, and nothing of it counts: not even if it lies."""
    lab = Lab()
    lab.prepare()
    assert lab.tend_and_die(
        0, AFTER, POINTS["after the manifest's data, before its publication"][1]
    )
    (orphan,) = [e.key for e in lab.blob.list("") if e.key.endswith(".manifest")]
    lab.blob.put(orphan, b"not a manifest at all")
    assert lab.recover()[0] == lab.rows


def test_s85_records_below_a_manifest_may_be_cut_at_any_place():
    """A truncation is per key and may stop anywhere below the manifest."""
    lab = Lab()
    lab.prepare()
    assert lab.tend_and_die(0, BEFORE, POINTS["after its publication, before any truncation"][1])
    with lab.open() as store:
        manifest = store.machine("orders").refresh().manifest
    for before in range(manifest.seqno + 1):
        lab.consensus.truncate("shard/orders", SeqNo(before))
        assert lab.recover()[0] == lab.rows
