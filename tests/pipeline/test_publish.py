"""A publisher: in order, once, retried when that may help, stopped by name when it may not."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.pipeline.scripted import published, publisher_of, publishing_rig, times, until
from tests.pipeline.shop import run

from strandline.connectors.sink import NOTHING_YET, Progress
from strandline.errors import SinkError, SinkStoppedError
from strandline.pipeline.claims import Claims
from strandline.pipeline.delivery import founded
from strandline.pipeline.outgoing import Outgoing
from strandline.pipeline.pending import Pending
from strandline.pipeline.place import placed
from strandline.pipeline.publish import Publisher
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.requests import Requests
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import SinkState, State
from strandline.store.files import FilesBlob
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import LATE, ScriptedTarget


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


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


def test_what_fails_again_and_again_is_tried_ever_less_often(lab: Lab) -> None:
    """That the target can be opened again is no success: what is due has to arrive."""
    target = ScriptedTarget()
    publishers: list[Publisher] = []
    seen: list[tuple[SinkState, int]] = []

    def before(step: str) -> None:
        if step == "commit" and times(target)[-1:] == [3] and len(seen) < 5:
            status = publishers[0].status()
            seen.append((status.state, status.retries))
            raise SinkError("no space left")

    with new_store(lab) as store:
        rig = publishing_rig(store, target, before)
        replica = Replica(rig)
        run(replica)
        rig.journal.refresh()
        publishers.append(publisher_of(rig))
        publishers[0].start()
        until(lambda: publishers[0].status().reached >= 9, store)
        publishers[0].stop()
        assert [retries for _, retries in seen] == [0, 1, 2, 3, 4]
        assert {state for state, _ in seen[1:]} == {SinkState.RETRYING}
        assert times(target) == list(range(10))
        assert publishers[0].status().retries == 0
        replica.close()


def test_who_keeps_the_claim_survives_what_nobody_foresaw(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the next delivery that is slow would be another's, too, and the next again."""
    with new_store(lab) as store:
        rig = publishing_rig(store, ScriptedTarget(), claim_lease_ms=100)
        replica = Replica(rig)
        run(replica)
        publisher = publisher_of(rig)
        hear, heard = publisher._asked.hear, list[bool]()

        def heard_once_in_vain() -> bool:
            heard.append(hear())
            if len(heard) == 2:
                raise OSError("a client's own")
            return heard[-1]

        monkeypatch.setattr(publisher._asked, "hear", heard_once_in_vain)
        publisher.start()
        until(lambda: len(heard) > 3 and publisher.status().reached >= 9, store)
        publisher.stop()
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


def test_one_that_can_t_reach_the_target_lets_another_try(lab: Lab) -> None:
    target = ScriptedTarget()

    def unreachable(step: str) -> None:
        raise SinkError(f"{step} was not answered")

    with new_store(lab) as one, new_store(lab) as two:
        rigs = [publishing_rig(one, target, unreachable), publishing_rig(two, target)]
        replica = Replica(rigs[0])
        run(replica)
        for rig in rigs:
            rig.journal.refresh()
        first, second = (publisher_of(rig) for rig in rigs)
        first.start()
        until(lambda: first.status().state is SinkState.RETRYING, one)
        second.start()
        until(lambda: second.status().reached == 9, two)
        until(lambda: first.status().state is SinkState.WAITING, one)
        assert first.status().cause == "", "it is the other one's to say now"
        for each in (first, second):
            each.stop()
        assert times(target) == list(range(10))
        replica.close()


@pytest.mark.parametrize("again", [True, False])
def test_a_claim_that_was_taken_again_does_not_end_with_the_one_before(
    lab: Lab, *, again: bool
) -> None:
    """The answer that it was lost may come late; whoever then renewed no more would lose it."""
    with new_store(lab) as store:
        rig = publishing_rig(store, ScriptedTarget(), claim_lease_ms=200)
        replica = Replica(rig)
        run(replica)
        publisher = publisher_of(rig)
        place = placed(store, rig.journal.refresh(), rig.sinks[0])
        assert place is not None
        assert publisher._claim()
        publisher._at(place)
        renew = publisher._renew

        def late(lineage: str) -> None:
            publisher._let_go() if again else publisher._claims.release()
            try:
                renew(lineage)
            finally:
                assert not again or publisher._claim()
                publisher.ask_to_stop()

        publisher._renew = late  # type: ignore[method-assign]
        publisher._keep()
        assert (publisher.status().owner != "") is again
        publisher._let_go()
        replica.close()


def test_a_slow_sink_holds_new_transactions_back_only_at_the_stated_bound(lab: Lab) -> None:
    target = ScriptedTarget()
    broken = [True]

    def before(step: str) -> None:
        if broken and step == "begin":
            raise SinkError("the target is down")

    with new_store(lab) as store:
        rig = publishing_rig(store, target, before, sink_lag_max=4)
        Runner(Replica(rig), store.env, rig.settings).run(transactions=1)
        first = publisher_of(rig)
        first.start()
        until(lambda: first.status().retries > 0, store)
        first.stop()
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


def test_what_is_listed_late_does_not_make_a_failing_target_look_well(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the first look at a collection finds nothing yet."""
    looked: set[int] = set()
    listed = Outgoing.next

    def late(self: Outgoing, wait_ms: int) -> object:
        if id(self) in looked:
            return listed(self, wait_ms)
        looked.add(id(self))
        kept.append(self)
        return None

    def before(step: str) -> None:
        if step == "begin" and len(kept) < 5:
            raise SinkError("the target is down")

    kept: list[Outgoing] = []
    monkeypatch.setattr(Outgoing, "next", late)
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target, before)
        replica = Replica(rig)
        run(replica)
        publisher = publisher_of(rig)
        seen: list[int] = []
        monkeypatch.setattr(publisher, "_close", _noting(publisher, seen))
        publisher.start()
        until(lambda: publisher.status().reached == 9, store)
        assert (publisher.status().state, publisher.status().retries) == (SinkState.PUBLISHING, 0)
        publisher.stop()
        assert seen[:4] == [1, 2, 3, 4], "it is tried ever less often"
        assert times(target) == list(range(10))
        replica.close()


@pytest.mark.parametrize("trouble", ["a full disk", "a file that is gone"])
def test_what_does_not_fit_and_can_not_be_spilled_is_tried_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """What was to be published is in the shard: nothing has to stop for that."""
    made, get, met = tempfile.mkdtemp, FilesBlob.get, list[str]()

    def mkdtemp(*args: object, **more: object) -> str:
        if trouble == "a full disk" and len(met) < 2:
            met.append(trouble)
            raise OSError(errno.ENOSPC, "No space left on device")
        return made(*args, **more)  # type: ignore[call-overload,no-any-return]

    def gone(self: FilesBlob, key: str) -> bytes | None:
        if trouble != "a full disk" and len(met) < 2:
            met.append(trouble)
            return None
        return get(self, key)

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    monkeypatch.setattr(FilesBlob, "get", gone)
    monkeypatch.setattr("strandline.pipeline.outgoing.Pending", partial(Pending, memory_max=0))
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target)
        replica = Replica(rig)
        run(replica)
        published(store, rig)
        assert len(met) == 2
        assert times(target) == list(range(10))
        replica.close()


def test_one_of_an_older_epoch_does_not_touch_the_target(lab: Lab) -> None:
    """What it would initialise is another one's by now."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target)
        replica = Replica(rig)
        run(replica)
        place = placed(store, rig.journal.refresh(), rig.sinks[0])
        assert place is not None
        newer = Claims(store.env, "shop", "out", name="b", lease_ms=100)
        assert newer.take() is not None
        newer.record(place.lineage, lambda mark: founded(mark, Progress(NOTHING_YET, 5)))
        newer.release()
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().retries > 1, store)
        assert "e5 publishes: this replica is older" in publisher.status().cause
        publisher.stop()
        assert target.logs == {}, "nothing was opened"
        replica.close()


def test_a_delivery_that_hangs_is_told_while_it_does(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        goes_on = store.env.tasks.event()

        def hangs(step: str) -> None:
            if step == "commit" and len(times(target)) == 7:
                goes_on.wait(60_000)

        rig = publishing_rig(store, target, hangs, stall_ms=100)
        replica = Replica(rig)
        run(replica)
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().state is SinkState.STALLED, store)
        assert publisher.status().cause.startswith("delivering t=7 for ")
        goes_on.set()
        until(lambda: publisher.status().reached == 9, store)
        until(lambda: publisher.status().state is SinkState.PUBLISHING, store)
        assert publisher.status().cause == ""
        publisher.stop()
        replica.close()


def _noting(publisher: Publisher, seen: list[int]) -> Callable[[], None]:
    close = publisher._close

    def noted() -> None:
        seen.append(publisher.status().retries)
        close()

    return noted


def state_of(*publishers: Publisher) -> list[SinkState]:
    return [each.status().state for each in publishers]


def test_a_sink_that_is_paused_is_published_by_nobody_until_it_is_resumed(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as one, new_store(lab) as two:
        rigs = [publishing_rig(store, target, claim_lease_ms=400) for store in (one, two)]
        replica = Replica(rigs[0])
        while replica.standing.next_t < 4:
            replica.step()
        rigs[1].journal.refresh()
        first, second = (publisher_of(rig) for rig in rigs)
        first.start()
        until(lambda: first.status().reached == 3, one)
        assert first.status().owner
        second.start()
        Requests(one.env, "shop").pause("out")
        until(lambda: state_of(first, second) == [SinkState.PAUSED] * 2, one)
        assert Claims(one.env, "shop", "out", name="", lease_ms=1).read().owner == ""
        run(replica)
        rigs[1].journal.refresh()
        one.env.tasks.sleep(600)
        assert times(target) == [0, 1, 2, 3]
        assert state_of(first, second) == [SinkState.PAUSED] * 2
        assert (first.status().reached, first.status().cause) == (3, "")
        first.stop()
        Requests(one.env, "shop").resume("out")
        until(lambda: second.status().reached == 9, two)
        second.stop()
        assert times(target) == list(range(10))
        replica.close()


def test_a_pause_is_obeyed_by_those_who_start_later(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target)
        Requests(store.env, "shop").pause("out")
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        status = runner.run(until_idle=True)
        assert (status.state, status.transactions) == (State.STOPPED, 10)
        assert status.sinks[0].state is SinkState.PAUSED
        assert target.logs == {}, "nothing was opened"
        Requests(store.env, "shop").pause("another")
        Requests(store.env, "shop").resume("out")
        published(store, rig)
        assert sum(len(each.rows) for log in target.logs.values() for each in log.landed) > 0


def test_a_paused_sink_keeps_its_history_and_holds_commits_back_at_the_bound(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target, sink_lag_max=4, retain=1, checkpoint_every=1)
        first = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        assert first.run(transactions=2).state is State.STOPPED
        published(store, rig, reached=1)
        Requests(store.env, "shop").pause("out")
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        task = store.env.tasks.start("run", runner.run)
        until(lambda: runner.status().state is State.STALLED, store)
        status = runner.status()
        assert status.committed.time == 6
        assert "sink out, which is paused, is 4 transactions behind" in status.cause
        shard = store.shard("shop.orders")
        shard.compact(full=True)
        assert shard.state().readable_from() <= 1
        Requests(store.env, "shop").resume("out")
        until(lambda: runner.status().sinks[0].reached == 9, store)
        runner.stop()
        assert task.join(60_000)
        assert times(target) == list(range(10))
