"""What a promotion would change is known before it happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import TEXT, rig_of, run

from strandline.errors import NotFoundError, SchemaError
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.promotion import check
from strandline.pipeline.replica import Replica
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        yield made
    lab.close()


def test_a_pipeline_that_nobody_ran_has_nothing_to_promote(store: Store) -> None:
    with pytest.raises(NotFoundError, match="shop"):
        check(rig_of(store))


def test_it_tells_what_the_promotion_then_does(store: Store) -> None:
    replica = Replica(rig_of(store))
    while replica.standing.sealed is None:
        replica.step()
    text = TEXT.replace("* 2", "* 3").replace("seed '7'", "seed '8'").replace("totals", "sums")
    newer = replace(rig_of(store, text), computer=ArrowComputer(store, versions={"engine": "2"}))
    before = newer.journal.refresh()
    found = check(newer)
    assert newer.journal.refresh() == before
    assert (found.epoch, found.sealed, found.before) == (2, 0, before.program)
    assert (found.kept, found.added) == (("orders",), ("sums",))
    assert (found.rebuilt, found.removed) == (("large",), ("totals",))
    assert (found.begun, found.ended) == (("orders",), ("orders",))
    assert found.versions["engine"][1] == "2"
    promoter = Replica(replace(newer, reopen=lambda *_: dict(rig_of(store).sources)))
    promoter.want(Want.PROMOTE)
    run(promoter)
    after = promoter.standing
    assert (after.epoch, after.program) == (found.epoch, found.program)
    assert {"orders", "large", "sums"} <= after.bindings.keys()
    assert "totals" not in after.bindings
    promoter.close()
    replica.close()


def test_what_can_t_be_opened_afterwards_is_refused_by_name(store: Store) -> None:
    replica = Replica(rig_of(store))
    run(replica)
    with pytest.raises(SchemaError, match=r"nothing was: table orders: .*customer"):
        check(rig_of(store, TEXT.replace("customer BIGINT", "customer STRING")))
    replica.close()
