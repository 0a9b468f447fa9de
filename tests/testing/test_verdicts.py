"""The judge of pipelines objects to what is wrong."""

from __future__ import annotations

import pytest

from strandline.testing import pipelines, verdicts
from strandline.testing.checkers import HistoryError
from strandline.testing.simulation import Simulation
from strandline.testing.world import World


def _run(seed: int, spoil) -> None:
    with Simulation(seed) as sim:
        world = World(sim)
        verdicts.pipelines(world)
        world.run(faults_ms=1_000)
        spoil(world.batches[pipelines.NAME])
        verdicts.judge(world)


def test_an_untouched_history_is_right() -> None:
    _run(1, lambda shop: None)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda shop: shop.promised.add("h9-0"), "h9-0 was not committed"),
        (lambda shop: shop.asked.clear(), "committed unasked"),
        (lambda shop: shop.topic.send("0", b"1", b"{}"), "was sent"),
        (lambda shop: shop.wrong.append("somebody saw something"), "somebody saw something"),
        (lambda shop: shop.seen.update({("shop.orders", 1): [{"id": 77}]}), "orders at 1"),
    ],
)
def test_what_is_wrong_is_named(spoil, said) -> None:
    with pytest.raises(HistoryError, match=said):
        _run(1, spoil)
