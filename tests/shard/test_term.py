"""Terms: what they hold, when they end, and that nothing else ends them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from strandline.errors import InvariantError, UsageError
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.codec import decode_manifest, encode_manifest
from strandline.shard.decide import decide
from strandline.shard.pulse import slot_of
from strandline.shard.state import Reader, Retention, check
from strandline.shard.term import TERM_MAX_MS, TERMS_MAX, end_of, term_pulse, valid_term
from strandline.testing import toy
from strandline.upkeep.garbage import deletable

NOW = 5_000
R2 = "r" + "2" * 32


def _take(since=None, *, now_ms=NOW, term_ms=100, reader=toy.R1):
    return c.RegisterTerm(reader, since, now_ms, term_ms, "a plan")


@pytest.fixture
def state():
    """Four settled times at the instant 1000; only the newest is kept once since advances."""
    state = toy.created()
    for time in range(4):
        made = toy.toy_append(
            [(time, time, 1)], lower=time, upper=time + 1, token=f"t{time}", key=f"p{time}"
        )
        state = toy.step(state, made)
    return toy.step(state, c.Retain(Retention(None, 1)))


def test_a_term_holds_times_and_objects_and_knows_its_end(state):
    held = toy.step(state, _take(2))
    assert held.readers[toy.R1] == Reader("until.5100", 2, held.seqno.number, "a plan")
    assert held.readers[toy.R1].until_ms == 5_100
    assert (held.terms(), held.heartbeats()) == ({toy.R1: 5_100}, {toy.W1: "0.0"})
    moved = toy.step(held, c.AdvanceSince(10**9))
    assert moved.since == Frontier(2)
    assert decide(moved, _take(1, reader=R2)) == c.SincePassed(Frontier(2))
    assert decide(held, _take(2)) == c.Unchanged(), "an attempt of unknown fate, again"


def test_r26_only_the_stores_clock_ends_a_term(state):
    """R26."""
    held = toy.step(state, _take(2))
    everybody = frozenset({"0.0", "0.1", "until", ""})
    alive = toy.step(held, c.Expire(everybody, 5_099))
    assert set(alive.readers) == {toy.R1}
    assert alive.writers == {}, "the process that took it is gone"
    assert decide(held, c.Expire(frozenset())) == c.Unchanged()
    ended = toy.step(alive, c.Expire(frozenset(), 5_100))
    assert ended.readers == {}
    assert toy.step(ended, c.AdvanceSince(10**9)).since == Frontier(3)


def test_garbage_stays_for_the_term_and_goes_after_it(state):
    held = toy.step(state, _take(None))
    parts = (toy.toy_part("new", [(0, 0, 1), (1, 1, 1)]),)
    gone = ("p0", "p1")
    swapped = toy.step(held, c.Replace(toy.W1, frozenset(gone), parts=parts, garbage=gone))
    assert deletable(swapped).keys == frozenset()
    ended = toy.step(swapped, c.Expire(frozenset(), 5_100))
    assert deletable(ended).keys == frozenset(gone)


def test_a_term_is_given_back_by_its_id(state):
    held = toy.step(state, _take(2))
    assert toy.step(held, c.Release(readers=(toy.R1,))).readers == {}


def test_a_clock_that_was_set_back_does_not_shorten_a_term(state):
    late = toy.toy_append([(9, 4, 1)], lower=4, upper=5, token="late")
    state = toy.step(state, replace(late, now_ms=90_000))
    assert toy.step(state, _take(2, now_ms=10)).terms() == {toy.R1: 90_100}


def test_a_term_survives_manifests_and_the_drop_of_its_shard(state):
    held = toy.step(state, _take(2))
    loaded = decode_manifest(toy.NAME, held.seqno, encode_manifest(held), "key")
    assert loaded.terms() == {toy.R1: 5_100}
    dropped = toy.step(held, c.Drop())
    reborn = toy.step(dropped, c.Create(toy.NAME, "s" + "9" * 32, toy.SCHEMA, 5))
    assert reborn.terms() == {toy.R1: 5_100}
    assert deletable(reborn).keys == frozenset(), "what it may read is there"
    ended = toy.step(reborn, c.Expire(frozenset(), 5_100))
    assert deletable(ended).keys == {"p0", "p1", "p2", "p3"}


def test_a_tombstone_gives_no_terms(state):
    assert isinstance(decide(toy.step(state, c.Drop()), _take(2)), c.Refused)


def test_there_are_so_many_terms_and_none_is_evicted(state):
    many = {f"r{n}": Reader(term_pulse(9_000), 2, 0) for n in range(TERMS_MAX)}
    full = replace(state, readers=many)
    assert "end_term" in decide(full, _take(2)).reason
    room = toy.step(full, c.Release(readers=("r7",)))
    assert toy.R1 in toy.step(room, _take(2)).readers


def test_r27_a_reader_keeps_its_pulse(state):
    held = toy.step(state, _take(2))
    for pulse in ("until.5099", "until.9999", "0.0"):
        moved = msgspec.structs.replace(held.readers[toy.R1], pulse=pulse)
        with pytest.raises(InvariantError, match="R27"):
            check(held, replace(held, readers={toy.R1: moved}))
    down = toy.step(held, c.Downgrade({toy.R1: (3, held.seqno.number)}))
    assert down.terms() == held.terms()


def test_who_takes_a_term_for_a_heartbeat_fails_and_buries_nobody():
    """As an older version of this program would, that knows of no terms."""
    with pytest.raises(ValueError, match="until"):
        slot_of(term_pulse(5))
    assert (end_of("3.1"), end_of(term_pulse(5))) == (None, 5)


def test_how_long_a_term_may_be():
    assert [valid_term(ms) for ms in (1, TERM_MAX_MS)] == [1, TERM_MAX_MS]
    for wrong in (0, -1, TERM_MAX_MS + 1, 1.5, None, True, "1"):
        with pytest.raises(UsageError, match="critical hold"):
            valid_term(wrong)
