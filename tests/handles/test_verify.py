"""Whether what is settled is what a replica computed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError, ReplicaDivergedError, SinceError
from strandline.handles.write import Appended, Writer
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.shard.moments import encode_moments, moments_key
from strandline.shard.state import Retention
from strandline.shard.timeline import PlainTimeline
from strandline.testing.lab import Lab


def updates(*rows: tuple[int, int, int]) -> pa.Table:
    """Rows as (id, time, diff)."""
    return pa.table(
        {
            "id": pa.array([r[0] for r in rows], pa.int64()),
            "name": pa.array([f"n{r[0]}" for r in rows], pa.string()),
            "_time": pa.array([r[1] for r in rows], pa.int64()),
            "_diff": pa.array([r[2] for r in rows], pa.int64()),
        }
    )


def writer_on(lab: Lab) -> Writer:
    machine = lab.machine()
    return Writer(machine, lab.leases(machine.env).writer(machine))


SETTLED = updates((1, 0, 1), (2, 2, 1), (3, 4, 2))


@pytest.fixture
def writer(lab: Lab) -> Writer:
    """Times 0 to 5 are settled, in two appends."""
    made = writer_on(lab)
    for table, lower, upper in ((SETTLED.slice(0, 2), 0, 3), (SETTLED.slice(2), 3, 6)):
        outcome = made.compare_and_append(table, lower=lower, upper=upper)
        assert isinstance(outcome, Appended)
    return made


@pytest.mark.parametrize(
    ("table", "lower", "upper", "edge"),
    [
        (SETTLED, 0, 6, 6),
        (SETTLED.take([2, 0, 1]), 0, 6, 6),
        (SETTLED.slice(1), 1, 6, 6),
        (SETTLED.slice(1, 1), 1, 4, 4),
        (pa.concat_tables([SETTLED, updates((9, 7, 1))]), 0, 9, 6),
        (pa.concat_tables([SETTLED, updates((9, 3, 1), (9, 3, -1))]), 0, 6, 6),
        (updates((3, 4, 1), (3, 4, 1)), 3, 6, 6),
        (updates((9, 7, 1)), 6, 9, 6),
        (SETTLED.slice(0, 0), 5, 6, 6),
    ],
    ids=[
        "the same",
        "another order",
        "a later start",
        "an inner stretch",
        "cut at the upper",
        "what cancels",
        "a diff of two",
        "nothing settled",
        "an empty time",
    ],
)
def test_the_same_rows_are_found_however_they_were_cut(
    writer: Writer, table: pa.Table, lower: int, upper: int, edge: int
):
    assert writer.verify(table, lower=lower, upper=upper) == Frontier(edge)


@pytest.mark.parametrize(
    ("table", "time"),
    [
        (SETTLED.slice(1), 0),
        (SETTLED.slice(0, 2), 4),
        (pa.concat_tables([SETTLED, updates((9, 5, 1))]), 5),
        (updates((1, 0, 1), (2, 2, 1), (3, 4, 1)), 4),
        (updates((1, 0, 1), (2, 3, 1), (3, 4, 2)), 2),
        (updates((1, 0, 1), (7, 2, 1), (3, 4, 2)), 2),
    ],
    ids=["a row less", "none at the end", "a row more", "another diff", "another time", "other"],
)
def test_other_rows_stop_the_replica_at_the_first_time_that_differs(
    writer: Writer, table: pa.Table, time: int
):
    with pytest.raises(ReplicaDivergedError, match=f"orders: at time {time} "):
        writer.verify(table, lower=0, upper=6)


def test_times_that_were_merged_can_not_be_compared(lab: Lab, writer: Writer):
    machine = Machine(lab.env(), "orders")
    machine.demand(c.Retain(Retention(None, 1)))
    machine.demand(c.AdvanceSince(lab.clock.now))
    since = machine.state.readable_from()
    assert since > 0
    with pytest.raises(SinceError, match="can't be compared") as caught:
        writer.verify(SETTLED, lower=0, upper=6)
    assert caught.value.oldest == since


def index_moments(lab: Lab, count: int) -> str:
    machine = Machine(lab.env(), "orders")
    state = machine.refresh()
    writer = next(iter(state.writers))
    key = moments_key(state.id, writer, "2" * 32)
    chunk, encoded = encode_moments(state.moments[:count], shard=state.id, key=key)
    lab.blob.put(key, encoded)
    machine.demand(c.IndexMoments(writer, chunk))
    return key


def test_times_that_moved_into_an_object_are_compared_all_the_same(lab: Lab, writer: Writer):
    index_moments(lab, 3)
    assert writer.verify(SETTLED, lower=0, upper=6) == Frontier(6)
    with pytest.raises(ReplicaDivergedError, match="time 2"):
        writer.verify(SETTLED.take([0, 2]), lower=0, upper=6)


def test_a_missing_list_of_times_is_damage(lab: Lab, writer: Writer):
    lab.blob.delete(index_moments(lab, 3))
    with pytest.raises(CorruptionError, match="list of its times is missing"):
        writer.verify(SETTLED, lower=0, upper=6)


def test_an_attached_shard_is_compared_as_far_as_its_timeline_committed(lab: Lab):
    writer = writer_on(lab)
    machine = Machine(lab.env(), "orders")
    timeline = PlainTimeline(machine.env, "shop")
    timeline.attach(machine)
    tick = timeline.raise_epoch()
    machine.demand(c.Fence(tick.epoch))
    staged = updates((1, 0, 1))
    outcome = writer.append_through("shop", tick.epoch, staged, lower=0, upper=1)
    assert isinstance(outcome, Appended)
    other = updates((2, 0, 1))
    assert writer.verify(other, lower=0, upper=1) == Frontier(0), "nothing is committed yet"
    with pytest.raises(ReplicaDivergedError):
        writer.verify(other, lower=0, upper=1, uncommitted=True)
    timeline.commit(tick.epoch, Frontier(0), Frontier(1))
    assert writer.verify(staged, lower=0, upper=1) == Frontier(1)
    with pytest.raises(ReplicaDivergedError):
        writer.verify(other, lower=0, upper=1)
