"""The judge of ingests objects to what is wrong, and to nothing else."""

import logging

import pytest

from strandline.testing.checkers import HistoryError
from strandline.testing.history import Committed
from strandline.testing.simulation import Simulation
from strandline.testing.upserting import BINDINGS, TABLE, Entry, Topic, apply, judge, upserting
from strandline.testing.world import World

TOPIC = Topic(
    (
        Entry(0, "0", 0, key=1, value="a"),
        Entry(0, "0", 1, key=1, value="b"),
        Entry(0, "1", 0, key=2, value=None, error="bad"),
    )
)


@pytest.fixture
def world():
    """A store in which one replica has settled the whole topic."""
    logging.disable(logging.CRITICAL)
    with Simulation(3) as sim:
        made = World(sim)
        made.start("i1", upserting(TOPIC))
        made.run(faults_ms=50)
        yield made
    logging.disable(logging.NOTSET)


def test_a_replica_alone_settles_the_whole_topic(world):
    judge(world, TOPIC)
    assert [each for each in world.history.committed if each.shard == BINDINGS]


@pytest.mark.parametrize(
    "wrong",
    [
        ("k=1 v=b", -1),
        ("k=1 v=a", 1),
        ("k=9 v=z", 1),
    ],
)
def test_a_row_that_is_missing_or_too_much_is_seen(world, wrong):
    row, diff = wrong
    world.history.committed.append(Committed(TABLE, 0, 0, ((row, 0, diff),)))
    with pytest.raises(HistoryError, match=r"t at \d+ holds"):
        judge(world, TOPIC)


def test_a_command_that_was_never_bound_is_seen(world):
    more = Topic((*TOPIC.entries, Entry(0, "0", 2, key=3, value="c")))
    with pytest.raises(HistoryError, match="never bound"):
        judge(world, more)


def test_what_commands_make_of_the_table_and_its_errors():
    rows, wrong = {}, {}
    for entry in (*TOPIC.entries, Entry(0, "1", 1, key=None, value="x")):
        apply(entry, rows, wrong)
    assert rows == {1: "k=1 v=b"}
    assert list(wrong) == [2, "null key at 1,1"]
    apply(Entry(0, "1", 2, key=2, value=None), rows, wrong)
    assert list(wrong) == ["null key at 1,1"]


def test_a_topic_follows_from_its_seed():
    assert Topic.from_seed(5, lasts_ms=100) == Topic.from_seed(5, lasts_ms=100)
    assert Topic.from_seed(5, lasts_ms=100) != Topic.from_seed(6, lasts_ms=100)
    topic = Topic.from_seed(5, lasts_ms=100)
    assert sum(topic.ends().values()) == len(topic.entries)
    assert sum(topic.ends(0.0).values()) < len(topic.entries)
