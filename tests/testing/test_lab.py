"""Tests of the store in memory that other tests work in."""

from __future__ import annotations

from strandline.model.frontier import Frontier
from strandline.testing.lab import COLUMNS, Client, Lab, new_store, rows


def test_a_lab_has_one_store_and_many_processes() -> None:
    lab = Lab()
    ours, theirs = Client(lab), Client(lab)
    with ours.writer("orders") as writer:
        writer.append(rows(1, 2))
    assert theirs.upper("orders") == Frontier(1)
    lab.clock.now += 5
    assert lab.consensus.now_ms() == 1_000_005
    lab.close()


def test_a_lab_opens_whole_stores() -> None:
    lab = Lab()
    with new_store(lab) as store:
        store.shard("stock", schema=COLUMNS, key=["id"])
        assert store.shards() == ["stock"]
    lab.close()
