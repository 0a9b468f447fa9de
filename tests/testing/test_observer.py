"""What happens in the shared store is seen when it happens, by whoever it is done."""

import pytest

from strandline.testing.history import CLOSED, History
from strandline.testing.observer import number, row_text
from strandline.testing.roles import opened
from strandline.testing.simulation import Simulation
from strandline.testing.workload import Client
from strandline.testing.world import World


@pytest.fixture
def world():
    with Simulation(1) as sim:
        yield World(sim)


def run(world, role):
    world.start("process", role)
    world.run(faults_ms=100)
    return world.history


def test_rows_are_text_and_nulls_say_nothing():
    assert row_text({"id": 1, "value": None, "x": 0.5, "_time": 3, "_diff": 1}) == "id=1 x=0.5"
    assert (number(None), number(7)) == (CLOSED, 7)


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "objects"])
def test_appends_are_seen_with_their_rows(world, inline):
    if not inline:
        world.settings = world.settings.__class__(inline_max_bytes=0)

    def role(process):
        client, shard = Client(process), opened(process, "a")
        with shard.writer() as writer:
            client.append(writer, shard, [{"id": 7, "value": "red", "x": None, "_diff": 2}])

    history: History = run(world, role)
    assert [(c.lower, c.updates) for c in history.committed] == [(0, (("id=7 value=red", 0, 2),))]
    assert [v.seqno for v in history.versions] == list(range(len(history.versions)))
    assert history.versions[-1].upper == 1


def test_a_deleted_object_that_is_needed_is_told_with_its_reason(world):
    world.settings = world.settings.__class__(inline_max_bytes=0)

    def role(process):
        client, shard = Client(process), opened(process, "a")
        with shard.writer() as writer:
            client.append(writer, shard, client.fresh(1))
        (part,) = shard.state().batches[0].parts
        process.blob.delete(part.key)

    history = run(world, role)
    assert "refers to it" in history.deleted[-1].held_by[0]


def test_an_object_of_a_living_writer_is_its_own_business(world):
    def role(process):
        shard = opened(process, "a")
        with shard.writer() as writer:
            key = f"{shard.state().id}/{writer.id}/{'0' * 32}.parquet"
            process.blob.put(key, b"x")
            process.blob.delete(key)
            process.blob.put(key, b"x")
            found = list(world.observer.holders(key, "somebody else"))
            assert found == [f"writer {writer.id} is registered and may be about to append it"]

    history = run(world, role)
    assert history.deleted[-1].held_by == ()


def test_a_shard_that_takes_a_dropped_ones_name_has_a_number(world):
    def role(process):
        opened(process, "a")
        process.store.drop("a")
        opened(process, "a")

    history = run(world, role)
    assert {version.shard for version in history.versions} == {"a", "a#2"}
