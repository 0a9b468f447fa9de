"""One setting says how far back everything of a pipeline goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from tests.pipeline.shop import TEXT, rig_of, run

from strandline.connectors.sink import Delivered, Sink
from strandline.errors import SinceError, UsageError
from strandline.handles.store import Store
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.log import Journal, Lost
from strandline.journal.next import Want
from strandline.journal.record import Record
from strandline.journal.standing import Standing
from strandline.pipeline.place import Target
from strandline.pipeline.planner import Planner
from strandline.pipeline.replay import replay
from strandline.pipeline.replica import Replica
from strandline.pipeline.retain import put_on_record, release
from strandline.testing.journals import won
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


def test_what_was_said_last_is_on_record_and_every_replica_follows_it(lab: Lab) -> None:
    with new_store(lab) as store, new_store(lab) as other:
        first, second = Replica(rig_of(store, retain=4)), Replica(rig_of(other))
        for replica in (first, first, second, second):
            replica.step()
        shard = store.shard("shop.orders")
        assert (first.standing.retain, shard.state().retention.count) == (4, 4)
        put_on_record(Journal(other.env, "shop"), 2)
        _run(first, checkpoints=(4, 6, 8))
        assert (first.standing.retain, shard.state().retention.count) == (2, 2), "not its own 4"
        _run(second, checkpoints=(10,))
        assert shard.state().retention.count == 2, "who was told nothing changes nothing"
        shard.compact(full=True)
        assert shard.since.time == 8
        third = Replica(rig_of(store))
        run(third)
        assert third.standing.retain == 2, "it outlives its replicas, checkpoints and cuts"
        put_on_record(Journal(other.env, "shop"), None)
        third.step()
        assert shard.state().retention.count is None, "it is heeded at once"
        with pytest.raises(UsageError, match="keep 1 at least"):
            put_on_record(Journal(other.env, "shop"), 0)


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


def test_who_comes_late_with_a_checkpoint_releases_nothing_of_a_newer_programs_sinks(
    lab: Lab,
) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        rig = rig_of(one)
        old = Replica(rig)
        _run(old, checkpoints=(2,))
        newer = Replica(
            replace(
                rig_of(other, TEXT.replace("seed '7'", "seed '8'")),
                sinks=[Target("fresh", "orders", {}, _never)],
            )
        )
        newer.want(Want.PROMOTE)
        while newer.wants():
            newer.step()
        shard = other.shard("shop.orders")
        shard.hold("sink.shop.fresh", 1)
        release(rig, old.standing)
        assert "sink.shop.fresh" in shard.state().holds
        old.close()
        newer.close()


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


class Racing(Journal):
    """Something happens between what its replica sees first and what it does next."""

    happens: Callable[[], object] | None = None
    refreshed = False

    def refresh(self) -> Standing:
        if self.refreshed:
            self._race()
        self.refreshed = True
        return super().refresh()

    def propose(self, standing: Standing, records: Sequence[Record]) -> Standing | Lost:
        self._race()
        return super().propose(standing, records)

    def _race(self) -> None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()


def test_who_has_to_say_what_is_retained_decides_again_afterwards(lab: Lab) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        first = Replica(rig_of(one))
        while first.standing.next_t < 2:
            first.step()
        journal = Racing(other.env, "shop")
        second = Replica(replace(rig_of(other, retain=50), journal=journal))
        journal.happens = first.step
        run(second, first)
        assert journal.happens is None
        assert first.standing.retain == 50
        assert first.standing.next_t == 10
        assert [each.t for each in replay(rig_of(one), Planner(rig_of(one)), 0, 10)]
        first.close()
        second.close()


def test_who_has_to_say_what_is_retained_is_fenced_by_who_is_promoted_meanwhile(lab: Lab) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        first = Replica(rig_of(one))
        run(first)
        first.close()

        def promoted(store: Store) -> None:
            newer = Replica(rig_of(store, TEXT.replace("seed '7'", "seed '8'")))
            newer.want(Want.PROMOTE)
            while newer.wants():
                newer.step()
            newer.close()

        journal = Racing(one.env, "shop")
        old = Replica(replace(rig_of(one, retain=50), journal=journal))
        journal.happens = lambda: promoted(other)
        with pytest.raises(UsageError, match="this is another one"):
            run(old)
        now = Journal(other.env, "shop").refresh()
        assert (now.epoch, now.sealed, now.next_t, now.retain) == (2, None, 10, None)


def _committed(replica: Replica, t: int) -> None:
    while replica.standing.next_t < t or replica.standing.sealed is not None:
        replica.step()


@pytest.mark.parametrize("asked", [False, True])
def test_one_checkpoint_answers_all_that_wait_for_one(lab: Lab, *, asked: bool) -> None:
    """Two are kept, and both would be of the same time."""
    with new_store(lab) as one, new_store(lab) as other:
        first, second = Replica(rig_of(one)), Replica(rig_of(other))
        for t in (3, 6):
            _committed(first, t)
            second.look()
            for each in (first, second):
                each.want(Want.CHECKPOINT) if asked else each.due()
            first.step()
            second.step()
            assert (first.wants(), second.wants()) == (False, False)
        assert [each.t for each in first.standing.checkpoints] == [2, 5]
        second.look()
        assert [each.t for each in second.standing.checkpoints] == [2, 5]
        first.close()
        second.close()


def test_a_checkpoint_that_is_due_is_not_while_another_has_taken_it_and_gone_on(lab: Lab) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        first, second = Replica(rig_of(one)), Replica(rig_of(other))
        _committed(first, 3)
        second.look()
        first.due()
        second.due()
        _committed(first, 4)
        run(second)
        assert [each.t for each in second.standing.checkpoints] == [2]
        # One that a user asked for is about what there is when it is asked.
        second.want(Want.CHECKPOINT)
        second.due()
        while second.wants():
            second.step()
        assert [each.t for each in second.standing.checkpoints] == [2, 9]
        first.close()
        second.close()


def test_a_checkpoint_that_came_before_one_was_asked_for_does_not_answer_it(lab: Lab) -> None:
    """Also where whoever is asked has not seen it yet: who asked has, and waits for another."""
    with new_store(lab) as one, new_store(lab) as other:
        first, second = Replica(rig_of(one)), Replica(rig_of(other))
        _committed(first, 3)
        second.look()
        first.want(Want.CHECKPOINT)
        _committed(first, 4)
        second.want(Want.CHECKPOINT)
        while second.wants():
            second.step()
        assert [each.t for each in second.standing.checkpoints] == [2, 3]
        first.close()
        second.close()


def test_what_a_checkpoint_is_followed_by_is_made_up_for_by_who_asks_again(lab: Lab) -> None:
    """Whoever took it may have died before it let go of anything."""
    with new_store(lab) as store:
        rig = rig_of(store)
        _run(Replica(rig), checkpoints=(5,))
        shard = store.shard("shop.orders")
        rig.journal.refresh()
        taken = won(Checkpoints(rig.journal).publish(rig.journal.standing))
        assert shard.state().holds[rig.timeline].since == 4
        replica = Replica(rig)
        replica.want(Want.CHECKPOINT)
        while replica.wants():
            replica.step()
        assert replica.standing.lsn == taken.lsn
        assert shard.state().holds[rig.timeline].since == 9
        replica.close()
