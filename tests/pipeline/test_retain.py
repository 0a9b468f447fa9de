"""One setting says how far back everything of a pipeline goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import TEXT, rig_of, run

from strandline.connectors.sink import Delivered, Sink
from strandline.errors import SinceError
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.next import Want
from strandline.pipeline.place import Target
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _run(replica: Replica, *, checkpoints: tuple[int, ...]) -> None:
    for t in checkpoints:
        while replica.standing.next_t < t or replica.standing.sealed is not None:
            replica.step()
        replica.want(Want.CHECKPOINT)
        while replica.wants():
            replica.step()
    run(replica)


def test_without_a_limit_all_of_history_stays(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        _run(Replica(rig), checkpoints=(2, 4, 6, 8))
        for bound in rig.journal.standing.bindings.values():
            shard = store.shard(bound.shard)
            shard.compact(full=True)
            assert shard.state().retention.duration_ms is None
            assert shard.since.time == 0
        assert rig.journal.first() == 0
        assert len(list(replay(rig, Planner(rig), 0, 10))) == 10


def test_what_is_retained_can_be_computed_again_and_the_rest_goes_together(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, retain=4)
        _run(Replica(rig), checkpoints=(2, 4, 6, 8, 10))
        store.shard("shop.orders").compact(full=True)
        assert store.shard("shop.orders").since.time == 6
        oldest = Checkpoints(rig.journal).verifiable_from()
        assert 0 < oldest <= 6
        assert len(list(replay(rig, Planner(rig), 7, 10))) == 3
        with pytest.raises(SinceError):
            list(replay(rig, Planner(rig), 1, 10))


def test_the_last_commit_is_held_on_every_shard(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, retain=1)
        _run(Replica(rig), checkpoints=(5,))
        for bound in rig.journal.standing.bindings.values():
            hold = store.shard(bound.shard).state().holds[rig.timeline]
            assert (hold.since, hold.epoch) == (4, 1)


def test_a_sink_that_was_removed_holds_nothing_after_the_next_checkpoint(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = replace(rig_of(store), sinks=[Target("kept", "orders", {}, _never)])
        replica = Replica(rig)
        _run(replica, checkpoints=(2,))
        shard = store.shard("shop.orders")
        for name in ("sink.shop.kept", "sink.shop.removed", "sink.other.removed", "mine"):
            shard.hold(name, 1)
        _run(replica, checkpoints=(4,))
        assert set(shard.state().holds) == {
            rig.timeline,
            "sink.shop.kept",
            "sink.other.removed",
            "mine",
        }


def _never(what: Delivered) -> Sink:
    raise AssertionError(f"{what} is opened by a publisher, and there is none")


def test_a_shard_that_no_name_means_any_more_is_not_held(lab: Lab) -> None:
    with new_store(lab) as store:
        replica = Replica(rig_of(store))
        _run(replica, checkpoints=(2,))
        old = store.shard(replica.standing.bindings["large"].shard)
        old.hold("sink.shop.kept", 1)
        replica.close()
        tables = TEXT.partition("CREATE MATERIALIZED")[0]
        rig = replace(rig_of(store, tables), sinks=[Target("kept", "orders", {}, _never)])
        replica = Replica(rig)
        replica.want(Want.PROMOTE)
        _run(replica, checkpoints=(10,))
        assert set(old.state().holds) == {"sink.shop.kept"}
        assert rig.timeline in store.shard("shop.orders").state().holds
        replica.close()
