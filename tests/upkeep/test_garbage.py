"""What may be deleted: nothing that is referred to, held, or may still count."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, strategies as st

from strandline.model.digest import Digest
from strandline.model.ids import SeqNo
from strandline.model.schema import Schema
from strandline.parts.part import PLACE_MAX, Batch, Chunk, Part
from strandline.shard.state import Garbage, Manifest, Reader, State, Writer
from strandline.store.blob import BlobEntry
from strandline.upkeep.garbage import (
    deletable,
    held,
    listing_chunks,
    manifest_version,
    orphans,
    truncate_before,
)

ID = "s" + "0" * 32
LIVE, DEAD = "w" + "1" * 32, "w" + "2" * 32
ZERO = Digest.ZERO.pack()
SCHEMA = Schema.create(pa.schema([("k", pa.int64())]), ("k",))


def key(owner, number, kind="parquet"):
    return f"{ID}/{owner}/{number:032x}.{kind}"


def part(name):
    return Part(name, 1, 0, 1, ZERO, 0, 0, False, 0, 0, PLACE_MAX, 1)


def chunk(name):
    return Chunk(name, 1, 0, 1, 1, 1, ZERO, 0, 0, 0, PLACE_MAX, f"{name}.stats")


@st.composite
def shards(draw):
    """A state, all objects there are, and what its chunks list."""
    keys = [key(owner, n) for owner in (LIVE, DEAD) for n in range(8)]
    roles = {
        k: draw(st.sampled_from(["referred", "listed", "garbage", "gone-listed", "nothing"]))
        for k in keys
    }
    live_chunk, gone_chunk = key(DEAD, 99, "parts"), key(LIVE, 98, "parts")
    lists = {
        live_chunk: [k for k, role in roles.items() if role == "listed"],
        gone_chunk: [k for k, role in roles.items() if role == "gone-listed"],
    }
    garbage = [
        Garbage(draw(st.integers(1, 20)), (k,)) for k, role in roles.items() if role == "garbage"
    ]
    garbage.append(Garbage(draw(st.integers(1, 20)), (gone_chunk,), (gone_chunk,)))
    manifests = [f"{ID}/v{n}/{n:032x}.manifest" for n in range(0, 30, 5)]
    counts = draw(st.sampled_from([None, *manifests]))
    manifest = (
        None if counts is None else Manifest(int(counts.split("/v")[1].split("/")[0]), counts, 1, 0)
    )
    readers = {
        f"r{n}": Reader("0.0", None, seqno)
        for n, seqno in enumerate(draw(st.lists(st.integers(0, 25), max_size=3)))
    }
    referred = tuple(part(k) for k, role in roles.items() if role == "referred")
    state = State(
        name="s",
        id=ID,
        schema=SCHEMA,
        seqno=SeqNo(25),
        batches=(Batch(0, 1, referred, (chunk(live_chunk),)),),
        readers=readers,
        writers={LIVE: Writer("0.0")},
        garbage=tuple(garbage),
        manifest=manifest,
    )
    return state, [*keys, live_chunk, f"{live_chunk}.stats", gone_chunk, *manifests], lists, roles


@given(shards())
def test_r13_what_is_referred_to_is_never_deletable(case):
    """R13."""
    state, objects, lists, roles = case
    gone = set(deletable(state).keys)
    gone |= {entry.key for entry in orphans(state, [BlobEntry(k, 1) for k in objects], lists)}
    assert not gone & {k for k, role in roles.items() if role in ("referred", "listed")}
    assert not gone & {c.key for batch in state.batches for c in batch.chunks}
    assert state.manifest is None or state.manifest.key not in gone


@given(shards())
def test_r14_garbage_waits_for_every_reader_of_an_older_version(case):
    """R14."""
    state, objects, lists, _ = case
    swept = {entry.key for entry in orphans(state, [BlobEntry(k, 1) for k in objects], lists)}
    hold = min((reader.seqno for reader in state.readers.values()), default=25)
    for entry in state.garbage:
        assert set(entry.keys).issubset(deletable(state).keys) == (entry.seqno <= hold)
        assert not swept & {*entry.keys, *(k for c in entry.chunks for k in lists[c])}


@given(shards())
def test_r15_orphans_are_exactly_what_dead_writers_left(case):
    """R15."""
    state, objects, lists, roles = case
    swept = {entry.key for entry in orphans(state, [BlobEntry(k, 1) for k in objects], lists)}
    left = {k for k, role in roles.items() if role == "nothing" and f"/{DEAD}/" in k}
    assert {k for k in swept if k.endswith(".parquet")} == left


@given(shards())
def test_r16_a_manifest_is_an_orphan_only_if_it_can_never_count(case):
    """R16."""
    state, objects, lists, _ = case
    swept = {entry.key for entry in orphans(state, [BlobEntry(k, 1) for k in objects], lists)}
    manifests = [k for k in objects if k.endswith(".manifest")]
    newest = -1 if state.manifest is None else state.manifest.seqno
    for k in manifests:
        version = manifest_version(k.split("/")[1], "x.manifest")
        assert (k in swept) == (version < newest)


@given(shards())
def test_r17_records_go_only_before_the_newest_manifest(case):
    """R17."""
    state = case[0]
    before = truncate_before(state)
    assert before == (None if state.manifest is None else SeqNo(state.manifest.seqno))


def test_objects_of_others_are_none_of_our_business():
    state = State(name="s", id=ID, schema=SCHEMA)
    strange = ["other/x/y", f"{ID}/x", f"{ID}/vx/a.manifest", f"{ID}/readme/a", ID]
    assert orphans(state, [BlobEntry(k, 1) for k in strange], {}) == []


def test_a_chunk_that_was_not_read_stops_the_sweep():
    import pytest

    from strandline.errors import InvariantError

    state = State(
        name="s", id=ID, schema=SCHEMA, batches=(Batch(0, 1, (), (chunk(key(DEAD, 1, "parts")),)),)
    )
    assert listing_chunks(state) == [key(DEAD, 1, "parts")]
    with pytest.raises(InvariantError, match="R13"):
        held(state, {})


def test_what_dropped_shards_left_is_an_orphan_unless_somebody_lists_it() -> None:
    from strandline.store.blob import BlobEntry
    from strandline.upkeep.garbage import orphans_of_dropped

    living, dropped = "s" + "1" * 32, "s" + "2" * 32
    keys = [f"{living}/w/a", f"{dropped}/w/b", f"{dropped}/w/c", "somebody/else", dropped]
    listed = [BlobEntry(key, 1) for key in keys]
    found = orphans_of_dropped({living}, {f"{dropped}/w/c"}, listed)
    assert [entry.key for entry in found] == [f"{dropped}/w/b"]
