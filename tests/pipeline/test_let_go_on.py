"""A sink that has stopped goes on when somebody says so, in every replica, by the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.pipeline.scripted import publisher_of, publishing_rig, times, until
from tests.pipeline.shop import run

from strandline.errors import SinkStoppedError
from strandline.pipeline.claims import claim_of
from strandline.pipeline.place import Place
from strandline.pipeline.publish import Publisher
from strandline.pipeline.replica import Replica
from strandline.pipeline.requests import Requests
from strandline.pipeline.states import SinkState
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import ScriptedTarget


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


class Locked:
    """A target that refuses for good, until its password is right."""

    def __init__(self) -> None:
        self.wrong = True
        self.tried = 0

    def __call__(self, step: str) -> None:
        self.tried += step == "prepare"
        if self.wrong and step == "prepare":
            raise SinkStoppedError("the password is wrong")


def states(*publishers: Publisher) -> list[SinkState]:
    return [each.status().state for each in publishers]


def resumed(requests: Requests) -> None:
    requests.resume("out")


def paused_and_resumed(requests: Requests) -> None:
    """Too fast for anybody to have heard of the pause."""
    requests.pause("out")
    requests.resume("out")


@pytest.mark.parametrize("ask", [resumed, paused_and_resumed])
def test_a_sink_that_has_stopped_in_two_replicas_goes_on_when_it_is_resumed(
    lab: Lab, ask: Callable[[Requests], None]
) -> None:
    target, lock = ScriptedTarget(), Locked()
    with new_store(lab) as one, new_store(lab) as two:
        rigs = [publishing_rig(store, target, lock, claim_lease_ms=400) for store in (one, two)]
        replica = Replica(rigs[0])
        run(replica)
        for rig in rigs:
            rig.journal.refresh()
        first, second = (publisher_of(rig) for rig in rigs)
        for each in (first, second):
            each.start()
        until(lambda: states(first, second) == [SinkState.STOPPED] * 2, one)
        assert claim_of(one.env, "shop", "out").owner == "", "nobody keeps others from it"
        one.env.tasks.sleep(500)
        assert lock.tried == 2, "nothing is tried before somebody says so"
        assert [each.status().resumes for each in (first, second)] == [0, 0]

        ask(Requests(two.env, "shop"))
        until(lambda: [each.status().resumes for each in (first, second)] == [1, 1], one)
        until(lambda: states(first, second) == [SinkState.STOPPED] * 2, one)
        assert (lock.tried, first.status().cause) == (4, "sink out: the password is wrong")

        lock.wrong = False
        ask(Requests(one.env, "shop"))
        until(lambda: sorted(states(first, second)) == ["publishing", "waiting"], one)
        until(lambda: first.status().reached == second.status().reached == 9, one)
        assert first.status().cause == ""
        for each in (first, second):
            each.stop()
        assert times(target) == list(range(10))
        replica.close()


def test_a_sink_that_has_stopped_can_be_paused_and_resumed_later(lab: Lab) -> None:
    target, lock = ScriptedTarget(), Locked()
    with new_store(lab) as store:
        rig = publishing_rig(store, target, lock, claim_lease_ms=400)
        replica = Replica(rig)
        run(replica)
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().state is SinkState.STOPPED, store)
        lock.wrong = False
        Requests(store.env, "shop").pause("out")
        until(lambda: publisher.status().state is SinkState.PAUSED, store)
        Requests(store.env, "shop").resume("out")
        until(lambda: publisher.status().reached == 9, store)
        publisher.stop()
        assert times(target) == list(range(10))
        replica.close()


def test_a_resume_that_is_heard_during_an_attempt_is_good_for_another_one(lab: Lab) -> None:
    """The attempt has the old password: how it ends says nothing of the new one."""
    target, lock = ScriptedTarget(), Locked()
    with new_store(lab) as store:
        goes_on = store.env.tasks.event()

        def slow(step: str) -> None:
            if step == "prepare" and lock.tried == 1:
                lock.tried += 1
                goes_on.wait(60_000)
                raise SinkStoppedError("the password is wrong")
            lock(step)

        rig = publishing_rig(store, target, slow, claim_lease_ms=400)
        replica = Replica(rig)
        run(replica)
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().state is SinkState.STOPPED, store)
        requests = Requests(store.env, "shop")
        requests.resume("out")
        until(lambda: lock.tried == 2, store)
        lock.wrong = False
        requests.resume("out")
        until(lambda: publisher.status().resumes == 2, store)
        goes_on.set()
        until(lambda: publisher.status().reached == 9, store)
        publisher.stop()
        assert lock.tried == 3
        assert times(target) == list(range(10))
        replica.close()


def test_a_resume_that_was_heard_while_all_was_well_is_good_for_nothing_later(lab: Lab) -> None:
    target, tried = ScriptedTarget(), list[str]()

    def refuses(step: str) -> None:
        if step == "begin" and len(times(target)) == 7:
            tried.append(step)
            raise SinkStoppedError("no right to write")

    with new_store(lab) as store:
        rig = publishing_rig(store, target, refuses, claim_lease_ms=400)
        replica = Replica(rig)
        while replica.standing.next_t < 4:
            replica.step()
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: publisher.status().reached == 3, store)
        Requests(store.env, "shop").resume("out")
        until(lambda: publisher.status().resumes == 1, store)
        run(replica)
        until(lambda: publisher.status().state is SinkState.STOPPED, store)
        store.env.tasks.sleep(500)
        assert len(tried) == 1
        publisher.stop()
        replica.close()


def test_a_sink_that_has_stopped_can_be_resumed_whatever_happens_while_it_stands(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, lock = ScriptedTarget(), Locked()
    with new_store(lab) as store:
        rig = publishing_rig(store, target, lock, claim_lease_ms=100)
        replica = Replica(rig)
        run(replica)
        publisher = publisher_of(rig)
        publisher.start()
        until(lambda: states(publisher) == [SinkState.STOPPED], store)
        found, looked = publisher._found, list[int]()

        def found_once_in_vain() -> Place | None:
            looked.append(1)
            if len(looked) == 1:
                raise OSError("of the store's client")
            return found()

        monkeypatch.setattr(publisher, "_found", found_once_in_vain)
        until(lambda: bool(looked), store)
        lock.wrong = False
        Requests(store.env, "shop").resume("out")
        until(lambda: publisher.status().reached >= 9, store)
        publisher.stop()
        replica.close()
