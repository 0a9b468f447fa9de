"""A replica that lies is told so, whatever it lies about."""

from __future__ import annotations

from collections import Counter

from strandline.testing import lying
from strandline.testing.pipelines import Shop, feeder, replica
from strandline.testing.simulation import Simulation
from strandline.testing.streams import Options
from strandline.testing.world import OPTIONS, World

LIES = ("another change", "another input", "rows in a shard that nobody touched")


def test_every_lie_is_told_and_every_liar_is_told() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1, 7):
        with Simulation(seed) as sim:
            shop = Shop()
            world = World(sim, Options({**dict.fromkeys(OPTIONS, 0), "latency_ms": seed % 2 * 20}))
            world.start("f", feeder(shop))
            world.start("a", replica(shop))
            world.start("x", lying.liar(shop))
            world.run(faults_ms=3_000)
            assert shop.wrong == []
            seen += sim.seen
    assert [lie for lie in LIES if not seen[f"a liar was told: {lie}"]] == []
