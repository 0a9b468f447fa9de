"""The stores in memory."""

from __future__ import annotations

from strandline.model.ids import SeqNo
from strandline.store.consensus import CasResult, Versioned
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.conformance import check_blob, check_consensus


def test_memory_blob_keeps_the_contract():
    check_blob(MemoryBlob().client, threads=4)


def test_memory_consensus_keeps_the_contract():
    check_consensus(MemoryConsensus(lambda: 1_000).client, threads=4)


def test_separate_stores_share_nothing():
    one, other = MemoryBlob(), MemoryBlob()
    one.put("k", b"x")
    assert other.get("k") is None


def test_the_clock_is_the_one_that_was_given():
    times = iter([5, 3])
    consensus = MemoryConsensus(lambda: next(times))
    assert [consensus.now_ms(), consensus.client().now_ms()] == [5, 3]


def test_one_object_set_twice_is_committed_once():
    consensus = MemoryConsensus(lambda: 0)
    version = Versioned(SeqNo(0), b"x")
    assert consensus.compare_and_set("k", version) is CasResult.COMMITTED
    assert consensus.compare_and_set("k", version) is CasResult.MISMATCH
