"""Processes of a world share one store, die, come back, and end when peace comes."""

import pytest

from strandline.testing.roles import appender
from strandline.testing.simulation import Simulation, SimulationError
from strandline.testing.streams import Options
from strandline.testing.world import OPTIONS, World, settings_of


def given(sim, **options):
    return World(sim, Options({**dict.fromkeys(OPTIONS, 0), **options}))


def test_processes_share_one_store():
    with Simulation(1) as sim:
        world = given(sim)
        ids = []
        for name in ("one", "other"):
            world.start(name, lambda process: ids.append(process.store.id))
        world.run(faults_ms=100)
        assert len(ids) == 2
        assert len(set(ids)) == 1


def test_whoever_dies_comes_back_as_a_new_process():
    with Simulation(2) as sim:
        world = given(sim)
        lives = []

        def role(process):
            lives.append(process.name)
            if len(lives) < 3:
                process.node.crash()

        world.start("mortal", role)
        world.run(faults_ms=20_000)
        assert lives == ["mortal", "mortal#2", "mortal#3"]


@pytest.mark.parametrize("option", ["not_applied", "lost_reply", "late", "crash_after", "crash"])
def test_faults_happen_and_end(option):
    with Simulation(3) as sim:
        world = given(sim, **{option: 0.1, "late_ms": 50})
        world.start("writer", appender("a"))
        world.run(faults_ms=5_000)
        assert world.healed
        assert world.all_done()
        assert [process for process in world.hosts() if process.plan.rates] == []


def test_a_process_that_does_not_end_in_peace_is_named():
    with Simulation(4) as sim:
        world = given(sim)
        world.start("stubborn", lambda process: process.node.tasks.sleep(10**9))
        with pytest.raises(SimulationError, match="stubborn"):
            world.run(faults_ms=10, peace_ms=1_000)


def test_options_shrink_the_settings():
    plain = settings_of(Options(dict.fromkeys(OPTIONS, 0)))
    small = settings_of(Options({**dict.fromkeys(OPTIONS, 0), "manifest_every": 2, "no_inline": 1}))
    assert (plain.inline_max_bytes, plain.manifest_every) == (32 * 1024, 32)
    assert (small.inline_max_bytes, small.manifest_every) == (0, 2)


def test_a_swarm_is_drawn_from_the_seed():
    def drawn(seed):
        with Simulation(seed) as sim:
            return World.swarm(sim).options

    assert drawn(7) == drawn(7)
    assert len({str(drawn(seed)) for seed in range(10)}) > 5
