"""A stored change is carried out to the letter, or refused."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.model.frontier import Frontier
from strandline.model.ids import SeqNo
from strandline.shard import command as c
from strandline.shard.change import Change, evolve, pack_schema, unpack_schema
from strandline.shard.decide import decide
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
    inline_size,
)
from strandline.shard.txn import Mark
from strandline.testing import toy

ZERO = toy.Digest.ZERO.pack()
ONE = toy.digest_of([(1, 0, 1)])
WIDER = toy.SCHEMA.evolve(pa.schema([("row", pa.int64()), ("note", pa.string())]))


def _settled(upto=4):
    state = toy.created()
    for t in range(upto):
        append = toy.toy_append([(t, t, 1)], lower=t, upper=t + 1, token=f"t{t}")
        state = toy.step(state, append)
    return state


S = _settled()
BATCH = toy.toy_append([(9, 4, 1)], lower=4, upper=5, token="x").batch
MOMENT = Moment(9, 9, ZERO)
CHUNK = MomentChunk("m", 1, 1, 2, 0, 1, 1000, 1000, ZERO)

MARK = Mark(7, ONE.pack(), 3, 1000)

EACH = [
    pytest.param(Change(), {}, id="nothing"),
    pytest.param(Change(upper=7), {"upper": Frontier(7)}, id="upper"),
    pytest.param(Change(closed=True), {"upper": Frontier.closed()}, id="closed"),
    pytest.param(Change(since=2), {"since": Frontier(2)}, id="since"),
    pytest.param(Change(timeline="line"), {"timeline": "line"}, id="timeline"),
    pytest.param(Change(epoch=3), {"epoch": 3}, id="epoch"),
    pytest.param(
        Change(schema=pack_schema(WIDER)),
        {"schema": WIDER},
        id="schema",
    ),
    pytest.param(Change(batches=(BATCH,)), {"batches": (*S.batches, BATCH)}, id="batches"),
    pytest.param(
        Change(splice=(1, 3), batches=(BATCH,)),
        {"batches": (S.batches[0], BATCH, S.batches[3])},
        id="splice",
    ),
    pytest.param(Change(splice=(2, 2)), {}, id="an empty splice"),
    pytest.param(Change(splice=(0, 4)), {"batches": ()}, id="all batches"),
    pytest.param(Change(moments_dropped=1), {"moments": S.moments[1:]}, id="moments dropped"),
    pytest.param(Change(moments_cut=1), {"moments": S.moments[:3]}, id="moments cut"),
    pytest.param(
        Change(moments_dropped=1, moments_cut=1, moments=(MOMENT,)),
        {"moments": (*S.moments[1:3], MOMENT)},
        id="moments dropped, cut and added",
    ),
    pytest.param(
        Change(moment_chunk=CHUNK),
        {"moments": S.moments[2:], "moment_chunks": (CHUNK,)},
        id="moments indexed",
    ),
    pytest.param(Change(settled=ONE.pack()), {"settled": ONE}, id="settled"),
    pytest.param(Change(total=ONE.pack()), {"total": ONE}, id="total"),
    pytest.param(Change(instant_ms=5000), {"instant_ms": 5000}, id="instant"),
    pytest.param(
        Change(readers={"r": Reader("0.0", 1, 1)}),
        {"readers": {"r": Reader("0.0", 1, 1)}},
        id="a reader",
    ),
    pytest.param(
        Change(writers={toy.W1: None, "w": Writer("0.0")}),
        {"writers": {"w": Writer("0.0")}},
        id="a writer goes, a writer comes",
    ),
    pytest.param(Change(holds={"h": Critical(1, 1)}), {"holds": {"h": Critical(1, 1)}}, id="hold"),
    pytest.param(Change(retention=Retention(1, 1)), {"retention": Retention(1, 1)}, id="retain"),
    pytest.param(
        Change(garbage=(Garbage(1, ("a",)),)), {"garbage": (Garbage(1, ("a",)),)}, id="garbage"
    ),
    pytest.param(Change(garbage_collected=("a",)), {}, id="garbage that is not listed"),
    pytest.param(
        Change(manifest=Manifest(1, "m", 1, 1)), {"manifest": Manifest(1, "m", 1, 1)}, id="manifest"
    ),
    pytest.param(Change(dropped=True), {"dropped": True}, id="dropped"),
    pytest.param(Change(txns={"q": MARK}), {"txns": {"q": MARK}}, id="an application"),
    pytest.param(Change(txns={"q": None}), {}, id="an application that is not known"),
]


@pytest.mark.parametrize(("change", "changed"), EACH)
def test_a_change_changes_what_it_names_and_nothing_else(change, changed):
    after = evolve(S, change)
    for field in fields(State):
        expected = changed.get(field.name, getattr(S, field.name))
        if field.name == "seqno":
            expected = S.seqno.next()
        if field.name == "inline_size":
            expected = inline_size(after.batches)
        assert getattr(after, field.name) == expected, field.name


def test_the_table_above_knows_every_field_of_a_change():
    named = {
        name
        for case in EACH
        for name in Change.__struct_fields__
        if getattr(case.values[0], name) != getattr(Change(), name)
    }
    assert named == set(Change.__struct_fields__) - {"created", "moment_chunks_dropped"}


def test_the_oldest_chunks_of_moments_go_first():
    state = evolve(S, Change(moment_chunk=CHUNK))
    assert evolve(state, Change(moment_chunks_dropped=1)).moment_chunks == ()


def test_collected_garbage_goes_wherever_it_is_listed():
    state = evolve(S, Change(garbage=(Garbage(1, ("a", "c"), ("c",)), Garbage(2, ("b",)))))
    after = evolve(state, Change(garbage_collected=("b", "c"), garbage=(Garbage(3, ("d",)),)))
    assert after.garbage == (Garbage(1, ("a",)), Garbage(3, ("d",)))


def test_versions_are_counted_from_zero():
    first = evolve(None, decide(None, c.Create(toy.NAME, toy.ID, toy.SCHEMA, 5)).change)
    assert first.seqno == SeqNo(0)
    assert evolve(first, Change()).seqno == SeqNo(1)
    assert (first.name, first.id, first.created_ms) == (toy.NAME, toy.ID, 5)


def test_a_first_version_that_creates_nothing_is_damage():
    with pytest.raises(CorruptionError, match="first version"):
        evolve(None, Change(upper=3))


@pytest.mark.parametrize(
    "change",
    [
        Change(splice=(3, 5)),
        Change(splice=(3, 2)),
        Change(splice=(-1, 2)),
        Change(moments_dropped=5),
        Change(moments_dropped=-1),
        Change(moments_cut=5),
        Change(moments_cut=-1),
        Change(moments_dropped=3, moments_cut=2),
        Change(moments_dropped=3, moment_chunk=CHUNK),
        Change(moment_chunks_dropped=1),
        Change(moment_chunks_dropped=-1),
    ],
    ids=str,
)
def test_a_change_of_what_is_not_there_is_damage(change):
    with pytest.raises(CorruptionError, match="v6 of shard toy"):
        evolve(S, change)


def test_a_schema_comes_back_from_its_bytes():
    for schema in (toy.SCHEMA, WIDER):
        assert unpack_schema(pack_schema(schema)) == schema


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x80", b"\x93abc"], ids=str)
def test_a_schema_that_is_none_is_damage(data):
    with pytest.raises(CorruptionError, match="schema"):
        unpack_schema(data)
