"""A collection without a change is left out of what is recorded."""

from __future__ import annotations

from strandline.model.digest import Digest
from strandline.pipeline.compute import Computed, Delta


def test_only_collections_that_change_have_digests() -> None:
    one = Digest(1, 5, 7)
    computed = Computed({}, {"orders": Delta(one), "idle": Delta(Digest.ZERO)})
    assert computed.digests() == {"orders": one}


def test_a_change_that_leaves_the_count_alone_is_a_change() -> None:
    replaced = Digest(0, 1, 2)
    assert Computed({}, {"orders": Delta(replaced)}).digests() == {"orders": replaced}
