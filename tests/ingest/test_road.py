"""The road of Arrow: old rows of touched keys, the difference, one append, or a comparison."""

import pyarrow as pa
import pytest

from strandline.errors import LeaseLostError, MaybeAppliedError, ReplicaDivergedError, SinceError
from strandline.ingest import road as module
from strandline.ingest.road import ArrowRoad
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.testing.lab import new_store

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.string())])


@pytest.fixture
def shard(lab):
    with new_store(lab) as store:
        yield store.shard("t", SCHEMA, ["a", "b"])


@pytest.fixture
def road(shard):
    made = ArrowRoad(shard)
    yield made
    made.close()


def commands(*rows):
    names = ["a", "b", "v", "_time"]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


def content(shard, time):
    return sorted(tuple(row.values()) for row in shard.snapshot(time).to_arrow().to_pylist())


@pytest.mark.parametrize("whole", [0, 1_000])
def test_old_rows_of_the_touched_keys_are_retracted(shard, road, monkeypatch, whole):
    """However old rows are found: with all others, or by conditions on each column of the key."""
    monkeypatch.setattr(module, "_WHOLE_ROWS", whole)
    first = commands((1, "x", "old", 0), (1, "y", "stays", 0), (2, "x", "stays", 1))
    assert road.settle(first, 0, Frontier(5)).won
    settled = road.settle(commands((1, "x", "new", 7), (2, "y", "more", 8)), 5, Frontier(9))
    assert (settled.won, settled.upper, settled.rows) == (True, Frontier(9), 3)
    kept = [(1, "y", "stays"), (2, "x", "stays")]
    assert content(shard, 6) == [(1, "x", "old"), *kept]
    assert content(shard, 8) == [(1, "x", "new"), *kept, (2, "y", "more")]


def test_an_interval_without_commands_is_settled_too(shard, road):
    assert road.settle(None, 0, Frontier(7)).upper == Frontier(7)
    assert shard.upper == Frontier(7)


def test_who_loses_with_the_same_rows_is_told_how_far_the_shard_is(shard, road):
    mine = commands((1, "x", "a", 0), (1, "x", "b", 1))
    peer = ArrowRoad(shard)
    peer.settle(commands((1, "x", "a", 0)), 0, Frontier(1))
    peer.settle(commands((1, "x", "b", 1), (1, "x", "c", 2)), 1, Frontier(3))
    settled = road.settle(mine, 0, Frontier(2))
    assert (settled.won, settled.upper) == (False, Frontier(3))
    assert road.compare(mine, 0, Frontier(2)) == Frontier(2)
    peer.close()


def test_s30_who_loses_with_other_rows_is_stopped(shard, road):
    road.settle(commands((1, "x", "a", 0)), 0, Frontier(1))
    with pytest.raises(ReplicaDivergedError, match="at time 0"):
        ArrowRoad(shard).settle(commands((1, "x", "A", 0)), 0, Frontier(1))
    with pytest.raises(ReplicaDivergedError, match="at time 0"):
        road.compare(None, 0, Frontier(1))


def test_an_append_of_unknown_fate_is_compared_and_not_repeated(shard, road, monkeypatch):
    mine = commands((1, "x", "a", 0))
    writer = road._writer()
    append = writer.compare_and_append

    def lost(rows, **bounds):
        append(rows, **bounds)
        raise MaybeAppliedError("no answer")

    monkeypatch.setattr(writer, "compare_and_append", lost)
    settled = road.settle(mine, 0, Frontier(1))
    assert (settled.won, settled.upper) == (False, Frontier(1))
    assert content(shard, 0) == [(1, "x", "a")]


def test_an_append_that_did_not_happen_leaves_the_time_open(road, monkeypatch):
    def lost(_rows, **_bounds):
        raise MaybeAppliedError("no answer")

    monkeypatch.setattr(road._writer(), "compare_and_append", lost)
    assert road.settle(commands((1, "x", "a", 0)), 0, Frontier(1)).upper == Frontier(0)


def test_a_writer_that_lost_its_lease_is_replaced(shard, road):
    shard.machine.demand(c.Release(writers=(road._writer().id,)))
    with pytest.raises(LeaseLostError):
        road.settle(None, 0, Frontier(1))
    assert road.settle(None, 0, Frontier(1)).won


def test_merged_history_can_not_be_compared_and_that_is_counted(shard, road, monkeypatch):
    mine = commands((1, "x", "a", 0))
    road.settle(mine, 0, Frontier(1))

    def merged(*_, **__):
        raise SinceError("merged", oldest=9)

    monkeypatch.setattr(road._writer(), "verify", merged)
    assert not road.settle(mine, 0, Frontier(1)).won
    assert shard.machine.env.metrics.value("ingest_unverified", "t") == 1
    with pytest.raises(SinceError):
        road.compare(mine, 0, Frontier(1))
