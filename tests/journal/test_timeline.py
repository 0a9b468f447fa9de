"""A pipeline's shards are settled by its journal: exactly to its last COMMIT, all at once."""

from __future__ import annotations

import pytest

from strandline.errors import FencedError, NameRefusedError, NotFoundError, UsageError
from strandline.handles.write import Appended, Writer
from strandline.journal import record as r
from strandline.journal.checkpoint import Checkpoints
from strandline.journal.log import Journal
from strandline.journal.timeline import JournalTimeline, timeline_name, timeline_of
from strandline.model.frontier import Frontier
from strandline.shard.command import UpperMismatch
from strandline.shard.frontiers import visible
from strandline.shard.timeline import PlainTimeline
from strandline.testing.faults import FaultyConsensus, NoFaults
from strandline.testing.journals import finishing, founded, sealing, transacted, won, written
from strandline.testing.lab import Lab, new_store, rows

NAME = "pipeline.shop"


class Replica:
    """One process of a pipeline with one table."""

    def __init__(self, lab: Lab) -> None:
        self.env = lab.env()
        self.journal = Journal(self.env, "shop")
        self.machine = lab.machine("shop.orders", self.env)
        self.timeline = JournalTimeline(self.env, NAME)
        self.leases = lab.leases(self.env)

    def append(self, epoch: int, t: int, *ids: int) -> Appended | UpperMismatch:
        with Writer(self.machine, self.leases.writer(self.machine)) as writer:
            return writer.append_through(NAME, epoch, rows(*ids), lower=t, upper=t + 1)

    @property
    def upper(self) -> Frontier:
        return visible(self.machine)[0]


def test_timelines_are_found_by_name(lab: Lab) -> None:
    assert timeline_name("shop") == NAME
    assert isinstance(timeline_of(lab.env(), NAME), JournalTimeline)
    assert isinstance(timeline_of(lab.env(), "shop"), PlainTimeline)
    assert lab.env().timelines(NAME).name == NAME
    with pytest.raises(NameRefusedError):
        timeline_of(lab.env(), "pipeline.a.b.c.d")


def test_nobody_takes_a_pipelines_timeline_for_a_plain_one(lab: Lab) -> None:
    store = new_store(lab)
    with pytest.raises(NameRefusedError, match="that of a pipeline"):
        store.timeline(NAME)
    store.close()


def test_what_is_committed_is_one_read_of_the_newest_entry(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    env = lab.env()
    counted = NoFaults()
    object.__setattr__(env, "consensus", FaultyConsensus(env.consensus, counted))
    timeline = JournalTimeline(env, NAME)
    assert timeline.committed() == Frontier(0)
    standing = founded(journal)
    seen = [timeline.committed()]
    for _ in range(5):
        sealed = won(journal.propose(standing, sealing(standing)))
        seen.append(timeline.committed())
        standing = won(journal.propose(sealed, finishing(sealed)))
        seen.append(timeline.committed())
    assert [frontier.time for frontier in seen] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5]
    written(journal, r.Abort("h1", ""))
    won(Checkpoints(journal).publish(journal.refresh()))
    assert timeline.committed() == Frontier(5)
    assert counted.calls == {"consensus.head": 13}


def test_instants_are_those_of_the_commits(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    timeline = JournalTimeline(lab.env(), NAME)
    assert (timeline.time_at(5), timeline.instant_of(0)) == (None, None)
    standing = founded(journal)
    for number in range(20):
        standing = transacted(journal, standing, now_ms=1_000 + 100 * (number // 2))
    assert [timeline.instant_of(t) for t in (0, 1, 2, 19, 20)] == [1_000, 1_000, 1_100, 1_900, None]
    for instant, t in ((999, None), (1_000, 1), (1_099, 1), (1_100, 3), (1_900, 19), (9_999, 19)):
        assert timeline.time_at(instant) == t


def test_after_a_cut_older_instants_are_not_known_and_never_guessed(lab: Lab) -> None:
    journal = Journal(lab.env(), "shop")
    timeline = JournalTimeline(lab.env(), NAME)
    standing = founded(journal)
    for number in range(6):
        standing = transacted(journal, standing, now_ms=1_000 + 100 * number)
        standing = won(Checkpoints(journal).publish(standing))
    Checkpoints(journal).cut()
    assert journal.first() == standing.checkpoints[0].lsn
    known = [timeline.instant_of(t) for t in range(7)]
    assert known == [None, None, None, None, 1_400, 1_500, None]
    assert [timeline.time_at(at) for at in (1_350, 1_400, 1_450, 1_500)] == [None, 4, 4, 5]
    assert timeline.committed() == Frontier(6)


def test_a_shard_is_readable_exactly_up_to_what_the_journal_committed(lab: Lab) -> None:
    ours = Replica(lab)
    standing = founded(ours.journal)
    ours.timeline.attach(ours.machine)
    assert ours.upper == Frontier(0)
    sealed = won(ours.journal.propose(standing, sealing(standing)))
    assert isinstance(ours.append(1, 0, 1, 2), Appended)
    # The rows are there, and nobody sees them.
    assert ours.machine.refresh().upper == Frontier(1)
    assert ours.upper == Frontier(0)
    standing = won(ours.journal.propose(sealed, finishing(sealed)))
    assert ours.upper == Frontier(1)
    # An idle shard is settled by the commits of others, without a version of its own.
    before = ours.machine.refresh().seqno
    transacted(ours.journal, standing, count=3)
    assert ours.upper == Frontier(4)
    assert ours.machine.refresh().seqno == before


def test_replicas_of_one_epoch_race_for_one_append(lab: Lab) -> None:
    ours, theirs = Replica(lab), Replica(lab)
    standing = founded(ours.journal)
    for replica in (ours, theirs, ours):
        replica.timeline.attach(replica.machine)
    won(ours.journal.propose(standing, sealing(standing)))
    assert isinstance(theirs.append(1, 0, 1), Appended)
    assert isinstance(ours.append(1, 0, 1), UpperMismatch)


def test_a_promotion_fences_the_shards_that_are_attached_again(lab: Lab) -> None:
    ours, theirs = Replica(lab), Replica(lab)
    founded(ours.journal)
    ours.timeline.attach(ours.machine)
    transacted(ours.journal, ours.journal.refresh())
    written(theirs.journal, r.Promote(2, "p1", {}))
    theirs.timeline.attach(theirs.machine)
    with pytest.raises(FencedError, match="e2"):
        ours.append(1, 1, 7)
    # A late one of the old epoch fences for the new one.
    ours.timeline.attach(ours.machine)
    assert isinstance(ours.append(2, 1, 7), Appended)


def test_a_shard_that_saw_a_later_epoch_than_the_journal_is_not_attached_again(lab: Lab) -> None:
    ours = Replica(lab)
    founded(ours.journal)
    ours.timeline.attach(ours.machine)
    ours.append(5, 0, 1)
    with pytest.raises(FencedError, match="e5"):
        ours.timeline.attach(ours.machine)


def test_a_promotion_between_the_read_and_the_attachment_is_followed(lab: Lab) -> None:
    ours, theirs = Replica(lab), Replica(lab)
    founded(ours.journal)
    inner = ours.machine.commit

    def late(command):
        ours.machine.commit = inner
        written(theirs.journal, r.Promote(2, "p1", {}))
        theirs.timeline.attach(theirs.machine)
        return inner(command)

    ours.machine.commit = late
    ours.timeline.attach(ours.machine)
    assert ours.machine.state.epoch == 2


def test_a_shard_of_another_timeline_or_of_no_pipeline_is_refused(lab: Lab) -> None:
    ours = Replica(lab)
    with pytest.raises(NotFoundError, match="shop has no journal"):
        ours.timeline.attach(ours.machine)
    founded(ours.journal)
    PlainTimeline(ours.env, "other").attach(ours.machine)
    with pytest.raises(UsageError, match="attached to timeline other"):
        ours.timeline.attach(ours.machine)


def test_a_shard_that_is_attached_takes_no_appends_but_the_pipelines(lab: Lab) -> None:
    ours = Replica(lab)
    founded(ours.journal)
    ours.timeline.attach(ours.machine)
    writer = Writer(ours.machine, ours.leases.writer(ours.machine))
    with writer, pytest.raises(UsageError, match=f"timeline {NAME}"):
        writer.append(rows(1))
