"""Subscribers of all kinds follow a shard in a world without faults."""

import pytest

from strandline.testing import roles, streaming
from strandline.testing.checkers import HistoryError, check_history
from strandline.testing.history import CLOSED, Stream
from strandline.testing.simulation import Simulation
from strandline.testing.world import World


def played(*followers, vandal=False):
    with Simulation(1) as sim:
        world = World(sim)
        world.settings = world.settings.__class__(inline_max_bytes=0)
        world.start("w", roles.appender("a"))
        for number, follower in enumerate(followers):
            world.start(f"f{number}", follower)
        if vandal:
            world.start("v", roles.vandal("a"))
        world.run(faults_ms=4_000)
        check_history(world.history)
        return world


def test_a_chronicler_reads_changes_from_the_first_time_on():
    world = played(streaming.chronicler("a"))
    assert world.sim.seen["read changes from 0"] > 0
    assert any(stream.told[0] for stream in world.history.streams if stream.as_of < 0)


@pytest.mark.parametrize("follower", [streaming.subscriber, streaming.crew])
def test_followers_are_told_everything_to_the_end(follower):
    world = played(follower("a"))
    told = [item for stream in world.history.streams for item in stream.told]
    assert any(isinstance(item, tuple) and item for item in told)
    frontiers = [item for item in world.history.streams[-1].told if isinstance(item, int)]
    assert frontiers[-1] == CLOSED


def test_a_witness_is_told_of_a_missing_object():
    world = played(streaming.witness("a"), vandal=True)
    assert world.sim.seen["told of a missing object"] > 0


def test_an_end_without_a_last_frontier_is_no_end():
    with pytest.raises(HistoryError, match="was not told"):
        streaming._check_closed(Stream("a", "me", 0, told=[3]))
