"""S78 to S82 and S88 in whole histories: two replicas, the production sink, a broker in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.scenarios.kafka_place import LEASE_MS, TOPIC, Shop, lose

from strandline.connectors.kafka_sink import KafkaSink
from strandline.errors import SinkError
from strandline.journal.next import Want
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.testing.broker import Fate
from strandline.testing.checkers import HistoryError
from strandline.testing.simulation import Simulation
from strandline.testing.world import Host

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(3) as made:
        yield made


class Once:
    """Does something the first time that a step comes after a few deliveries."""

    def __init__(self, step: str, act: str | Fate, after: int = 2) -> None:
        self.step, self.act, self.after = step, act, after
        self.shop: Shop | None = None
        self.met: tuple[str, int] | None = None
        """Who it was, and how much counted then."""

    def __call__(self, process: Host, step: str) -> Fate | None:
        shop = self.shop
        if self.met or step != self.step or shop is None or len(shop.times) < self.after:
            return None
        self.met = process.role, len(shop.times)
        if isinstance(self.act, Fate):
            return self.act
        if self.act == "die":
            process.node.crash()
        elif self.act == "die soon":
            # The answer is here; the next place where control passes is the store's record.
            process.node.crash_after(0)
        elif self.act == "sleep":
            process.node.suspend(8 * LEASE_MS)
            process.node.tasks.sleep(1)
        return None


def played(sim: Simulation, once: Once, **how: int) -> Shop:
    once.shop = shop = Shop(sim, once, **how)  # type: ignore[arg-type]
    shop.run()
    assert once.met, "what the scenario is about has happened"
    assert len(shop.times) > once.met[1], "somebody went on"
    return shop


def test_s78_what_was_committed_is_published_from_the_view_and_not_computed_again(
    sim: Simulation,
) -> None:
    """Delivered: 7; committed: 9 at least; checkpoint: 5. Then the process dies."""
    ends: list[tuple[int, int]] = []
    checkpoints: list[int] = []

    def each(process: Host, replica: Replica, publishing: Publishing) -> None:
        del publishing
        if replica.standing.next_t >= 5 and not checkpoints:
            replica.want(Want.CHECKPOINT)
            checkpoints.append(replica.standing.next_t)
        if not ends and max(shop.times, default=0) >= 7:
            shop.broker.down = True
        if not ends and shop.broker.down and replica.standing.next_t >= max(shop.times) + 3:
            ends.append((max(shop.times), replica.standing.next_t))
            sim.after(500, lambda: setattr(shop.broker, "down", False))
            process.node.crash()

    shop = Shop(sim, lambda *_: None, replicas="a", orders=60)
    shop.each = each
    shop.run()
    ((delivered, next_t),) = ends
    assert delivered + 2 < next_t
    (first, *others) = shop.computed
    assert max(shop.computed[first]) < next_t
    assert others, "it came back"
    assert min(t for name in others for t in shop.computed[name]) >= next_t
    assert {t for t in shop.times if delivered < t < next_t}, "these came from the view's shard"


@pytest.mark.parametrize(
    ("step", "act"),
    [
        ("begin", "die"),
        ("produce", "die"),
        ("produce answered", "die"),
        ("commit", "die"),
        ("commit answered", "die"),
        ("commit answered", "die soon"),
    ],
)
def test_s79_a_publisher_dies_at_each_point_of_a_transaction(
    sim: Simulation, step: str, act: str
) -> None:
    played(sim, Once(step, act))


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.UNANSWERED, Fate.LATE])
def test_s80_a_commit_without_an_answer_is_decided_by_what_is_read_back(
    sim: Simulation, fate: Fate
) -> None:
    once = Once("commit", fate)
    shop = played(sim, once)
    if fate is Fate.LATE:
        count, before = shop.late
        assert count == 1, "it was on its way all the time"
        assert (shop.broker.late, shop.times) == ([], before), "nothing appears when it arrives"


def test_s80_a_publisher_that_takes_silence_for_no_is_caught(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = KafkaSink.deliver

    def deliver(self, t, epoch, changes):
        mark, batches = self._mark, list(changes)
        try:
            original(self, t, epoch, batches)
        except SinkError:
            self._mark = mark
            original(self, t, epoch, batches)

    monkeypatch.setattr(KafkaSink, "deliver", deliver)
    with pytest.raises(HistoryError):
        played(sim, Once("commit", Fate.UNANSWERED))


@pytest.mark.parametrize("step", ["produce", "commit", "commit answered"])
def test_s81_a_zombie_is_fenced_and_nothing_of_it_appears(sim: Simulation, step: str) -> None:
    shop = played(sim, Once(step, "sleep"))
    if step != "commit answered":
        assert sum(shop.broker.fenced.values()) >= 1


def test_s82_the_progress_record_decides_when_the_topic_has_nothing_left(sim: Simulation) -> None:
    """All output is removed, partitions are added, and the publisher dies."""

    class Removed(Once):
        def __call__(self, process: Host, step: str) -> Fate | None:
            if self.shop and not self.met and step == self.step and len(self.shop.times) >= 2:
                for each in self.shop.broker.log.topics[TOPIC]:
                    each.cut(each.end)
                self.shop.broker.log.grow(TOPIC, 5)
                for each in self.shop.broker.log.topics["progress"]:
                    each.compact()
            return super().__call__(process, step)

    shop = played(sim, Removed("begin", "die"))
    assert len(shop.broker.log.topics[TOPIC]) == 5


def test_s82_without_progress_a_sink_in_doubt_stops_by_name(sim: Simulation) -> None:
    """The intent is on record, its done is not, and the target has forgotten."""

    def react(process: Host, step: str) -> None:
        if step == "commit" and not lost and len(shop.times) >= 2:
            lost.append(step)
            lose(shop.broker)
            process.node.crash()

    lost: list[str] = []
    shop = Shop(sim, react)
    shop.stage.forgets = True
    shop.run()
    assert lost
    assert shop.stage.stopped
    assert "its target's progress is gone, and whether transaction" in shop.stage.stopped[0]


def test_s82_without_progress_and_without_doubt_it_goes_on(sim: Simulation) -> None:
    """Every intent has its done: nothing is left out, and nothing comes twice."""

    def each(process: Host, replica: Replica, publishing: Publishing) -> None:
        settled = len(shop.times) >= 2 and publishing.settled(replica.standing.committed)
        if settled and not lost:
            lost.append(len(shop.times))
            lose(shop.broker)
            process.node.crash()

    lost: list[int] = []
    shop = Shop(sim, lambda *_: None, replicas="a", orders=20, every_ms=400)
    shop.each = each
    shop.run()
    assert lost
    assert shop.stage.stopped == []
    assert len(shop.times) > lost[0]


@pytest.mark.parametrize("truncates", [False, True])
def test_s88_a_restart_truncates_nothing(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, *, truncates: bool
) -> None:
    """Neither the topic nor its progress loses a record, and no offset comes again."""
    original = KafkaSink.prepare

    def prepare(self: KafkaSink) -> None:
        original(self)
        for each in shop.broker.log.topics[TOPIC]:
            each.cut(each.end)

    if truncates:
        monkeypatch.setattr(KafkaSink, "prepare", prepare)
    deaths: list[str] = []

    def react(process: Host, step: str) -> None:
        if step == "commit answered" and len(shop.times) >= 2 * (len(deaths) + 1) < 9:
            deaths.append(process.name)
            process.node.crash()

    shop = Shop(sim, react)
    shop.run()
    assert len(deaths) >= 3
    gone = [entry for each in shop.broker.log.topics[TOPIC] for entry in each.gone]
    assert bool(gone) is truncates
