"""Each role leaves the traces it is there for, in a world without faults."""

import pytest

from strandline.testing import roles
from strandline.testing.checkers import check_history
from strandline.testing.history import Result
from strandline.testing.simulation import Simulation
from strandline.testing.world import World


def played(faults_ms=3_000, **cast):
    with Simulation(1) as sim:
        world = World(sim)
        for name, role in cast.items():
            world.start(name, role)
        world.run(faults_ms=faults_ms)
        check_history(world.history)
        return world


def test_appenders_and_racers_write():
    world = played(w=roles.appender("a"), c=roles.racer("a"), n=roles.newcomer("a"))
    assert {call.by for call in world.history.appends} == {"w", "c", "n"}
    assert any(diff < 0 for call in world.history.appends for _, _, diff in call.updates)


def test_replicas_agree_and_a_liar_is_found():
    world = played(p=roles.replica("a"), q=roles.replica("a"), liar=roles.liar("a"))
    assert {call.result for call in world.history.appends} == {Result.APPLIED, Result.MISMATCH}
    assert world.sim.seen["a lie was found"] == world.sim.seen["a lie was told"] > 0


def test_readers_and_holders_read():
    world = played(
        w=roles.appender("a"), r=roles.reader("a"), h=roles.holder("a"),
        k=roles.holder("a", critical=True), s=roles.steward("a"), u=roles.tender("a"),
    )  # fmt: skip
    assert {read.by for read in world.history.reads} == {"r", "h", "k"}
    held = {name for version in world.history.versions for name in version.holds}
    assert "k" in held
    assert any(name.startswith("r") for name in held)


def test_a_vandal_destroys_one_object():
    with Simulation(1) as sim:
        world = World(sim)
        world.settings = world.settings.__class__(inline_max_bytes=0)
        world.start("w", roles.appender("a"))
        world.start("v", roles.vandal("a"))
        world.run(faults_ms=5_000)
        state = world.observer.states["a"]
        missing = [
            key for key in world.observer.references(state) if not world.observer.objects.get(key)
        ]
        assert len(missing) == 1


def test_sweepers_find_orphans():
    with Simulation(1) as sim:
        world = World(sim)
        orphan = []

        def litter(process):
            shard = roles.opened(process, "a")
            orphan.append(f"{shard.state().id}/w{'0' * 32}/{'1' * 32}.parquet")
            process.blob.put(orphan[0], b"x")

        world.start("l", litter)
        world.start("s", roles.sweeper("a"))
        world.run(faults_ms=2_000)
        assert world.observer.objects.get(orphan[0]) is None


def test_a_step_that_fails_in_peace_fails_the_role():
    from strandline.errors import NotAppliedError
    from strandline.testing.simulation import SimulationError

    def role(process):
        def step():
            raise NotAppliedError("never")

        roles.repeat(process, step)

    with pytest.raises(SimulationError, match="never"):
        played(faults_ms=100, r=role)
