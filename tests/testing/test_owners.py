"""Owners commit in a world without faults, and intruders are refused."""

from strandline.testing import owners, roles
from strandline.testing.checkers import check_history
from strandline.testing.simulation import Simulation
from strandline.testing.world import World


def test_owners_commit_and_intruders_are_refused():
    with Simulation(1) as sim:
        world = World(sim)
        world.start("o", owners.owner("t", ("a", "b")))
        world.start("i", owners.intruder("a"))
        world.start("r", roles.reader("a"))
        world.run(faults_ms=3_000)
        check_history(world.history)
    assert {"timeline t", "a", "b"} <= {call.shard for call in world.history.appends}
    assert world.sim.seen["an intruder was refused"] > 0
