"""A read-only replica computes what others commit, and writes nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import TEXT, rig_of, run

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
    assert auditor.verified == 8
    assert auditor.noted == ()
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
    assert auditor.verified == 1
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
    assert "large" in auditor.noted[0]
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
    assert "cut" in auditor.noted[0]
    assert auditor.step() > 0
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
    assert (other.verified, other.noted) == (8, ())
    replica.close()
    with pytest.raises(UsageError, match="read-only"):
        other.want(Want.PROMOTE)
    other.close()
