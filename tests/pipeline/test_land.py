"""What was computed is landed once, by whoever comes first, and seen by nobody before COMMIT."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.pipeline.shop import rig_of, rows

from strandline.errors import FencedError
from strandline.model.digest import Digest
from strandline.model.schema import Schema
from strandline.pipeline.compute import Computed, Delta
from strandline.pipeline.land import Landing
from strandline.pipeline.meaning import updates_digest
from strandline.pipeline.replica import Replica
from strandline.testing.lab import Lab, new_store

BOUND = {"orders": "shop.orders"}


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _change(*ids: int) -> Computed:
    columns = {"id": list(ids), "customer": [1] * len(ids), "amount": [5] * len(ids)}
    kinds = pa.schema([(name, pa.int64()) for name in (*columns, "_diff")])
    updates = pa.table({**columns, "_diff": [1] * len(ids)}, schema=kinds)
    schema = Schema.create(updates.drop_columns(["_diff"]).schema, ["id"])
    return Computed({}, {"orders": Delta(updates_digest(updates, schema), updates)})


def _founded(lab: Lab) -> str:
    with new_store(lab) as store:
        rig = rig_of(store)
        replica = Replica(rig)
        while replica.standing.sealed is None:
            replica.step()
        replica.close()
        return rig.timeline


def test_who_comes_second_lands_nothing_and_both_see_the_same(lab: Lab) -> None:
    timeline = _founded(lab)
    with new_store(lab) as one, new_store(lab) as other:
        first, second = Landing(one, timeline), Landing(other, timeline)
        assert first.settled(BOUND, 0) == {}
        expected = _change(1, 2).digests()
        assert first.land(_change(1, 2), BOUND, 0, 1, expected) == 1
        assert second.land(_change(1, 2), BOUND, 0, 1, expected) == 0
        assert first.settled(BOUND, 0) == second.settled(BOUND, 0) == expected
        assert one.shard("shop.orders").upper.time == 0, "nobody sees what is not committed"
        first.close()
        second.close()


def test_no_change_costs_nothing(lab: Lab) -> None:
    timeline = _founded(lab)
    with new_store(lab) as store:
        before = store.machine("shop.orders").refresh().seqno
        landing = Landing(store, timeline)
        nothing = Computed({}, {"orders": Delta(Digest.ZERO, _change().deltas["orders"].updates)})
        assert landing.land(nothing, BOUND, 0, 1, {}) == 0
        assert landing.settled(BOUND, 0) == {}
        assert store.machine("shop.orders").refresh().seqno == before
        landing.close()


@pytest.mark.parametrize("answer", [{}, _change(7).digests(), {"large": Digest(1, 2, 3)}])
def test_what_the_answer_denies_is_never_sent(lab: Lab, answer: dict[str, Digest]) -> None:
    timeline = _founded(lab)
    with new_store(lab) as store:
        before = store.machine("shop.orders").refresh().seqno
        landing = Landing(store, timeline)
        assert landing.land(_change(1), BOUND, 0, 1, answer) == 0
        assert landing.settled(BOUND, 0) == {}
        assert store.machine("shop.orders").refresh().seqno == before
        landing.close()


def test_an_older_epoch_lands_nothing(lab: Lab) -> None:
    timeline = _founded(lab)
    with new_store(lab) as store:
        landing = Landing(store, timeline)
        store.shard("shop.orders").fence(2)
        with pytest.raises(FencedError):
            landing.land(_change(1), BOUND, 0, 1, _change(1).digests())
        assert landing.settled(BOUND, 0) == {}
        landing.close()


def test_a_time_that_was_merged_is_left_out(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        replica = Replica(rig)
        while replica.standing.next_t < 5:
            replica.step()
        store.shard("shop.orders").release_hold(rig.timeline, epoch=1)
        store.shard("shop.orders").retain("1 versions")
        store.shard("shop.orders").compact(full=True)
        landing = Landing(store, rig.timeline)
        assert landing.settled(BOUND, 0) == {}
        assert set(landing.settled(BOUND, 4)) == {"orders"}
        assert rows(store, "orders", 4)
        landing.close()
        replica.close()
