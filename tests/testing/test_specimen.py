"""The specimen: every kind of object is in it, and reading it twice gives the same."""

from strandline.model.ids import SeqNo
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.specimen import KINDS, fill, kind_of, open_ports, read_all


def test_it_holds_every_kind_and_reads_the_same_from_every_process():
    blob, consensus = MemoryBlob(), MemoryConsensus(iter(range(10**12, 2 * 10**12)).__next__)
    with open_ports(blob, consensus) as store:
        fill(store)
        first = read_all(store)
    kinds = {kind_of(entry.key) for entry in blob.list("")}
    kinds |= {kind_of(key) for key in consensus.keys("")}
    assert kinds == KINDS
    with open_ports(blob.client(), consensus.client()) as store:
        assert read_all(store) == first
        batches = store.shard("orders").state().batches
    assert any(batch.chunks for batch in batches)
    assert any(batch.parts for batch in batches)
    assert any(batch.inline for batch in batches)
    assert consensus.scan("shard/orders", SeqNo(0), 1)[0].seqno > SeqNo(0), "it was truncated"
