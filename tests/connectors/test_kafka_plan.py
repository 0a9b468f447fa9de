"""What of a topic comes next: starts, shares, pieces; and what is lost, by name."""

import pytest
from confluent_kafka import Uuid
from hypothesis import given, strategies as st

from strandline.connectors.kafka_options import EARLIEST, LATEST
from strandline.connectors.kafka_plan import (
    TOPIC,
    Bounds,
    Found,
    begins_of,
    identity_of,
    insist,
    lost,
    next_range,
    pieces,
    starts_of,
)
from strandline.connectors.position import Range
from strandline.errors import SourceGoneError, UsageError

FOUND = Found("orders", 7, {"0": Bounds(2, 10), "1": Bounds(0, 5)})


@pytest.mark.parametrize(
    ("starting", "starts"),
    [
        (EARLIEST, {"0": 2, "1": 0}),
        (LATEST, {"0": 10, "1": 5}),
        ({"0": 4, "1": LATEST}, {"0": 4, "1": 5}),
        ({"0": EARLIEST}, {"0": 2}),
    ],
)
def test_starts_are_settled_when_a_source_is_opened(starting, starts):
    assert starts_of(starting, FOUND) == starts


@pytest.mark.parametrize(
    ("start", "starting", "opened", "begins"),
    [
        ({}, EARLIEST, {"0": 1}, {"0": 2, "1": 0}),  # retention moved on before the first range
        ({}, LATEST, {"0": 6, "1": 3}, {"0": 6, "1": 3}),
        ({}, LATEST, {"0": 6}, {"0": 6, "1": 0}),  # 1 is newer than the source
        ({"0": 9, TOPIC: 7}, LATEST, {"0": 10, "1": 5}, {"0": 9, "1": 0}),  # and here, than 0's row
        ({"0": 9, "1": 4, TOPIC: 7}, EARLIEST, {}, {"0": 9, "1": 4}),
        ({}, {"0": 5, "1": 5}, {"0": 5, "1": 5}, {"0": 5, "1": 5}),
    ],
)
def test_partitions_begin_where_they_were_left_and_new_ones_at_zero(
    start, starting, opened, begins
):
    assert begins_of(start, starting, opened, FOUND) == begins


def test_starting_offsets_must_name_every_partition():
    with pytest.raises(UsageError, match="partition 1 "):
        begins_of({}, {"0": 5}, {"0": 5}, FOUND)


@pytest.mark.parametrize(
    ("found", "needed", "says"),
    [
        (None, {}, "does not exist"),
        (FOUND, {TOPIC: (8, 8)}, "made again"),
        (FOUND, {"2": (0, 1)}, "no partition 2"),
        (
            FOUND,
            {"0": (1, 4)},
            "partition 0: offsets 1 to 4 are needed, and the broker has 2 to 10",
        ),
        (FOUND, {"1": (4, 6)}, "partition 1: offsets 4 to 6"),
    ],
)
def test_what_is_lost_is_named(found, needed, says):
    assert says in lost(found, "orders", needed)
    with pytest.raises(SourceGoneError, match=says):
        insist(found, "orders", needed)
    with pytest.raises(SourceGoneError, match=f"{says}.*; begin anew"):
        insist(found, "orders", needed, "begin anew")


def test_what_is_there_is_not_lost():
    needed = {TOPIC: (7, 7), "0": (2, 10), "1": (5, 5)}
    assert lost(FOUND, "orders", needed) is None
    assert insist(FOUND, "orders", needed) is FOUND


def test_an_identity_is_stable_and_fits_a_double():
    assert identity_of("e3ijyu3jQKWNxL2MwBq74Q") == 26929914749542
    assert identity_of("a") != identity_of("b")
    assert identity_of(str(Uuid(0, 0))) == 0


def test_a_cluster_that_gives_topics_no_ids_is_not_judged_by_them_and_may_begin_to():
    without = Found("orders", 0, FOUND.partitions)
    first = next_range(without, {"0": 2, "1": 0}, 4)
    assert TOPIC not in first.parts
    after = first.after({})
    assert lost(FOUND, "orders", {each: (at, at) for each, at in after.items()}) is None
    later = next_range(FOUND, after, None)
    assert later.follows(after)
    position = later.after(after)
    assert position[TOPIC] == 7
    assert lost(without, "orders", {each: (at, at) for each, at in position.items()}) is None
    assert next_range(without, position, None).follows(position)


backlogs = st.dictionaries(
    st.integers(0, 20).map(str), st.tuples(st.integers(0, 50), st.integers(0, 1000)), min_size=1
)


@given(backlogs, st.one_of(st.none(), st.integers(1, 3000)))
def test_an_offer_is_within_limits_uses_them_up_and_holds_every_partition(backlog, most):
    found = Found("t", 1, {each: Bounds(0, at + more) for each, (at, more) in backlog.items()})
    begins = {each: at for each, (at, _) in backlog.items()}
    offered = next_range(found, begins, most)
    total = sum(more for _, more in backlog.values())
    assert offered.rows == (total if most is None else min(total, most))
    assert offered.parts.keys() == {*backlog, TOPIC}
    for each, (at, more) in backlog.items():
        start, stop = offered.parts[each]
        assert start == at
        assert stop <= at + more


@given(backlogs, st.integers(1, 400))
def test_pieces_cover_each_offset_once_and_are_not_large(backlog, most):
    taken = Range(
        {TOPIC: (5, 5), **{each: (at, at + more) for each, (at, more) in backlog.items()}}
    )
    cut = pieces(taken, most)
    assert all(0 < stop - start <= most for _, start, stop in cut)
    offsets = [(each, at) for each, start, stop in cut for at in range(start, stop)]
    assert offsets == [
        (each, at) for each, (start, stop) in taken.parts.items() for at in range(start, stop)
    ]
