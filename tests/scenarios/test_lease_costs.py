"""S45 to S47 and S52: what leases cost their store, however many there are."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from strandline.errors import HandleClosedError
from strandline.handles.shard import Reader
from strandline.shard.pulses import TaskHeart
from strandline.store.memory import MemoryConsensus
from strandline.testing.faults import Fault, FaultKind, FaultyConsensus
from strandline.testing.simulation import Simulation

from .conftest import LEASE, TICK, Fates, Place, Process, rows

MINUTE = 60_000


def test_s45_ten_thousand_downgrades_cost_a_handful_of_commits() -> None:
    with Simulation(45, keep_trace=True) as sim:
        place = Place(sim)
        process = place.open("source")
        writer = place.writer(process)
        process.call(lambda: writer.compare_and_append(rows(), lower=0, upper=20_000))
        shard = process.shard
        reader = process.call(lambda: shard.reader(since=0))
        start, before = sim.elapsed_ms(), place.state().seqno.number

        def downgrade() -> None:
            for since in range(1, 10_001):
                reader.downgrade(since)
                process.node.tasks.sleep(0.099)

        process.call(downgrade)
        sim.run(until_ms=start + 1_000 + TICK)
        assert sim.elapsed_ms() - start < 2_000
        found = place.reader(reader.id)
        assert found is not None
        assert found.since == 10_000
        assert 1 <= place.state().seqno.number - before <= 5
        lines = [line for line in sim.trace_lines() if "source/leases: event wait" in line]
        woken = [line for line in lines if float(line.split()[0]) >= start]
        assert 1 <= len(woken) <= 20


def test_s45_with_nothing_to_release_nothing_is_committed(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    shard = process.shard
    readers = [process.call(lambda: shard.reader(since=0)) for _ in range(20)]
    before = place.state().seqno
    sim.run(until_ms=sim.elapsed_ms() + 20 * LEASE)
    assert place.state().seqno == before
    assert len(readers) == 20


class Beats:
    """When the processes of a store beat, by the store calls they make."""

    def __init__(self) -> None:
        self.times: list[tuple[float, str]] = []

    def of(self, process: Process) -> None:
        def rule(call: str, key: str) -> None:
            if call == "consensus.compare_and_set" and key.startswith("pulse/"):
                self.times.append((process.sim.elapsed_ms(), key))

        process.fates.rules.insert(0, rule)


@pytest.mark.simulation
@pytest.mark.parametrize("seed", range(2))
def test_s46_readers_and_writers_rarely_meet(seed: int) -> None:
    """Eight readers and two writers, each a process of its own, for ten minutes."""
    lease = 60_000
    with Simulation(seed, steps_max=20_000_000) as sim:
        place = Place(sim, lease_ms=lease, inline_max_bytes=32 * 1024, audit_share=0.0)
        beats = Beats()
        writers = [place.open(f"writer{n}") for n in range(2)]
        readers = [place.open(f"reader{n}") for n in range(8)]
        for process in (*writers, *readers):
            process.fates.latency(sim, 5)
            beats.of(process)
        place.fill(writers[0], 1)
        start = sim.elapsed_ms()
        ends = start + 10 * MINUTE
        for process in writers:
            process.call(process.store.upkeep.start)
            process.node.start("write", lambda p=process: _write_until(place, p, ends))
        for process in readers:
            process.node.start("read", lambda p=process: _follow_until(p, ends))
        sim.run(until_ms=ends)
        commits = sum(p.metrics.value("commits", "orders") for p in (*writers, *readers))
        conflicts = sum(p.metrics.value("conflicts", "orders") for p in (*writers, *readers))
        downgrades = sum(p.metrics.value("downgrades", "orders") for p in readers)
        assert commits > 1_000
        assert downgrades >= 8 * 35
        assert conflicts / (commits + conflicts) <= 0.05
        _check_spread([at for at, _ in beats.times if at > start + lease], lease)


def _write_until(place: Place, process: Process, ends: float) -> None:
    shard = process.store.shard("orders")
    with shard.writer() as writer:
        while process.sim.elapsed_ms() < ends:
            writer.append(rows(1))
            process.node.tasks.sleep(process.node.random.uniform(500, 1_500))


def _follow_until(process: Process, ends: float) -> None:
    shard = process.store.shard("orders")
    with shard.reader() as reader:
        while process.sim.elapsed_ms() < ends:
            upper = shard.upper.time
            assert upper is not None
            reader.downgrade(upper - 1)
            process.node.tasks.sleep(process.node.random.uniform(500, 1_500))


def _check_spread(times: list[float], lease: int) -> None:
    """No stretch of two heartbeats has more than twice its share of all beats."""
    width = lease / 2
    buckets = Counter(int(at // width) for at in times)
    share = len(times) / len(buckets)
    assert max(buckets.values()) <= 2 * share


def _gone(place: Place, reader: str) -> bool:
    return place.reader(reader) is None


def test_s47_a_closed_reader_is_gone_and_a_dropped_one_within_a_heartbeat(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    shard = process.shard
    first: Reader = process.call(lambda: shard.reader(since=0))
    process.call(first.close)
    assert _gone(place, first.id)
    before = place.state().seqno
    process.call(first.close)
    assert place.state().seqno == before
    with pytest.raises(HandleClosedError):
        process.call(lambda: first.snapshot(0))
    second: list[Reader] = [process.call(lambda: shard.reader(since=0))]
    name = second.pop().id
    gc.collect()
    assert not _gone(place, name)
    sim.run_until(lambda: _gone(place, name), within_ms=TICK + 100)


def test_s47_a_dropped_writer_is_gone_within_a_heartbeat(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    shard = process.shard
    name = process.call(lambda: shard.writer().id)
    gc.collect()
    assert name in place.state().writers
    sim.run_until(lambda: name not in place.state().writers, within_ms=TICK + 100)


def test_s47_a_downgrade_on_its_way_does_not_bring_a_reader_back(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 5)
    shard = process.shard
    reader: Reader = process.call(lambda: shard.reader(since=0))
    late: list[str] = []

    def rule(call: str, key: str) -> Fault | None:
        if call == "consensus.compare_and_set" and key == "shard/orders" and not late:
            late.append(key)
            return Fault(request_ms=3_000)
        return None

    process.fates.add(rule)
    process.call(lambda: reader.downgrade(3))
    sim.run_until(lambda: bool(late))
    process.call(reader.close)
    assert _gone(place, reader.id)
    sim.run(until_ms=sim.elapsed_ms() + 5 * LEASE)
    assert _gone(place, reader.id)
    assert process.metrics.value("leases_lost", "orders") == 0


@pytest.mark.parametrize("way", ["dropped", "closed"])
def test_s47_what_could_not_be_given_back_is_given_back_later(sim: Simulation, way: str) -> None:
    """The store is away for longer than anybody is patient, then comes back."""
    place = Place(sim, commit_deadline_ms=1_000, read_deadline_ms=1_000)
    process = place.open("source")
    place.fill(process, 3)
    shard = process.shard
    kept: Reader = process.call(lambda: shard.reader(since=0))
    gone: list[Reader] = [process.call(lambda: shard.reader(since=0))]
    name = gone[0].id
    away = [True]
    process.fates.add(
        lambda call, key: Fault(FaultKind.NOT_APPLIED) if away and key == "shard/orders" else None
    )
    if way == "closed":
        process.node.start("close", gone[0].close, expect=(Exception,))
    gone.clear()
    gc.collect()
    sim.run(until_ms=sim.elapsed_ms() + 10 * LEASE)
    assert not _gone(place, name)
    away.clear()
    sim.run_until(lambda: _gone(place, name), within_ms=2 * LEASE)
    process.call(lambda: kept.downgrade(2))
    sim.run_until(
        lambda: (found := place.reader(kept.id)) is not None and found.since == 2,
        within_ms=2 * LEASE,
    )


def test_s52_a_thousand_readers_of_one_process_beat_as_one(sim: Simulation) -> None:
    place = Place(sim)
    process = place.open("source")
    place.fill(process, 3)
    shard = process.shard
    readers = process.call(lambda: [shard.reader(since=0) for _ in range(1_000)])
    beats = Beats()
    beats.of(process)
    sim.run(until_ms=sim.elapsed_ms() + 4 * LEASE)
    assert 14 <= len(beats.times) <= 17
    assert len(place.state().readers) == len(readers) == 1_000


@pytest.mark.parametrize("seed", range(3))
def test_s52_processes_that_start_at_once_spread_their_heartbeats(seed: int) -> None:
    """Each has a pulse of its own: two hundred of them, and how often they asked for a slot."""
    count, lease = 200, 60_000
    with Simulation(seed, steps_max=20_000_000) as sim:
        consensus = MemoryConsensus(sim.now_ms)
        first: dict[str, float] = {}
        hearts: list[TaskHeart] = []
        calls = Counter[str]()
        for number in range(count):
            node = sim.node(f"p{number}")
            fates = Fates()
            fates.calls = calls
            store = FaultyConsensus(consensus, fates, sim)

            def begin(node=node, store=store) -> None:  # type: ignore[no-untyped-def]
                ports = (store, node.tasks, node.random)
                heart = TaskHeart(*ports, lease_ms=lease, owner=node.name)
                hearts.append(heart)
                at = sim.elapsed_ms
                heart.on_beat(lambda: void(first.setdefault(heart.pulse_id, at())))

            node.start("begin", begin)
        sim.run_until(lambda: len(hearts) == count)
        assert sim.elapsed_ms() < lease / 4, "nobody has beaten yet"
        assert calls["consensus.compare_and_set"] <= 20 * count
        assert calls["consensus.head"] <= 2 * count * count
        begun = sim.elapsed_ms()
        sim.run_until(lambda: len(first) == count, within_ms=lease / 2)
        assert len({heart.pulse_id for heart in hearts}) == count
        share = count / 10
        buckets = Counter(int((at - begun) // (lease / 4 / 10)) for at in first.values())
        assert max(buckets.values()) <= 2 * share, buckets
        assert len(buckets) >= 9


def void(_: object) -> None:
    """Drop a value."""
