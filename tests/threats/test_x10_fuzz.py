"""X10, G23: bytes that nobody wrote: only our own errors, no hang, bounded memory."""

from __future__ import annotations

import random
import resource
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

from strandline.errors import StrandlineError
from strandline.handles.store import Store
from strandline.model.ids import SeqNo
from strandline.parts.chunk import add_stats, decode_chunk
from strandline.parts.envelope import checksum, seal, unseal
from strandline.parts.inline import decode_inline
from strandline.parts.parquet import Owner, decode_part
from strandline.parts.stats import decode_stats
from strandline.reading.descriptor import decode_descriptor, encode_descriptor
from strandline.shard.codec import decode_manifest, decode_record
from strandline.shard.moments import decode_moments
from strandline.shard.pulse import decode_pulse
from strandline.shard.timeline import Members, PlainTimeline, Tick
from strandline.store.consensus import Versioned
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.specimen import fill, open_ports
from strandline.upkeep.garbage import listed_parts

SEED = 23
COUNT = 500
MEMORY_MAX = 200 * 1024 * 1024


class Specimen:
    """Valid bytes of every kind, and what reads them."""

    def __init__(self):
        blob, self.consensus = MemoryBlob(), MemoryConsensus(iter(range(10**12, 10**13)).__next__)
        with open_ports(blob, self.consensus) as store:
            fill(store)
            orders, notes = store.shard("orders"), store.shard("notes")
            self.descriptors = [encode_descriptor(part) for part in orders.snapshot().parts()]
            self.state, self.notes = orders.state(), notes.state()
            self.env = store.env
        self.blob = blob
        batches = self.state.batches
        self.chunk = next(chunk for batch in batches for chunk in batch.chunks)
        table = decode_chunk(blob.get(self.chunk.key), self.chunk, shard=self.state.id)
        self.table = table
        self.part = next(part for batch in batches for part in batch.parts)
        self.inline = next(batch.inline for batch in self.notes.batches if batch.inline)
        self.moments = self.state.moment_chunks[0]
        self.timeline = PlainTimeline(self.env, "shop")


S = Specimen()
ID = S.state.id


def head(key):
    return S.consensus.head(key).data


def part(data):
    forged = msgspec.structs.replace(S.part, size=len(data), checksum=checksum(data))
    return decode_part(data, forged, S.state.schema, owner=Owner(ID, S.part.key))


def chunk(data):
    forged = msgspec.structs.replace(S.chunk, size=len(data), checksum=checksum(data))
    return decode_chunk(data, forged, shard=ID).parts()


def moments(data):
    forged = msgspec.structs.replace(S.moments, size=len(data), checksum=checksum(data))
    return decode_moments(data, forged, shard=ID)


def inline(data):
    forged = msgspec.structs.replace(S.inline, payload=data)
    return decode_inline(forged, S.notes.schema, shard="notes").to_pylist()


def tick(kind, key):
    return lambda data: S.timeline._decode(key, Versioned(SeqNo(0), data), kind)


def mark(data):
    consensus = MemoryConsensus(lambda: 0)
    consensus.compare_and_set("store", Versioned(SeqNo(0), data))
    return Store(replace(S.env, consensus=consensus), lambda _ms: None, url="fuzz://")


RECORD = S.consensus.head("shard/orders")
PULSE = S.consensus.head("pulse/0")
TICK = S.consensus.head("timeline/shop")
STATS = S.blob.get(S.chunk.stats_key)
# name: (valid bytes, what reads them, how a changed body is sealed again)
TARGETS = {
    "record": (
        RECORD.data,
        lambda data: decode_record("orders", RECORD.seqno, data),
        ("record", "orders", str(RECORD.seqno)),
    ),
    "manifest": (
        S.blob.get(S.state.manifest.key),
        lambda data: decode_manifest("orders", SeqNo(S.state.manifest.seqno), data, "key"),
        ("manifest", "orders", f"v{S.state.manifest.seqno}"),
    ),
    "pulse": (
        PULSE.data,
        lambda data: decode_pulse(0, PULSE.seqno, data),
        ("pulse", "0", str(PULSE.seqno)),
    ),
    "tick": (
        seal(
            "Tick",
            "timeline/shop",
            "v0",
            unseal(TICK.data, kind="Tick", owner=None, at=str(TICK.seqno), what="x")[1],
        ),
        tick(Tick, "timeline/shop"),
        ("Tick", "timeline/shop", "v0"),
    ),
    "members": (
        head("timeline-members/shop"),
        tick(Members, "timeline-members/shop"),
        ("Members", "timeline-members/shop", "v0"),
    ),
    "mark": (head("store"), mark, ("store", f"l{'0' * 32}", "store")),
    "part": (S.blob.get(S.part.key), part, None),
    "chunk": (S.blob.get(S.chunk.key), chunk, ("parts", ID, S.chunk.key)),
    "garbage list": (
        S.blob.get(S.chunk.key),
        lambda data: listed_parts(S.chunk.key, data),
        ("parts", ID, S.chunk.key),
    ),
    "chunk statistics": (
        STATS,
        lambda data: add_stats(S.table, data, S.chunk, shard=ID),
        ("stats", ID, S.chunk.stats_key),
    ),
    "part statistics": (S.part.stats, decode_stats, None),
    "times": (S.blob.get(S.moments.key), moments, ("times", ID, S.moments.key)),
    "inline": (S.inline.payload, inline, None),
    "descriptor": (S.descriptors[-1], decode_descriptor, ("descriptor", ID, "")),
}


def mutated(data, chance):
    """One of the ways in which bytes go wrong, or several at once."""
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(7):
            case 0 if changed:
                changed[at % len(changed)] ^= 1 << chance.randrange(8)
            case 1 if changed:
                changed[at % len(changed)] = chance.choice([0, 1, 0x7F, 0x80, 0xC1, 0xFF])
            case 2:
                del changed[at : at + chance.randrange(1, 20)]
            case 3:
                changed[at:at] = chance.randbytes(chance.randrange(1, 20))
            case 4 if changed:
                start = chance.randrange(len(changed))
                changed[at:at] = changed[start : start + 30]
            case 5:
                huge = chance.choice([b"\xff" * 8, b"\xdd\xff\xff\xff\xff", b"\x7f" + b"\xff" * 7])
                changed[at : at + len(huge)] = huge
            case _:
                changed[at:] = b""
    return bytes(changed)


def peak():
    """The most memory that this process ever touched, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("resealed", [False, True], ids=["as found", "sealed again"])
def test_a_decoder_raises_our_errors_and_nothing_else(target, resealed):
    valid, decode, seal_as = TARGETS[target]
    if resealed and seal_as is None:
        return
    decode(valid)
    chance = random.Random(f"{SEED} {target} {resealed}")
    kind, owner, at = seal_as or ("", "", "")
    body = unseal(valid, kind=kind, owner=None, at=at, what="x")[1] if resealed else valid
    before = peak()
    results, longest = Counter(), 0
    for number in range(COUNT):
        data = (
            chance.randbytes(chance.randrange(200)) if number % 10 == 0 else mutated(body, chance)
        )
        given = seal(kind, owner, at, data) if resealed else data
        try:
            decode(given)
            results["read"] += 1
        except StrandlineError as error:
            results["refused"] += 1
            longest = max(longest, len(str(error)))
    assert longest < 1000
    assert peak() - before < MEMORY_MAX
    assert results["refused"] or "statistics" in target, results
