"""What is left behind in a store is looked at: nothing missing, nothing too much."""

import pytest

from strandline.testing.checkers import HistoryError
from strandline.testing.remains import check_remains
from strandline.testing.roles import opened
from strandline.testing.simulation import Simulation
from strandline.testing.workload import Client
from strandline.testing.world import Host, World


@pytest.fixture
def world():
    with Simulation(1) as sim:
        world = World(sim)
        world.settings = world.settings.__class__(inline_max_bytes=0)

        def role(process):
            client, shard = Client(process), opened(process, "a")
            with shard.writer() as writer:
                client.append(writer, shard, client.fresh(1))

        world.start("writer", role)
        world.run(faults_ms=100)
        yield world


def test_a_clean_store_passes(world):
    check_remains(world)


def test_an_object_that_is_missing_is_named(world):
    (key,) = [entry.key for entry in world.observer.objects.list("")]
    world.observer.objects.delete(key)
    with pytest.raises(HistoryError, match=f"refers to {key}, which is missing"):
        check_remains(world)


def test_an_orphan_is_named(world):
    key = f"{world.observer.states['a'].id}/w{'0' * 32}/x.parquet"
    world.observer.objects.put(key, b"x")
    with pytest.raises(HistoryError, match=f"{key} of a is an orphan"):
        check_remains(world)


def test_a_lease_that_nobody_gave_back_is_named(world):
    node = world.sim.node("forgetful")
    process = Host(world, "forgetful", node)

    def role():
        process.open()
        opened(process, "a").reader(since=0)
        node.crash()

    node.start("role", role)
    world.sim.run_until(lambda: not node.alive)
    with pytest.raises(HistoryError, match="still lists"):
        check_remains(world)
