"""A rig brings a program, its store and its journal together."""

from __future__ import annotations

from tests.pipeline.shop import rig_of

from strandline.testing.lab import Lab, new_store


def test_a_rig_knows_its_timeline_and_its_collections() -> None:
    lab = Lab()
    with new_store(lab) as store:
        rig = rig_of(store)
        assert rig.timeline == "pipeline.shop"
        assert rig.journal.pipeline == "shop"
        assert {each.name for each in rig.collections} >= {"orders", "large", "totals"}
        assert set(rig.sources) == {"orders"}
    lab.close()
