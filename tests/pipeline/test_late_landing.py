"""A delivery that was not answered lands late, in a target that shuts nobody out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.scripted import published, publisher_of, publishing_rig, times, until
from tests.pipeline.shop import rows, run

from strandline.pipeline import outgoing
from strandline.pipeline.publish import Publisher
from strandline.pipeline.replica import Replica
from strandline.pipeline.states import SinkState
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import LATE, ScriptedTarget


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


class Catalog:
    """A target of which one commit is not answered, and lands while the next is delivered."""

    def __init__(self) -> None:
        self.target = ScriptedTarget(fences=False)
        self.told: list[str] = []
        self._poll = outgoing._Following.poll

    def script(self, step: str) -> str | None:
        if step == "commit" and not self.told:
            self.told.append("late")
            return LATE
        if step == "begin" and self.told == ["late"]:
            self.told.append("landed")
            self.target.land()
        return None

    def poll(self, following: outgoing._Following, wait_ms: int) -> bool:
        """The first cut is at 7, and the second at 5: it came before the rest was listed."""
        moved = self._poll(following, wait_ms)
        if not self.told and following.frontier < 8:
            following.frontier = 5
        if self.told == ["late"]:
            following.frontier = min(following.frontier, 6)
        return moved

    def content(self) -> Counter[str]:
        (log,) = self.target.logs.values()
        total: Counter[str] = Counter()
        for row in (dict(row) for landed in log.landed for row in landed.rows):
            diff = int(str(row.pop("_diff")))
            total[str(row)] += diff
        return total


def test_an_intent_that_lands_after_a_shorter_one_was_begun_is_known(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog()
    with new_store(lab) as store:
        calm = publishing_rig(store, catalog.target)
        replica = Replica(calm)
        while replica.standing.next_t < 5:
            replica.step()
        published(store, calm, reached=4)
        while replica.standing.next_t < 8:
            replica.step()
        cut = lambda self, wait_ms: catalog.poll(self, wait_ms)  # noqa: E731, PLW0108 - a method
        monkeypatch.setattr(outgoing._Following, "poll", cut)
        rig = publishing_rig(store, catalog.target, catalog.script)
        rig = replace(rig, sinks=[replace(each, every_ms=1) for each in rig.sinks])
        rig.journal.refresh()
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().reached >= 7 or stopped(publisher), store)
        assert (publisher.status().cause, catalog.told) == ("", ["late", "landed"])
        run(replica)
        rig.journal.refresh()
        until(lambda: publisher.status().reached == 9, store)
        publisher.stop()
        assert times(catalog.target)[:6] == [0, 1, 2, 3, 4, 7]
        assert catalog.content() == Counter(str(row) for row in rows(store, "orders", 9))
        replica.close()


def stopped(publisher: Publisher) -> bool:
    return publisher.status().state is SinkState.STOPPED
