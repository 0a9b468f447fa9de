"""S36: a new version runs beside the old one, reads only, takes over by promotion, and fences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import TEXT, rig_of, rows, run

from strandline.errors import FencedError, ReplayDivergedError
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.land import Landing
from strandline.pipeline.planner import Planner
from strandline.pipeline.replica import Replica
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store

LATER = TEXT.replace("amount > 10", "amount > 20")


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def _written(lab: Lab, store: Store) -> tuple[object, ...]:
    """What is on record, and every batch of every shard; leases do not count."""
    batches = {name: store.machine(name).refresh().batches for name in store.shards()}
    return lab.consensus.head("journal/shop").seqno, batches


@pytest.mark.parametrize("text", [TEXT, LATER])
def test_s36_who_reads_only_writes_no_record_and_no_row(lab: Lab, text: str) -> None:
    """The same program is compared whole, another one by its inputs."""
    with new_store(lab) as old, new_store(lab) as new:
        running, looking = Replica(rig_of(old)), Auditor(rig_of(new, text))
        assert looking.step() > 0, "there is nothing to look at yet"
        while running.step() == 0:
            before = _written(lab, old)
            while looking.step() == 0:
                pass
            assert before == _written(lab, old)
        audit = looking.audit
        whole, inputs = (10, 0) if text is TEXT else (0, 10)
        assert (audit.verified, audit.inputs, running.standing.next_t) == (whole, inputs, 10)
        assert looking.audit.told == ()
        running.close()
        looking.close()


@pytest.mark.parametrize("text", [TEXT, LATER])
def test_s36_who_reads_only_names_what_differs(lab: Lab, text: str) -> None:
    with new_store(lab) as old, new_store(lab) as new:
        running = Replica(rig_of(old))
        lost = ArrowComputer(new, fetch=lambda _: [])
        looking = Auditor(replace(rig_of(new, text), computer=lost))
        while running.standing.sealed is None:
            running.step()
        looking.step()
        run(running)
        with pytest.raises(ReplayDivergedError, match="endpoint orders") as told:
            looking.step()
        assert ("collection" in str(told.value)) == (text is TEXT)
        running.close()
        looking.close()


def test_s36_late_appends_of_an_old_generation_are_refused(lab: Lab) -> None:
    with new_store(lab) as old, new_store(lab) as new:
        first = Replica(rig_of(old))
        while first.standing.next_t < 3:
            first.step()
        rig = rig_of(new, LATER)
        second = Replica(rig)
        second.want(Want.PROMOTE)
        while second.wants():
            second.step()
        with pytest.raises(FencedError, match="e2 was promoted"):
            first.step()
        second.step()
        landing = Landing(old, rig.timeline)
        bound = {name: each.shard for name, each in second.standing.bindings.items()}
        t = second.standing.next_t
        before = rows(new, "orders", t - 1)
        computed = ArrowComputer(old).compute(_work(second, rig_of(old), bound))
        with pytest.raises(FencedError):
            landing.land(computed, bound, t, 1, computed.digests())
        run(second)
        assert rows(new, "orders", t - 1) == before
        for each in (first, second, landing):
            each.close()


def _work(replica: Replica, rig, bound):

    while replica.standing.sealed is None:
        replica.step()
    standing = replica.standing
    return Planner(rig).work(standing, standing.sealed, bound)
