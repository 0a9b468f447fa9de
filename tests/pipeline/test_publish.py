"""A publisher: in order, once, retried when that may help, stopped by name when it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import rig_of, run

from strandline.connectors.sink import Delivered, Progress
from strandline.errors import SinkError, SinkStoppedError
from strandline.handles.store import Store
from strandline.pipeline.place import Target
from strandline.pipeline.publish import Publisher, SinkState
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.rig import Rig
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import State
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import LATE, ScriptedSink, ScriptedTarget

Before = Callable[[str], str | None]


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def calm(_: str) -> None:
    """Nothing goes wrong."""


def publishing_rig(
    store: Store, target: ScriptedTarget, before: Before = calm, **settings: int
) -> Rig:
    def opened(what: Delivered) -> ScriptedSink:
        return ScriptedSink(target, what, before)

    sinks = [Target("out", "orders", {"connector": "scripted"}, opened)]
    return replace(rig_of(store, **settings), sinks=sinks)


def publisher_of(rig: Rig) -> Publisher:
    return Publisher(rig.store, rig.journal, rig.sinks[0], rig.settings, "a")


def until(holds: Callable[[], bool], store: Store) -> None:
    for _ in range(6_000):
        if holds():
            return
        store.env.tasks.sleep(10)
    raise AssertionError("it did not come to that within a minute")


def published(store: Store, rig: Rig, *, reached: int = 9) -> Publisher:
    """A publisher that ran until everything was delivered, and was stopped."""
    rig.journal.refresh()
    publisher = publisher_of(rig)
    publisher.start()
    try:
        until(lambda: publisher.status().reached >= reached, store)
    finally:
        publisher.stop()
    return publisher


def times(target: ScriptedTarget) -> list[int]:
    (log,) = target.logs.values()
    return [each.t for each in log.landed]


def test_s78_what_is_committed_goes_out_from_the_shard_and_nothing_is_computed_again(
    lab: Lab,
) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target)
        replica = Replica(rig)
        run(replica)
        first = published(store, rig)
        assert (first.status().state, first.status().delivered) == (SinkState.ENDED, 10)
        assert times(target) == list(range(10))
        again = published(store, rig)
        assert again.status().delivered == 0
        assert times(target) == list(range(10))
        replica.close()


def test_trouble_that_passes_is_tried_again_with_a_new_handle(lab: Lab) -> None:
    target = ScriptedTarget()
    steps: list[str] = []

    def before(step: str) -> str | None:
        steps.append(step)
        if step == "commit" and steps.count("commit") == 2:
            return LATE
        if step == "reply" and steps.count("reply") == 4:
            raise SinkError("no answer")
        return None

    with new_store(lab) as store:
        rig = publishing_rig(store, target, before)
        replica = Replica(rig)
        run(replica)
        publisher = published(store, rig)
        assert times(target) == list(range(10))
        assert steps.count("prepare") == 3
        assert publisher.status().retries == 0
        replica.close()


def test_s82_lost_progress_is_left_again_only_when_nothing_is_in_doubt(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target)
        replica = Replica(rig)
        run(replica)
        published(store, rig)
        target.forget_all()
        published(store, rig)
        (log,) = target.logs.values()
        assert log.progress == Progress(9, 1)
        assert times(target) == list(range(10))
        replica.close()


def test_s82_an_intent_without_done_stops_the_sink_by_name(lab: Lab) -> None:
    target = ScriptedTarget()

    def before(step: str) -> None:
        if step == "commit" and len(times(target)) == 4:
            target.forget_all()
            raise SinkError("gone")

    with new_store(lab) as store:
        rig = publishing_rig(store, target, before)
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        status = runner.run(until_idle=True)
        assert (status.state, status.transactions) == (State.STOPPED, 10)
        (sink,) = status.sinks
        assert sink.state is SinkState.STOPPED
        assert "sink out: its target's progress is gone" in sink.cause
        assert "transaction 4" in sink.cause
        assert times(target) == [0, 1, 2, 3]


def test_a_target_that_refuses_for_good_stops_the_sink_and_nothing_else(lab: Lab) -> None:
    def before(step: str) -> None:
        if step == "prepare":
            raise SinkStoppedError("the password is wrong")

    with new_store(lab) as store:
        rig = publishing_rig(store, ScriptedTarget(), before)
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        status = runner.run(until_idle=True)
        assert (status.state, status.transactions) == (State.STOPPED, 10)
        assert status.sinks[0].cause == "sink out: the password is wrong"


def test_one_of_two_publishes_and_the_other_takes_over(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as one, new_store(lab) as two:
        rigs = [publishing_rig(store, target) for store in (one, two)]
        replica = Replica(rigs[0])
        run(replica)
        for rig in rigs:
            rig.journal.refresh()
        first, second = (publisher_of(rig) for rig in rigs)
        first.start()
        until(lambda: first.status().reached == 9, one)
        second.start()
        until(lambda: second.status().state is SinkState.WAITING, two)
        first.stop()
        until(lambda: second.status().state is SinkState.PUBLISHING, two)
        assert second.status().reached == 9
        second.stop()
        assert second.status().delivered == 0
        assert times(target) == list(range(10))
        replica.close()


def test_a_slow_sink_holds_new_transactions_back_only_at_the_stated_bound(lab: Lab) -> None:
    target = ScriptedTarget()
    broken = [True]

    def before(step: str) -> None:
        if broken and step == "begin":
            raise SinkError("the target is down")

    with new_store(lab) as store:
        rig = publishing_rig(store, target, before, sink_lag_max=4)
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        task = store.env.tasks.start("run", lambda: runner.run(until_idle=True))
        until(lambda: runner.status().state is State.STALLED, store)
        until(lambda: runner.status().sinks[0].retries > 1, store)
        status = runner.status()
        assert status.committed.time == 4
        assert "sink out is 4 transactions behind" in status.cause
        assert "the target is down" in status.sinks[0].cause
        assert status.sinks[0].reached == -1
        broken.clear()
        assert task.join(60_000)
        assert runner.status().state is State.STOPPED
        assert times(target) == list(range(10))
