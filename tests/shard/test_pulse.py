"""Every pair of status and command, and what clocks may and may not do to a heartbeat."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from strandline.errors import CorruptionError
from strandline.model.ids import SeqNo
from strandline.shard import pulse as p

LEASE = 60_000
HOUR = 3_600_000
LIVE, ENDED = p.Status.LIVE, p.Status.ENDED


def _pulse(status=LIVE, counter=4, incarnation=2, suspected=None):
    counter_seen, at_ms = suspected or (-1, 0)
    return p.Pulse(7, incarnation, status, counter, LEASE, "host 12", counter_seen, at_ms)


def _begin(previous):
    return p.begin(7, previous, lease_ms=LEASE, owner="host 12")


SUSPECTED = _pulse(suspected=(4, 1000))
PAIRS = [
    pytest.param(_pulse(), _begin, None, id="LIVE begin: the slot is taken"),
    pytest.param(_pulse(), lambda q: p.beat(q, 2), _pulse(counter=5), id="LIVE beat"),
    pytest.param(_pulse(), lambda q: p.beat(q, 1), None, id="LIVE beat of an older life"),
    pytest.param(_pulse(), lambda q: p.beat(q, 3), None, id="LIVE beat of a later life"),
    pytest.param(SUSPECTED, lambda q: p.beat(q, 2), _pulse(counter=5), id="LIVE beat: forgets"),
    pytest.param(_pulse(), lambda q: p.suspect(q, 1000), SUSPECTED, id="LIVE suspect"),
    pytest.param(SUSPECTED, lambda q: p.suspect(q, 9000), None, id="LIVE suspect again"),
    pytest.param(
        _pulse(suspected=(3, 10)), lambda q: p.suspect(q, 1000), SUSPECTED, id="LIVE moved since"
    ),
    pytest.param(
        _pulse(suspected=(4, HOUR)), lambda q: p.suspect(q, 1000), SUSPECTED, id="LIVE future"
    ),
    pytest.param(_pulse(), lambda q: p.end(q, 10**15), None, id="LIVE end: not suspected"),
    pytest.param(SUSPECTED, lambda q: p.end(q, 999 + LEASE), None, id="LIVE end: too early"),
    pytest.param(
        SUSPECTED,
        lambda q: p.end(q, 1000 + LEASE),
        _pulse(ENDED, suspected=(4, 1000)),
        id="LIVE end",
    ),
    pytest.param(
        _pulse(counter=5, suspected=(4, 1000)), lambda q: p.end(q, 10**15), None, id="LIVE moved"
    ),
    pytest.param(_pulse(), lambda q: p.stop(q, 2), _pulse(ENDED), id="LIVE stop"),
    pytest.param(_pulse(), lambda q: p.stop(q, 1), None, id="LIVE stop of an older life"),
    pytest.param(_pulse(ENDED), lambda q: p.beat(q, 2), None, id="ENDED beat: lost"),
    pytest.param(_pulse(ENDED), lambda q: p.suspect(q, 1000), None, id="ENDED suspect"),
    pytest.param(_pulse(ENDED, suspected=(4, 0)), lambda q: p.end(q, 10**15), None, id="ENDED end"),
    pytest.param(_pulse(ENDED), lambda q: p.stop(q, 2), None, id="ENDED stop"),
    pytest.param(_pulse(ENDED), _begin, _pulse(counter=0, incarnation=3), id="ENDED begin"),
    pytest.param(None, _begin, _pulse(counter=0, incarnation=0), id="none begin"),
]


@pytest.mark.parametrize(("pulse", "command", "expected"), PAIRS)
def test_a_command_on_a_pulse(pulse, command, expected):
    assert command(pulse) == expected


@pytest.mark.parametrize(
    ("current", "over"),
    [
        pytest.param(_pulse(), False, id="alive"),
        pytest.param(_pulse(suspected=(4, 0)), False, id="suspected only"),
        pytest.param(_pulse(ENDED), True, id="ended"),
        pytest.param(_pulse(incarnation=3), True, id="the slot is used again"),
        pytest.param(_pulse(ENDED, incarnation=3), True, id="and ended again"),
        pytest.param(_pulse(incarnation=1), False, id="an old reading of the slot"),
        pytest.param(_pulse(ENDED, incarnation=1), False, id="an old reading, ended"),
        pytest.param(None, True, id="there never was one"),
    ],
)
def test_when_the_pulse_a_shard_refers_to_is_over(current, over):
    assert p.is_over("7.2", current) is over


def test_a_pulse_is_referred_to_by_slot_and_incarnation():
    assert _pulse().id == "7.2"
    assert p.slot_of("7.2") == (7, 2)


def test_more_than_one_lease_can_be_asked_for():
    assert p.may_end(SUSPECTED, 1000 + 2 * LEASE, leases=2)
    assert not p.may_end(SUSPECTED, 999 + 2 * LEASE, leases=2)


@given(st.integers(-HOUR, HOUR), st.integers(-HOUR, HOUR), st.integers(0, 5))
def test_a_beat_between_suspicion_and_end_always_saves(jump, second_jump, beats):
    pulse = p.suspect(_pulse(), 10**12)
    for _ in range(beats + 1):
        pulse = p.beat(pulse, 2)
    assert p.end(pulse, 10**12 + jump + second_jump + LEASE) is None
    assert p.beat(pulse, 2) is not None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.just(0)),
        st.tuples(st.just("clock"), st.integers(-HOUR, HOUR)),
        st.tuples(st.just("suspect"), st.just(0)),
        st.tuples(st.just("end"), st.just(0)),
    ),
    max_size=30,
)


@given(STEPS)
def test_whatever_the_clock_does_only_a_counter_that_stood_still_since_its_suspicion_ends(steps):
    pulse, now_ms = _pulse(), 10**12
    counter_when_suspected = None
    for name, jump in steps:
        now_ms += jump
        if name == "beat":
            pulse = p.beat(pulse, 2)
        elif name == "suspect" and (new := p.suspect(pulse, now_ms)) is not None:
            pulse, counter_when_suspected = new, pulse.counter
        elif name == "end" and (new := p.end(pulse, now_ms)) is not None:
            assert counter_when_suspected == pulse.counter
            assert now_ms - pulse.suspected_ms >= LEASE
            return
        assert pulse.status is LIVE


@given(st.integers(-HOUR, HOUR))
def test_the_dead_go_within_two_looks_a_lease_apart_even_if_the_clock_was_set_back(jump):
    """A suspicion made while the clock was ahead is made anew, so it delays nobody by an hour."""
    now_ms = 10**12
    pulse = p.suspect(_pulse(), now_ms)
    now_ms += jump
    pulse = p.suspect(pulse, now_ms) or pulse
    assert p.end(pulse, now_ms + LEASE) is not None


def test_a_pulse_comes_back_from_its_bytes():
    for pulse in (_pulse(), SUSPECTED, _pulse(ENDED)):
        data = p.encode_pulse(pulse, SeqNo(9))
        assert p.decode_pulse(7, SeqNo(9), data) == pulse


@pytest.mark.parametrize(("slot", "seqno"), [(8, 9), (7, 8), (7, 10)])
def test_a_pulse_of_another_slot_or_position_is_refused(slot, seqno):
    data = p.encode_pulse(_pulse(), SeqNo(9))
    with pytest.raises(CorruptionError, match=f"pulse {slot} at v{seqno}"):
        p.decode_pulse(slot, SeqNo(seqno), data)
