"""One output: looked at in every turn, whoever moved it."""

import pyarrow as pa
import pytest

from strandline.errors import FencedError
from strandline.ingest.road import ArrowRoad
from strandline.ingest.stash import Stash
from strandline.ingest.target import Target
from strandline.model.frontier import Frontier
from strandline.store.memory import MemoryBlob
from strandline.testing.lab import new_store

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


@pytest.fixture
def target(lab):
    with new_store(lab) as store:
        shard = store.shard("t", SCHEMA, ["k"])
        stash = Stash(MemoryBlob, store.env.random, 10_000)
        made = Target(shard, ArrowRoad(shard), stash, limit_bytes=10_000)
        yield made
        made.close()


def commands(*times):
    return pa.table({"k": [1] * len(times), "v": [f"v{t}" for t in times], "_time": list(times)})


def peer_settles(target, rows, lower, upper):
    other = ArrowRoad(target.shard)
    assert other.settle(rows, lower, Frontier(upper)).won
    other.close()


def test_what_is_due_is_settled_and_then_dropped(target):
    target.add(commands(2, 4, 9))
    target.look(audits=False, epoch=0)
    assert target.settle(Frontier(5))
    assert (target.upper, target.done) == (Frontier(5), Frontier(5))
    target.drop()
    assert list(target.stash.sizes()) == [9]
    assert not target.settle(Frontier(5))


def test_a_move_by_others_is_seen_in_the_next_look(target):
    target.add(commands(2, 4, 9))
    peer_settles(target, commands(2, 4), 0, 8)
    assert target.look(audits=False, epoch=0) == Frontier(8)
    target.drop()
    assert target.settle(Frontier(10))
    assert target.shard.snapshot(9).to_arrow().column("v").to_pylist() == ["v9"]


def test_a_race_that_is_lost_between_look_and_append_moves_it_all_the_same(target):
    target.add(commands(2))
    target.look(audits=False, epoch=0)
    peer_settles(target, commands(2), 0, 8)
    assert target.settle(Frontier(3))
    assert target.upper == Frontier(8)


def test_an_audit_goes_as_far_as_both_the_shard_and_the_input(target):
    target.add(commands(2, 4, 9))
    peer_settles(target, commands(2, 4), 0, 8)
    assert target.look(audits=True, epoch=0) == Frontier(0)
    assert target.audit(Frontier(3))
    assert target.done == Frontier(3)
    assert target.audit(Frontier(10))
    assert target.done == Frontier(8)
    assert not target.audit(Frontier(10))


def test_what_can_not_be_told_apart_is_skipped_and_counted(target):
    peer_settles(target, commands(2), 0, 8)
    target.look(audits=True, epoch=0)
    target.skip(Frontier(5))
    assert target.done == Frontier(5)
    target.skip(Frontier(99))
    assert target.done == Frontier(8)
    assert target.shard.machine.env.metrics.value("ingest_unverified", "t") == 2


def test_an_older_epoch_learns_that_it_was_replaced_though_it_has_nothing_to_write(target):
    target.shard.fence(3)
    assert target.look(audits=True, epoch=None) == Frontier(0), "who only reads may go on"
    with pytest.raises(FencedError, match="belongs to epoch 3"):
        target.look(audits=False, epoch=2)
