"""How far a sink is behind is what the record says, whatever its target does meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.pipeline.scripted import published, publisher_of, publishing_rig, times, until
from tests.pipeline.shop import TEXT, rig_of

from strandline.connectors.sink import NOTHING_YET
from strandline.errors import SinkError, SinkStoppedError
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.claims import Claims
from strandline.pipeline.place import Target
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.requests import Requests
from strandline.pipeline.rig import Rig
from strandline.pipeline.runner import Runner, Status
from strandline.pipeline.states import SinkState, State
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import ScriptedSink, ScriptedTarget


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def down(_: str) -> None:
    raise SinkError("the target is down")


def refused(_: str) -> None:
    raise SinkStoppedError("the password is wrong")


def delivered(store: Store, target: ScriptedTarget, transactions: int) -> None:
    """So many are committed, and all of them delivered."""
    rig = publishing_rig(store, target)
    Runner(Replica(rig), store.env, rig.settings).run(transactions=transactions)
    published(store, rig, reached=transactions - 1)


def stalled(store: Store, runner: Runner) -> Status:
    """Run until it stalls, and stop it then."""
    task = store.env.tasks.start("run", runner.run)
    until(lambda: runner.status().state is State.STALLED, store)
    status = runner.status()
    runner.stop()
    assert task.join(60_000)
    return status


@pytest.mark.parametrize("before", [down, refused])
def test_what_was_delivered_before_a_restart_counts(
    lab: Lab, before: Callable[[str], None]
) -> None:
    """Also while the target can't be asked: commits go on up to the bound."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        delivered(store, target, 6)
        rig = publishing_rig(store, target, before, sink_lag_max=4)
        status = stalled(store, Runner(Replica(rig), store.env, rig.settings, Publishing(rig)))
        assert status.committed.time == 10
        assert "is 4 transactions behind" in status.cause


def ended(store: Store, runner: Runner) -> Status:
    """Run until it has committed all that there is, and stop it then."""
    task = store.env.tasks.start("run", runner.run)
    until(lambda: runner.status().committed.time == 10, store)
    runner.stop()
    assert task.join(60_000)
    return runner.status()


@pytest.mark.parametrize("before", [down, refused])
def test_a_new_sink_on_an_old_table_that_can_t_be_begun_with_is_not_behind(
    lab: Lab, before: Callable[[str], None]
) -> None:
    """It begins with one delivery of the whole, and holds nothing: commits go on."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        old = rig_of(store)
        Runner(Replica(old), store.env, old.settings).run(transactions=6)
        rig = publishing_rig(store, target, before, sink_lag_max=4)
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        assert ended(store, runner).transactions == 4
        published(store, publishing_rig(store, target))
        assert times(target)[0] == 0, "nobody let go of anything that it would begin with"


def test_a_new_sink_on_an_old_table_is_behind_by_what_is_held_since_it_was_begun_with(
    lab: Lab,
) -> None:
    def stuck(step: str) -> None:
        if step == "begin":
            raise SinkError("the target is full")

    with new_store(lab) as store:
        old = rig_of(store, retain=1, checkpoint_every=1)
        Runner(Replica(old), store.env, old.settings).run(transactions=6)
        store.shard("shop.orders").compact(full=True)
        assert store.shard("shop.orders").state().readable_from() == 5
        rig = publishing_rig(store, ScriptedTarget(), stuck, sink_lag_max=3)
        rig.journal.refresh()
        first = publisher_of(rig)
        first.start()
        until(lambda: first.status().retries > 0, store)
        assert (first.status().begins, first.status().freed) == (5, 4)
        first.stop()
        status = stalled(store, Runner(Replica(rig), store.env, rig.settings, Publishing(rig)))
        assert status.committed.time == 8, "5, 6 and 7 are held for it"
        assert "sink out is 3 transactions behind" in status.cause


@pytest.mark.parametrize("paused", [False, True])
def test_a_sink_whose_view_begins_anew_is_behind_by_what_is_held_since(
    lab: Lab, *, paused: bool
) -> None:
    """What the view was before is nothing that the new one has to deliver; and of the new one
    nothing is held while nobody may begin with it."""
    target, healthy = ScriptedTarget(), True

    def stuck(step: str) -> None:
        if step == "begin" and not healthy:
            raise SinkError("the target is full")

    with new_store(lab) as store:
        for rows, text in ((60, TEXT), (100, TEXT.replace("> 10;", "> 30;"))):
            made = rig_of(store, text.replace("rows '100'", f"rows '{rows}'"), sink_lag_max=3)
            sink = Target(
                "out",
                "large",
                {"connector": "scripted"},
                lambda what: ScriptedSink(target, what, stuck),
            )
            rig = replace(made, sinks=[sink])
            replica = Replica(rig)
            replica.want(Want.PROMOTE)
            runner = Runner(replica, store.env, rig.settings, Publishing(rig))
            if rows == 60:
                runner.run(until_idle=True)
                healthy = False
                if paused:
                    Requests(store.env, "shop").pause("out")
            else:
                status = ended(store, runner) if paused else stalled(store, runner)
        since = rig.journal.standing.bindings["large"].since
        assert since > 3
        if not paused:
            # Some may be committed before it is begun with.
            came = status.committed.time - since
            assert came >= 3
            assert f"sink out is {came} transactions behind" in status.cause


@pytest.mark.parametrize("state", ["stopped", "paused"])
def test_until_idle_ends_behind_a_sink_that_stands_at_the_bound_and_says_so(
    lab: Lab, state: str
) -> None:
    """Nothing more is begun before somebody has looked."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        delivered(store, target, 2)
        if state == "paused":
            Requests(store.env, "shop").pause("out")
        rig = publishing_rig(store, target, refused, sink_lag_max=4)
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        task = store.env.tasks.start("run", lambda: runner.run(until_idle=True))
        assert task.join(30_000)
        status = runner.status()
        assert (status.state, status.committed.time) == (State.STOPPED, 6)
        assert f"sink out, which is {state}, is 4 transactions behind" in status.cause
        assert rig.journal.refresh().checkpoints[-1].t == 5


def test_until_idle_waits_for_a_sink_that_may_catch_up_beside_one_that_stands(lab: Lab) -> None:
    class Sinks:
        slow = 3

        def start(self):
            """Nothing runs."""

        stop = start

        def behind(self, _):
            return 9, "slow"

        def unsure(self, _):
            return 0, ""

        def settled(self, _):
            self.slow -= 1
            return self.slow < 0

        def status(self):
            return []

    with new_store(lab) as store:
        rig, sinks = rig_of(store, sink_lag_max=5), Sinks()
        runner = Runner(Replica(rig), store.env, rig.settings, sinks)
        assert "slow is 9 transactions behind" in runner.run(until_idle=True).cause
        assert sinks.slow == -1


def raising_rig(store: Store, target: ScriptedTarget) -> Rig:
    """A sink of a view whose query raises, and stays so."""
    made = rig_of(store, TEXT.replace("amount * 2", "amount / (amount - amount)"), sink_lag_max=4)
    sink = Target(
        "out", "large", {"connector": "scripted"}, lambda what: ScriptedSink(target, what)
    )
    return replace(made, sinks=[sink])


def test_until_idle_ends_where_nothing_comes_any_more_that_may_heal_a_view(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = raising_rig(store, ScriptedTarget())
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        task = store.env.tasks.start("run", lambda: runner.run(until_idle=True))
        assert task.join(30_000)
        status = runner.status()
        assert (status.state, status.committed.time) == (State.STOPPED, 10)
        assert status.cause.startswith("sink out is blocked: ")
        assert "division by zero" in status.cause


def test_one_that_waits_for_a_publisher_hears_that_its_view_raises(lab: Lab) -> None:
    """The next transaction may heal it, whoever commits that."""
    target = ScriptedTarget()
    with new_store(lab) as one, new_store(lab) as two:
        rigs = [raising_rig(store, target) for store in (one, two)]
        Runner(Replica(rigs[0]), one.env, rigs[0].settings).run(until_idle=True)
        rigs[1].journal.refresh()
        first, second = (publisher_of(rig) for rig in rigs)
        first.start()
        until(lambda: first.status().state is SinkState.BLOCKED, one)
        second.start()
        until(lambda: second.status().raises == 9, two)
        assert second.status().state is SinkState.WAITING
        for each in (first, second):
            each.stop()
        assert [each.status().raises for each in (first, second)] == [NOTHING_YET] * 2


def test_one_that_lacks_the_function_sees_how_far_another_brings_it(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as one, new_store(lab) as two:
        delivered(one, target, 1)
        lacking = publishing_rig(one, target, unable=lambda: "it has no function", sink_lag_max=4)
        runner = Runner(Replica(lacking), one.env, lacking.settings, Publishing(lacking))
        rig = publishing_rig(two, target)
        rig.journal.refresh()
        other = publisher_of(rig)
        other.start()
        until(lambda: other.status().state is SinkState.PUBLISHING, two)
        task = one.env.tasks.start("run", lambda: runner.run(until_idle=True))

        def done() -> bool:
            rig.journal.refresh()
            return task.join(1)

        until(done, two)
        other.stop()
        assert runner.status().committed.time == 10
        assert (runner.status().sinks[0].reached, runner.status().cause) == (9, "")


@pytest.mark.parametrize("owner", ["nobody", "dead"])
@pytest.mark.parametrize("bound", [100, 4])
def test_until_idle_ends_where_nobody_can_publish_a_sink_and_says_so(
    lab: Lab, owner: str, bound: int
) -> None:
    """Whoever had the claim may have died with it: nobody takes it who could not use it."""
    target = ScriptedTarget()
    with new_store(lab) as store:
        delivered(store, target, 1)
        if owner == "dead":
            dead = Claims(store.env, "shop", "out", name="b", lease_ms=400)
            assert dead.take() is not None
        rig = publishing_rig(
            store, target, unable=lambda: "no function", sink_lag_max=bound, claim_lease_ms=400
        )
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        task = store.env.tasks.start("run", lambda: runner.run(until_idle=True))
        assert task.join(30_000)
        status = runner.status()
        if bound == 4:
            said = "sink out, which nobody publishes, is 4 transactions behind"
            assert (status.committed.time, said in status.cause) == (5, True)
        else:
            assert status.committed.time == 10
            assert status.cause == "sink out is published by nobody: no function"


def test_until_idle_waits_for_whoever_has_the_claim(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as store:
        rig = publishing_rig(store, target, unable=lambda: "no function", claim_lease_ms=400)
        owner = Claims(store.env, "shop", "out", name="b", lease_ms=400)
        assert owner.take() is not None
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        task = store.env.tasks.start("run", lambda: runner.run(until_idle=True))
        looks = 0
        while looks < 4:
            assert not task.join(100)
            owner.record("any", lambda mark: mark)
            looks += runner.status().committed.time == 10
        runner.stop()
        assert task.join(30_000)
        assert runner.status().cause == ""


def test_one_that_has_stopped_sees_how_far_another_brings_it(lab: Lab) -> None:
    target = ScriptedTarget()
    with new_store(lab) as one, new_store(lab) as two:
        rig = publishing_rig(one, target, refused)
        Runner(Replica(rig), one.env, rig.settings).run(transactions=6)
        first = publisher_of(rig)
        first.start()
        until(lambda: first.status().state is SinkState.STOPPED, one)
        published(two, publishing_rig(two, target), reached=5)
        until(lambda: first.status().reached == 5, one)
        assert first.status().cause == "sink out: the password is wrong"
        first.stop()
        assert first.status().state is SinkState.STOPPED
