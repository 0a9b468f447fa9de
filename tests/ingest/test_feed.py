"""The commands of a tap, each at the time of its own offset."""

import pyarrow as pa
import pytest

from strandline.ingest.bindings import Bindings
from strandline.ingest.feed import BoundFeed, Want, stamped
from strandline.ingest.timetable import Timetable
from strandline.model.frontier import Frontier
from strandline.testing.lab import new_store
from strandline.testing.upserting import RAW, Entry, Topic

TOPIC = Topic(
    tuple(
        Entry(0.0, partition, offset, key=offset, value=f"{partition}{offset}")
        for offset in range(4)
        for partition in ("0", "1")
    )
)


class Tap:
    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.reads: list[dict] = []

    def latest(self):
        return dict(self.ends)

    def read(self, taken):
        self.reads.append(taken)
        return TOPIC.read(taken)

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def store(lab):
    with new_store(lab) as opened:
        yield opened


@pytest.fixture
def feed(store):
    made = BoundFeed(Tap(), Bindings(store, "b"), name="t", rows_max=3)
    yield made
    made.close()


def want(needed=0, reached=0, *, binds=True):
    return Want(Frontier(needed), Frontier(reached), binds=binds)


def values(polled):
    return [] if polled.commands is None else polled.commands.column("v").to_pylist()


def test_offers_are_bound_read_and_stamped(feed):
    feed._tap.ends = {"0": 1}
    first = feed.poll(want())
    assert (values(first), first.frontier) == (["00"], Frontier(1))
    feed._tap.ends = {"0": 3, "1": 2}
    second = feed.poll(want(1))
    assert second.frontier == Frontier(1), "a part of the time is still to be read"
    third = feed.poll(want(1))
    assert third.frontier == Frontier(2)
    assert sorted(values(second) + values(third)) == ["01", "02", "10", "11"]
    assert set(third.commands.column("_time").to_pylist()) == {1}
    assert values(feed.poll(want(2))) == []


def test_what_nobody_needs_is_not_read(feed):
    feed._tap.ends = {"0": 2}
    feed._bindings.bind({"0": 1})
    feed._bindings.bind({"0": 2})
    assert values(feed.poll(want(1))) == ["01"]
    assert feed._tap.reads == [{"0": (1, 2)}]


def test_who_only_follows_binds_nothing(feed):
    feed._tap.ends = {"0": 2}
    polled = feed.poll(want(binds=False))
    assert (values(polled), polled.frontier) == ([], Frontier(0))
    assert not feed._bindings.shard.state().holds


def test_new_times_are_not_before_the_furthest_target(feed):
    feed._tap.ends = {"0": 1}
    polled = feed.poll(want(0, 10))
    assert polled.commands.column("_time").to_pylist() == [10]


def test_what_was_read_in_another_order_has_the_same_times_and_orders():
    known = Timetable()
    known.learn([(3, "0", 2), (5, "0", 4), (4, "1", 4)])
    rows = TOPIC.read({"0": (0, 4), "1": (0, 4)})
    columns = ["_order0", "_order1", "_time", "v"]
    forth = stamped(rows, known, ()).select(columns).to_pylist()
    back = stamped(rows.take(list(range(7, -1, -1))), known, ()).select(columns).to_pylist()
    assert sorted(map(str, forth)) == sorted(map(str, back))
    assert {(row["_order0"], row["_order1"]): row["_time"] for row in forth} == {
        **{("0", offset): 3 if offset < 2 else 5 for offset in range(4)},
        **{("1", offset): 4 for offset in range(4)},
    }


def test_sequence_columns_decide_before_offsets():
    known = Timetable()
    known.learn([(0, "0", 4)])
    rows = pa.Table.from_pylist([e.row() for e in TOPIC.entries if e.partition == "0"], schema=RAW)
    found = stamped(rows, known, ["v"])
    assert found.column("_order0").to_pylist() == ["00", "01", "02", "03"]
    assert found.column("_order2").to_pylist() == [0, 1, 2, 3]
