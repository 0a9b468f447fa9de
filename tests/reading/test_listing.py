"""Which pieces of a state answer a read."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from strandline.errors import SinceError
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.chunk import PartTable, encode_chunk
from strandline.parts.filters import parse_filter
from strandline.parts.layout import places_of
from strandline.parts.part import PLACE_MAX, Batch, Chunk, Inline, Part
from strandline.parts.stats import encode_stats, measure
from strandline.reading.listing import (
    Listing,
    Want,
    list_changes,
    list_snapshot,
    newest_time,
    wanted_places,
)
from strandline.shard.state import Moment, State

SCHEMA = Schema.create(pa.schema([("id", pa.int64()), ("name", pa.string())]), ["id"])
ZERO = Digest.ZERO.pack()


def _part(
    name: str, t_min: int, t_max: int, *, base: bool = False, ids: range | None = None
) -> Part:
    stats = b""
    if ids is not None:
        stats = encode_stats(measure([(1, pa.array(list(ids)))], len(ids)))
    rows = 10 if ids is None else len(ids)
    checksum = int.from_bytes(name.encode()[-7:], "big")
    return Part(name, 100, checksum, rows, ZERO, t_min, t_max, base, 0, 0, PLACE_MAX, 1, stats)


def _state(*batches: Batch, since: int = 0, upper: int = 100) -> State:
    return State(
        name="orders",
        id="s" + "0" * 32,
        schema=SCHEMA,
        since=Frontier(since),
        upper=Frontier(upper),
        batches=batches,
    )


def _no_chunks(chunk: Chunk) -> PartTable:
    raise AssertionError(f"{chunk.key} need not be loaded")


def _names(listing: Listing) -> list[tuple[str, int]]:
    return [(getattr(p.piece, "key", "inline"), p.owed) for p in listing.pieces]


HISTORY = _state(
    Batch(0, 6, (_part("base", 3, 3, base=True), _part("old", 4, 5))),
    Batch(6, 9, (_part("mixed", 6, 8),), inline=Inline(1, b"", ZERO, 7, 7, 1)),
    Batch(9, 10, (_part("new", 9, 9),)),
    since=3,
)


@pytest.mark.parametrize(
    ("as_of", "pieces"),
    [
        (3, ["base"]),
        (4, ["base", "old"]),
        (6, ["base", "old", "mixed"]),
        (8, ["base", "old", "inline", "mixed"]),
        (50, ["base", "old", "inline", "mixed", "new"]),
    ],
)
def test_a_snapshot_is_what_holds_something_at_or_before_it(as_of, pieces):
    found = _names(list_snapshot(HISTORY, as_of, Want(), _no_chunks))
    assert found == [(name, as_of) for name in pieces]


@pytest.mark.parametrize(
    ("after", "upto", "pieces"),
    [
        (4, 100, [("old", 4), ("inline", 7), ("mixed", 6), ("new", 9)]),
        (5, 7, [("old", 5), ("mixed", 6)]),
        (8, 9, [("mixed", 8)]),
        (9, 10, [("new", 9)]),
        (10, 100, []),
    ],
)
def test_changes_are_owed_at_the_first_time_they_may_hold(after, upto, pieces):
    assert _names(list_changes(HISTORY, (after, upto), Want(), _no_chunks)) == pieces


def test_changes_from_0_include_the_rows_that_were_merged_at_it():
    base = _part("base", 0, 0, base=True)
    state = _state(Batch(0, 6, (base, _part("old", 1, 5))), since=0)
    assert _names(list_changes(state, (0, 6), Want(), _no_chunks)) == [("base", 0), ("old", 1)]
    assert _names(list_changes(state, (0, 1), Want(), _no_chunks)) == [("base", 0)]
    assert _names(list_changes(state, (1, 6), Want(), _no_chunks)) == [("old", 1)]


def test_history_that_was_merged_is_refused():
    with pytest.raises(SinceError) as caught:
        list_snapshot(HISTORY, 2, Want(), _no_chunks)
    assert caught.value.oldest == 3
    with pytest.raises(SinceError):
        list_changes(HISTORY, (3, 10), Want(), _no_chunks)
    with pytest.raises(SinceError):
        list_changes(HISTORY, (0, 10), Want(), _no_chunks)


def test_s17_a_part_whose_statistics_cant_be_decoded_is_read():
    good = _part("good", 1, 1, ids=range(10))
    newer = msgspec.structs.replace(good, key="newer", stats=b"\x93\x63" + good.stats)
    none = msgspec.structs.replace(good, key="none", stats=b"")
    want = Want(parse_filter([("name", "=", "x"), ("id", "=", 50)], SCHEMA))
    listing = list_snapshot(_state(Batch(0, 2, (good, newer, none))), 1, want, _no_chunks)
    assert [name for name, _ in _names(listing)] == ["newer", "none"]
    assert listing.pruned == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_s17_a_share_of_what_was_left_out_is_audited(share):
    parts = tuple(
        msgspec.structs.replace(_part(f"p{n}", 1, 1, ids=range(10)), checksum=n * 7919)
        for n in range(200)
    )
    want = Want(parse_filter([("id", "=", 50)], SCHEMA), None, share, audit_seed=5)
    listing = list_snapshot(_state(Batch(0, 2, parts)), 1, want, _no_chunks)
    assert listing.pruned == 200
    assert len(listing.audits) == pytest.approx(200 * share, abs=200 * 0.15 if share else 0)


def test_keys_are_found_by_their_places():
    keys = pa.table({"id": pa.array([7, 8], pa.int64())})
    places = places_of(keys, SCHEMA)
    spec = [[("id", "=", 7)], [("id", "in", [8, 7]), ("name", "=", "x")]]
    found = wanted_places(parse_filter(spec, SCHEMA), SCHEMA)
    assert found.tolist() == sorted(places.tolist())
    assert wanted_places(parse_filter([("name", "=", "x")], SCHEMA), SCHEMA) is None
    assert (
        wanted_places(parse_filter([[("id", "=", 1)], [("name", "=", "x")]], SCHEMA), SCHEMA)
        is None
    )
    here, there = sorted(places.tolist())
    near = msgspec.structs.replace(_part("near", 1, 1), place_lo=here, place_hi=here)
    far = msgspec.structs.replace(_part("far", 1, 1), place_lo=here + 1, place_hi=there - 1)
    listing = list_snapshot(_state(Batch(0, 2, (near, far))), 1, Want(places=found), _no_chunks)
    assert [name for name, _ in _names(listing)] == ["near"]


@settings(deadline=None)
@given(st.data())
def test_parts_in_a_chunk_are_listed_as_parts_in_a_state(data):
    parts = []
    for number in range(data.draw(st.integers(1, 12))):
        t_min = data.draw(st.integers(0, 9))
        base = data.draw(st.booleans())
        t_max = t_min if base else data.draw(st.integers(t_min, 9))
        start = data.draw(st.integers(0, 30))
        part = _part(f"{number:032x}", t_min, t_max, base=base, ids=range(start, start + 5))
        low, high = sorted(data.draw(st.tuples(st.integers(0, 99), st.integers(0, 99))))
        parts.append(msgspec.structs.replace(part, place_lo=low, place_hi=high))
    made = encode_chunk(PartTable.of(parts, SCHEMA), shard="s", key="s/w/x.parts")
    places = data.draw(st.none() | st.sets(st.integers(0, 99), min_size=1))
    want = Want(
        parse_filter([("id", "=", data.draw(st.integers(0, 40)))], SCHEMA),
        None if places is None else np.array(sorted(places), np.uint64),
        audit_share=data.draw(st.sampled_from([0.0, 0.5])),
    )
    loose = _state(Batch(0, 10, tuple(parts)))
    packed = replace(loose, batches=(Batch(0, 10, chunks=(made.chunk,)),))
    time, after = data.draw(st.integers(0, 10)), data.draw(st.integers(0, 1))
    listings = [
        (
            list_snapshot(loose, time, want, _no_chunks),
            list_snapshot(packed, time, want, _table(parts)),
        ),
        (
            list_changes(loose, (after, time), want, _no_chunks),
            list_changes(packed, (after, time), want, _table(parts)),
        ),
    ]
    for one, other in listings:
        assert _names(one) == _names(other)
        # A chunk that is left out as a whole is not opened, so none of its parts is audited.
        assert {a.piece.key for a in other.audits} <= {a.piece.key for a in one.audits}


def _table(parts: list[Part]):
    return lambda _chunk: PartTable.of(parts, SCHEMA)


@pytest.mark.parametrize(
    ("upper", "since", "time"),
    [(Frontier(0), 0, 0), (Frontier(5), 0, 4), (Frontier(5), 4, 4), (Frontier.closed(), 0, 7)],
)
def test_a_read_without_a_time_is_of_the_newest_settled_one(upper, since, time):
    state = replace(_state(since=since), moments=(Moment(7, 1, ZERO),))
    assert newest_time(state, upper) == time
