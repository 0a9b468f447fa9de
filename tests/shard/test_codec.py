"""Records and manifests come back as they were; `test_golden` pins their bytes."""

from __future__ import annotations

from dataclasses import fields, replace

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.model.frontier import TIME_MAX, Frontier
from strandline.model.ids import SeqNo
from strandline.parts.envelope import seal
from strandline.parts.part import Batch, Chunk, Inline, Part
from strandline.shard.change import Change, Created, pack_schema
from strandline.shard.codec import (
    Record,
    decode_manifest,
    decode_record,
    encode_manifest,
    encode_record,
)
from strandline.shard.state import (
    Critical,
    Garbage,
    Manifest,
    Moment,
    MomentChunk,
    Reader,
    Retention,
    State,
    Writer,
)
from strandline.shard.txn import Mark
from strandline.testing import toy

WIDER = toy.SCHEMA.evolve(pa.schema([("row", pa.int64()), ("note", pa.string())]))

times = st.integers(0, TIME_MAX)
words = st.text(max_size=12)
u64 = st.integers(0, 2**64 - 1)
counts = st.integers(0, 2**40)
instants = st.integers(0, 2**62)
bits = st.builds(Digest, st.integers(-(2**63), 2**63 - 1), u64, u64)
packed = bits.map(Digest.pack)


def _tuples(each, most=3):
    return st.lists(each, max_size=most).map(tuple)


def _struct(kind, *strategies):
    return st.builds(kind, *strategies)


parts = _struct(
    Part,
    *(words, counts, u64, counts, packed, times, times, st.booleans(), st.integers(0, 60)),
    *(u64, u64, counts, st.binary(max_size=20)),
)
chunks = _struct(
    Chunk, words, counts, u64, counts, counts, counts, packed, times, times, u64, u64, words
)
inlines = _struct(Inline, counts, st.binary(max_size=50), packed, times, times, counts)
batches = _struct(Batch, times, times, _tuples(parts), _tuples(chunks), st.none() | inlines, counts)
moments = _struct(Moment, times, instants, packed)
moment_chunks = _struct(
    MomentChunk, words, counts, u64, counts, times, times, instants, instants, packed
)
readers = _struct(Reader, words, st.none() | times, counts, words)
writers = _struct(Writer, words, words, times, st.none() | times, st.integers(-1, 2**40), words)
criticals = _struct(Critical, times, counts, words)
retentions = _struct(Retention, st.none() | counts, st.none() | counts)
garbages = _struct(Garbage, counts, _tuples(words), _tuples(words))
manifests = _struct(Manifest, counts, words, counts, u64)
marks = _struct(Mark, counts, packed, counts, instants)
schemas = st.sampled_from([toy.SCHEMA, WIDER])

CHANGE = {
    "upper": st.none() | times,
    "closed": st.booleans(),
    "since": st.none() | times,
    "timeline": st.none() | words,
    "epoch": st.none() | counts,
    "schema": st.none() | schemas.map(pack_schema),
    "splice": st.none() | st.tuples(counts, counts),
    "batches": _tuples(batches),
    "moments_dropped": counts,
    "moments_cut": counts,
    "moments": _tuples(moments),
    "moment_chunks_dropped": counts,
    "moment_chunk": st.none() | moment_chunks,
    "settled": st.none() | packed,
    "total": st.none() | packed,
    "instant_ms": st.none() | instants,
    "readers": st.dictionaries(words, st.none() | readers, max_size=2),
    "writers": st.dictionaries(words, st.none() | writers, max_size=2),
    "holds": st.dictionaries(words, st.none() | criticals, max_size=2),
    "retention": st.none() | retentions,
    "garbage": _tuples(garbages),
    "garbage_collected": _tuples(words),
    "manifest": st.none() | manifests,
    "dropped": st.booleans(),
    "txns": st.dictionaries(words, st.none() | marks, max_size=2),
    "created": st.none() | st.builds(Created, words, words, schemas.map(pack_schema), instants),
}
STATE = {
    "name": words,
    "id": words,
    "schema": schemas,
    "seqno": st.builds(SeqNo, counts),
    "created_ms": instants,
    "dropped": st.booleans(),
    "upper": st.builds(Frontier, st.none() | times),
    "since": st.builds(Frontier, st.none() | times),
    "timeline": st.none() | words,
    "epoch": counts,
    "batches": _tuples(batches),
    "moments": _tuples(moments),
    "moment_chunks": _tuples(moment_chunks),
    "settled": bits,
    "total": bits,
    "instant_ms": instants,
    "readers": st.dictionaries(words, readers, max_size=2),
    "writers": st.dictionaries(words, writers, max_size=2),
    "holds": st.dictionaries(words, criticals, max_size=2),
    "retention": retentions,
    "garbage": _tuples(garbages),
    "manifest": st.none() | manifests,
    "txns": st.dictionaries(words, marks, max_size=2),
}
changes = st.builds(Change, **CHANGE)
states = st.builds(State, **STATE)


@given(changes, st.none() | manifests, words, counts)
def test_a_record_comes_back_as_it_was(change, manifest, name, number):
    record = Record(change, manifest)
    data = encode_record(name, SeqNo(number), record)
    assert decode_record(name, SeqNo(number), data) == record


@given(states)
def test_a_manifest_comes_back_as_it_was(state):
    data = encode_manifest(state)
    assert decode_manifest(state.name, state.seqno, data, "key") == state


def test_the_strategies_know_every_field():
    """Or a new field would be stored without a test."""
    assert set(Change.__struct_fields__) == set(CHANGE)
    assert {field.name for field in fields(State) if field.compare} == set(STATE)


def test_a_small_change_is_a_small_record():
    data = encode_record("orders", SeqNo(7), Record(Change(upper=8), None))
    assert len(data) < 60


def test_a_manifest_whose_inside_is_of_another_version_is_refused():
    state = toy.created()
    inside = encode_manifest(replace(state, seqno=SeqNo(5)))
    body = msgspec.msgpack.decode(inside[14:])[3]
    forged = seal("manifest", state.name, "v4", body)
    with pytest.raises(CorruptionError, match="another version"):
        decode_manifest(state.name, SeqNo(4), forged, "key")


@pytest.mark.parametrize("body", [b"", b"\x90", b"\x80", b"\x92\x80\xa1\xff"], ids=str)
def test_a_sealed_body_that_is_neither_is_damage(body):
    with pytest.raises(CorruptionError, match="version v1 of shard toy is damaged"):
        decode_record("toy", SeqNo(1), seal("record", "toy", "v1", body))
    with pytest.raises(CorruptionError, match="manifest key of shard toy is damaged"):
        decode_manifest("toy", SeqNo(1), seal("manifest", "toy", "v1", body), "key")


def test_fields_that_a_later_release_added_are_skipped():
    """Within one format, additions are readable by older code."""
    record = Record(Change(upper=8), None)
    plain = msgspec.to_builtins(record)
    plain[0]["invented_later"] = {"a": 1}
    body = msgspec.msgpack.encode([*plain, "more"])
    assert decode_record("toy", SeqNo(1), seal("record", "toy", "v1", body)) == record
