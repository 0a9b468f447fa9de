"""What has no changes for a sink costs it no write, and is not held for it for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
import pytest
from tests.pipeline.shop import WIDER, run, topic_of, topic_rig

from strandline.connectors.sink import Delivered, Progress
from strandline.errors import SinkError
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.claims import claim_of
from strandline.pipeline.delivery import Mark
from strandline.pipeline.place import Place, Target, placed
from strandline.pipeline.publish import Publisher
from strandline.pipeline.read_back import Reading, compared
from strandline.pipeline.replica import Replica
from strandline.pipeline.states import SinkState
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import ScriptedSink, ScriptedTarget
from strandline.testing.scripted_source import ScriptedTopic

TEXT = WIDER.format("") + "CREATE MATERIALIZED VIEW large AS SELECT id, n FROM t WHERE n > 10;"
HELD_MAX = 5


@pytest.fixture
def store() -> Iterator[Store]:
    lab = Lab()
    with new_store(lab) as made:
        yield made
    lab.close()


def touched(since: int, transactions: int) -> list[dict[str, object]]:
    """So many transactions that change the table, and nothing of what its sink publishes."""
    return [{"id": 1, "n": since + each} for each in range(2 * transactions)]


@dataclass
class Shop:
    """A table of which one column is published, and its publishers, one after the other."""

    store: Store
    topic: ScriptedTopic
    held_max: int = HELD_MAX
    source: str = "t"
    target: ScriptedTarget = field(default_factory=ScriptedTarget)
    before: Callable[[str], str | None] = lambda _: None
    publisher: Publisher | None = None

    def __post_init__(self) -> None:
        made = topic_rig(
            self.store, self.topic, TEXT, claim_lease_ms=200, sink_held_max=self.held_max, retain=1
        )

        def opened(what: Delivered) -> ScriptedSink:
            return ScriptedSink(self.target, what, self.before)

        columns = ("id",) if self.source == "t" else None
        sink = Target("out", self.source, {"connector": "scripted"}, opened, columns)
        self.rig = replace(made, sinks=[sink])
        self.replica = Replica(self.rig)

    def send(self, *rows: dict[str, object]) -> int:
        """Commit rows; the last transaction's time."""
        for each in rows:
            self.topic.send("0", None, msgspec.json.encode(each))
        run(self.replica)
        return self.replica.standing.next_t - 1

    def new(self) -> Publisher:
        settings = self.rig.settings
        self.publisher = Publisher(
            self.store, self.rig.journal, self.rig.sinks[0], settings, "a", self.rig.program.hash
        )
        return self.publisher

    def start(self) -> Publisher:
        self.new().start()
        assert self.publisher is not None
        return self.publisher

    def stop(self) -> None:
        if self.publisher is not None:
            self.publisher.stop()

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(3_000):
            if holds():
                return
            self.store.env.tasks.sleep(10)
        raise AssertionError(
            f"it did not come to that: {self.publisher and self.publisher.status()}"
        )

    def reach(self, t: int) -> None:
        """A publisher runs until it has passed a time, and that is on record."""
        self.start()
        self.until(lambda: self.mark.reached >= t)
        self.stop()

    @property
    def place(self) -> Place:
        found = placed(self.store, self.rig.journal.refresh(), self.rig.sinks[0])
        assert found is not None
        return found

    @property
    def held(self) -> int:
        found = self.place.shard.state().holds.get("sink.shop.out")
        return -1 if found is None else found.since

    @property
    def mark(self) -> Mark:
        found = list(claim_of(self.store.env, "shop", "out").marks.values())
        return found[0] if found else Mark()

    @property
    def landed(self) -> list[tuple[int, list[object]]]:
        (log,) = self.target.logs.values()
        return [(each.t, [row["id"] for row in each.rows]) for each in log.landed]

    def merge(self) -> None:
        """Forget as much history as may be."""
        self.replica.want(Want.CHECKPOINT)
        while self.replica.wants():
            self.replica.step()
        shard = self.place.shard
        shard.compact(full=True)
        assert shard.state().readable_from() > 0


@pytest.fixture
def shop(store: Store) -> Iterator[Shop]:
    made = Shop(store, topic_of())
    yield made
    made.stop()
    made.replica.close()


FIRST: dict[str, object] = {"id": 1, "n": 0}
SECOND: dict[str, object] = {"id": 2, "n": 0}


def test_transactions_that_do_not_concern_a_sink_are_not_held_for_it_for_ever(shop: Shop) -> None:
    first = shop.send(FIRST)
    shop.start()
    shop.until(lambda: shop.mark.done == first)
    assert shop.held == first
    last = shop.send(*touched(10, HELD_MAX - 1))
    shop.until(lambda: shop.mark.reached == last)
    shop.store.env.tasks.sleep(300)
    assert shop.held == first, "no write for a few transactions without changes"
    last = shop.send(*touched(100, 2))
    shop.until(lambda: shop.held > first)
    assert first == shop.mark.done < shop.held <= shop.mark.reached <= last
    assert len(shop.landed) == 1


def test_a_view_that_never_had_a_row_holds_nothing_either(store: Store) -> None:
    shop = Shop(store, topic_of(), source="large")
    shop.send(*touched(-100, HELD_MAX + 2))
    shop.start()
    shop.until(lambda: shop.held > 0)
    shop.stop()
    first = shop.send({"id": 1, "n": 50})
    shop.merge()
    shop.reach(first)
    assert shop.landed == [(first, [1])]
    shop.replica.close()


def test_whoever_comes_next_goes_on_where_history_was_let_go_of(shop: Shop) -> None:
    first = shop.send(FIRST)
    shop.send(*touched(10, HELD_MAX + 2))
    shop.start()
    shop.until(lambda: shop.held > first)
    shop.stop()
    shop.merge()
    assert shop.place.shard.state().readable_from() > first
    last = shop.send(SECOND)
    shop.reach(last)
    assert shop.landed == [(first, [1]), (last, [2])]
    assert shop.publisher is not None
    assert shop.publisher.status().state is SinkState.ENDED


def test_a_delivery_that_was_only_begun_is_made_although_what_was_before_is_gone(
    shop: Shop,
) -> None:
    """Its intent is above what is done, and nothing in between is needed."""
    first = shop.send(FIRST)
    shop.send(*touched(10, HELD_MAX + 2))
    shop.start()
    shop.until(lambda: shop.held > first)
    shop.stop()
    shop.merge()
    tried: list[str] = []

    def before(step: str) -> None:
        if step == "commit" and len(tried) < 3:
            tried.append(step)
            raise SinkError("no space left")

    shop.before = before
    last = shop.send(SECOND)
    shop.reach(last)
    assert len(tried) == 3
    assert shop.landed == [(first, [1]), (last, [2])]


def test_a_restart_alone_lets_go_of_what_was_passed(store: Store) -> None:
    shop = Shop(store, topic_of(), held_max=10**6)
    first = shop.send(FIRST)
    passed = shop.send(*touched(10, 3))
    shop.reach(passed)
    assert shop.held == first
    shop.reach(passed)
    assert shop.held == passed
    shop.replica.close()


def test_history_is_held_while_it_is_not_on_record_that_it_was_passed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart would find it merged, and could not go on."""
    monkeypatch.setattr(Publisher, "_renew", lambda *_: None)
    first = shop.send(FIRST)
    last = shop.send(*touched(10, 3 * HELD_MAX))
    publisher = shop.start()
    shop.until(lambda: publisher.status().reached == last)
    shop.store.env.tasks.sleep(300)
    assert shop.mark.reached == first
    assert shop.held == first


def test_a_view_that_raises_keeps_its_history(shop: Shop) -> None:
    """What it has not passed is neither on record nor let go of."""
    first = shop.send(FIRST)
    shop.reach(first)
    publisher = shop.new()
    raising = _raising(publisher)
    publisher.start()
    shop.send(*touched(10, 3 * HELD_MAX))
    shop.until(lambda: publisher.status().state is SinkState.BLOCKED)
    shop.store.env.tasks.sleep(300)
    assert shop.mark.reached == first
    assert shop.held == first
    raising.clear()


def _raising(publisher: Publisher) -> list[str]:
    """Let the publisher find an error at whatever it reads; the rest is as it is."""
    wrong = ["it raises"]
    turn = publisher._deliver_next

    def deliver_next() -> float:
        outgoing = publisher._outgoing
        if outgoing is not None and wrong:
            outgoing._wrong = {"it raises": 1}
        return turn()

    publisher._deliver_next = deliver_next  # type: ignore[method-assign]
    return wrong


def test_a_target_that_was_set_back_gets_again_what_it_lost(shop: Shop) -> None:
    """S82: what was reached is true of a target that has what is done, and of no other."""
    first = shop.send(FIRST)
    shop.reach(first)
    second = shop.send(SECOND)
    shop.reach(second)
    passed = shop.send(*touched(10, 2))
    shop.start()
    shop.until(lambda: shop.mark.reached == passed)
    shop.stop()
    (log,) = shop.target.logs.values()
    log.landed.pop()
    log.progress = Progress(first, 1)
    shop.place.shard.release_hold("sink.shop.out")
    shop.reach(passed)
    assert shop.landed == [(first, [1]), (second, [2])]
    assert shop.mark.done == second


def test_whoever_takes_over_says_what_a_target_that_was_set_back_has(shop: Shop) -> None:
    """Another replica has found it out, and put it on record: what this one saw before is past."""
    full: list[str] = []

    def before(step: str) -> None:
        if step == "commit" and full:
            raise SinkError("no space left")

    shop.before = before
    first = shop.send(FIRST)
    shop.reach(first)
    second = shop.send(SECOND)
    one = shop.start()
    shop.until(lambda: shop.mark.done == second)
    other = shop.start()
    shop.until(lambda: other.status().reached == second)
    full.append("from now on")
    (log,) = shop.target.logs.values()
    log.landed.pop()
    log.progress = Progress(first, 1)
    shop.send({"id": 3, "n": 0})
    shop.until(lambda: other.status().owner != "" and other.status().retries > 0)
    said = [each.status().reached for each in (one, other)]
    one.stop()
    other.stop()
    assert said == [first, first]
    assert shop.mark.done == first


def test_one_that_waits_says_what_a_target_that_was_set_back_has(shop: Shop) -> None:
    """It is not further than the record, whatever it has seen before."""
    tries: list[str] = []
    full: list[str] = []

    def before(step: str) -> None:
        if step != "commit" or not full:
            return
        tries.append(step)
        if len(tries) == 1:
            raise SinkError("no space left")
        shop.until(lambda: not full)

    shop.before = before
    first = shop.send(FIRST)
    shop.reach(first)
    second = shop.send(SECOND)
    one = shop.start()
    shop.until(lambda: shop.mark.done == second)
    other = shop.start()
    shop.until(lambda: other.status().reached == second)
    full.append("from now on")
    (log,) = shop.target.logs.values()
    log.landed.pop()
    log.progress = Progress(first, 1)
    last = shop.send({"id": 3, "n": 0})
    shop.until(lambda: len(tries) == 2)
    shop.until(lambda: other.status().reached == first)
    assert (other.status().state, other.status().owner) == (SinkState.WAITING, "")
    full.clear()
    shop.until(lambda: other.status().reached == last)
    one.stop()
    other.stop()


def test_lost_progress_is_left_again_and_nothing_merged_is_asked_for(shop: Shop) -> None:
    """S82."""
    first = shop.send(FIRST)
    shop.send(*touched(10, HELD_MAX + 2))
    shop.start()
    shop.until(lambda: shop.held > first)
    shop.stop()
    shop.merge()
    shop.target.forget_all()
    last = shop.send(SECOND)
    shop.reach(last)
    assert shop.landed == [(first, [1]), (last, [2])]


def test_a_target_is_compared_although_the_time_of_its_last_delivery_is_merged(shop: Shop) -> None:
    first = shop.send(FIRST)
    shop.send(*touched(10, HELD_MAX + 2))
    shop.start()
    shop.until(lambda: shop.held > first)
    shop.stop()
    shop.merge()
    reading = Reading(shop.store, "shop", shop.rig.sinks[0], shop.place)
    found = compared(reading)
    assert (found.equal, found.at, found.view.count) == (True, first, 1)
    (log,) = shop.target.logs.values()
    log.landed[0].rows[0]["id"] = 7
    wrong = compared(reading)
    assert sorted((each.row["id"], each.more) for each in wrong.samples) == [(1, -1), (7, 1)]
