"""A read-only replica computes what others commit, and writes nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import TEXT, rig_of, run, topic_of, topic_rig

from strandline.errors import ReplayDivergedError, UsageError
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.model.digest import Digest
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.compute import Computed, Work
from strandline.pipeline.replica import Replica
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store
from strandline.views.parse import parse


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        yield made
    lab.close()


class Wrong(ArrowComputer):
    """Adds one row to a view at one time."""

    at = 3

    def compute(self, work: Work) -> Computed:
        computed = super().compute(work)
        if work.time != self.at:
            return computed
        delta = computed.deltas["large"]
        other = replace(delta, digest=delta.digest + Digest(1, 2, 3))
        return Computed(computed.inputs, {**computed.deltas, "large": other})


def test_it_waits_for_a_pipeline_that_nobody_founded(store: Store) -> None:
    auditor = Auditor(rig_of(store))
    assert auditor.step() > 0
    assert rig_of(store).journal.refresh().entry == -1
    assert store.shards() == []


def test_it_verifies_everything_from_where_it_joins(store: Store) -> None:
    replica, auditor = Replica(rig_of(store)), Auditor(rig_of(store))
    while replica.standing.next_t < 2:
        replica.step()
    assert auditor.step() > 0
    run(replica)
    entry = replica.standing.entry
    while not auditor.step():
        pass
    assert auditor.audit.verified == 8
    assert auditor.audit.told == ()
    assert rig_of(store).journal.refresh().entry == entry
    auditor.close()
    replica.close()


def test_a_different_answer_stops_it_by_name(store: Store) -> None:
    replica = Replica(rig_of(store))
    auditor = Auditor(replace(rig_of(store), computer=Wrong(store)))
    while replica.standing.next_t < 2:
        replica.step()
    auditor.step()
    run(replica)
    assert auditor.step() == 0
    with pytest.raises(ReplayDivergedError, match=r"(?s)3.*large"):
        auditor.step()
    assert auditor.audit.verified == 1
    auditor.close()
    replica.close()


def test_between_unequal_versions_it_is_noted_and_goes_on(store: Store) -> None:
    replica = Replica(rig_of(store))
    auditor = Auditor(replace(rig_of(store), computer=Wrong(store, versions={"engine": "newer"})))
    while replica.standing.next_t < 3:
        replica.step()
    auditor.step()
    while replica.standing.next_t < 4:
        replica.step()
    auditor.step()
    assert "large" in auditor.audit.told[0]
    auditor.close()
    replica.close()


def test_what_was_cut_before_it_looked_is_skipped_and_noted(store: Store) -> None:
    replica = Replica(rig_of(store, retain=1))
    auditor = Auditor(rig_of(store))
    while replica.standing.next_t < 2:
        replica.step()
    auditor.step()
    for at in (4, 6, 9):
        while replica.standing.next_t < at:
            replica.step()
        replica.want(Want.CHECKPOINT)
        while replica.wants():
            replica.step()
    run(replica)
    assert auditor.step() == 0
    assert auditor.audit.told == ("2 to 9: the journal was cut before they were looked at",)
    assert (auditor.audit.verified, auditor.audit.skipped) == (0, 8)
    assert auditor.step() > 0
    auditor.close()
    replica.close()


def test_what_is_committed_right_after_a_cut_is_verified(store: Store) -> None:
    replica = Replica(rig_of(store, retain=1))
    auditor = Auditor(rig_of(store))
    for at in (2, 4, 5, 6):
        while replica.standing.next_t < at:
            replica.step()
        if at == 2:
            auditor.step()
            continue
        replica.want(Want.CHECKPOINT)
        while replica.wants():
            replica.step()
    auditor.step()
    assert auditor.audit.skipped == 4
    while replica.standing.next_t < 9:
        replica.step()
    assert _looked(auditor) == (3, 4)
    auditor.close()
    replica.close()


def test_another_program_reads_what_was_read_and_is_not_promoted_here(store: Store) -> None:
    replica = Replica(rig_of(store))
    while replica.standing.next_t < 2:
        replica.step()
    other = Auditor(replace(rig_of(store), program=parse(TEXT.replace("* 2", "* 3"))))
    assert other.step() > 0
    run(replica)
    while not other.step():
        pass
    # Only what it read was compared: that is no verification of what was answered.
    assert (other.audit.verified, other.audit.inputs, other.audit.told) == (0, 8, ())
    replica.close()
    with pytest.raises(UsageError, match="read-only"):
        other.want(Want.PROMOTE)
    other.close()


def _looked(auditor: Auditor) -> tuple[int, int]:
    """What it verified and skipped once it has looked at everything."""
    while not auditor.step():
        pass
    return auditor.audit.verified, auditor.audit.skipped


def test_a_lost_lease_loses_nothing_while_its_history_is_there(store: Store) -> None:
    replica, auditor = Replica(rig_of(store)), Auditor(rig_of(store))
    while replica.standing.next_t < 2:
        replica.step()
    auditor.step()
    run(replica)
    auditor.renew()
    assert _looked(auditor) == (8, 0)
    auditor.close()
    replica.close()


def test_what_was_merged_after_a_lost_lease_is_skipped_by_name(store: Store) -> None:
    replica, auditor = Replica(rig_of(store, retain=1)), Auditor(rig_of(store))
    while replica.standing.next_t < 2:
        replica.step()
    auditor.step()
    run(replica)
    auditor.renew()
    replica.want(Want.CHECKPOINT)
    while replica.wants():
        replica.step()
    for name in store.shards():
        store.shard(name).compact(full=True)
    assert _looked(auditor) == (0, 8)
    assert auditor.audit.told[0].startswith("2 to 9: their history was merged: shard shop.")
    auditor.close()
    replica.close()


def _checkpointed(replica: Replica) -> None:
    run(replica)
    replica.want(Want.CHECKPOINT)
    while replica.wants():
        replica.step()


@pytest.mark.parametrize("how", ["released", "released and cut"])
def test_rows_that_were_released_while_it_computes_are_skipped_by_name(how: str) -> None:
    lab, topic = Lab(), topic_of({"id": 0, "n": 0})
    with new_store(lab) as store:
        replica = Replica(topic_rig(store, topic, staged=True, retain=1))
        run(replica)
        rig = topic_rig(store, topic, staged=True)

        class Slow(ArrowComputer):
            """While it computes for the first time, others go on."""

            def compute(self, work: Work) -> Computed:
                if work.time == 1 and how == "released":
                    for ref in work.intakes[0].staged:
                        store.env.blob.delete(ref.key)
                for number in range(4 if work.time == 1 and how != "released" else 0):
                    topic.send("0", None, b'{"id": 1, "n": %d}' % number)
                    _checkpointed(replica)
                return super().compute(work)

        auditor = Auditor(replace(rig, computer=Slow(store, fetch=topic.fetch)))
        auditor.step()
        topic.send("0", None, b'{"id": 2, "n": 2}')
        run(replica)
        verified, skipped = _looked(auditor)
        assert (verified + skipped, skipped >= 1) == (replica.standing.next_t - 1, True)
        assert auditor.audit.told[0].startswith("1: rows of t are gone: staged object journal/")
        auditor.close()
        replica.close()
    lab.close()
