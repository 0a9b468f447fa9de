"""A replica that lies is told so, whatever it lies about."""

from __future__ import annotations

from strandline.testing import lying
from strandline.testing.pipelines import Shop, feeder, replica
from strandline.testing.seeds import unreached
from strandline.testing.simulation import Simulation
from strandline.testing.streams import Options
from strandline.testing.world import OPTIONS, World

LIES = ("another change", "another input", "rows in a shard that nobody touched")


def lied_to(sim: Simulation) -> None:
    shop = Shop()
    world = World(sim, Options({**dict.fromkeys(OPTIONS, 0), "latency_ms": sim.seed % 2 * 20}))
    world.start("f", feeder(shop))
    world.start("a", replica(shop))
    world.start("x", lying.liar(shop))
    world.run(faults_ms=3_000)
    assert shop.wrong == []


def test_every_lie_is_told_and_every_liar_is_told() -> None:
    assert unreached(lied_to, *(f"a liar was told: {lie}" for lie in LIES)) == []
