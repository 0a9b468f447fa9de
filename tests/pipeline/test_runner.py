"""A replica's life: it runs, pauses, stops after a checkpoint, and says why it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.pipeline.scripted import publishing_rig, until
from tests.pipeline.shop import TEXT, rig_of, run

from strandline.errors import JournalError, SourceError, SourceGoneError, StoreError
from strandline.handles.store import Store
from strandline.journal.next import Want
from strandline.pipeline.auditor import Auditor
from strandline.pipeline.claims import claim_of
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import State
from strandline.system import SystemClock
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store
from strandline.testing.scripted_sink import ScriptedTarget


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def test_it_runs_until_idle_and_stops_after_a_checkpoint(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Replica(rig), store.env, rig.settings)
        assert runner.status().state is State.STARTING
        status = runner.run(until_idle=True)
        assert (status.state, status.transactions, status.cause) == (State.STOPPED, 10, "")
        assert rig.journal.standing.checkpoints[-1].t == 9


def test_rows_that_wait_for_more_are_not_nothing_to_do(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, rows_max=1_000, delay_ms=50)
        status = Runner(Replica(rig), store.env, rig.settings).run(until_idle=True)
        assert (status.state, status.transactions) == (State.STOPPED, 1)


def test_it_runs_for_so_many_transactions(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        status = Runner(Replica(rig), store.env, rig.settings).run(transactions=3)
        assert status.transactions == 3
        assert rig.journal.standing.next_t == 3


def test_checkpoints_come_by_themselves(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, checkpoint_every=4)
        Runner(Replica(rig), store.env, rig.settings).run(until_idle=True)
        assert [each.t for each in rig.journal.standing.checkpoints] == [7, 9]


def test_a_source_that_lost_sealed_rows_fails_it_by_name(lab: Lab) -> None:
    with new_store(lab) as store:

        def fetch(_: object) -> Iterator[object]:
            raise SourceGoneError("orders: offsets 0 to 10 are gone")

        rig = replace(rig_of(store), computer=ArrowComputer(store, fetch=fetch))
        status = Runner(Replica(rig), store.env, rig.settings).run()
        assert status.state is State.FAILED
        assert "offsets 0 to 10 are gone" in status.cause
        assert (status.sealed, rig.journal.standing.next_t) == (0, 0)


def test_trouble_that_passes_is_tried_again_and_told_while_it_lasts(lab: Lab) -> None:
    with new_store(lab) as store:
        failures = [SourceError("no broker"), SourceError("no broker")]
        good = ArrowComputer(store)

        class Flaky(ArrowComputer):
            def compute(self, work):
                seen.append(runner.status().cause)
                if failures:
                    raise failures.pop()
                return good.compute(work)

        seen: list[str] = []
        rig = replace(rig_of(store), computer=Flaky(store))
        runner = Runner(Replica(rig), store.env, rig.settings)
        status = runner.run(until_idle=True)
        assert seen[:3] == ["", "SourceError: no broker", "SourceError: no broker"]
        assert (status.state, status.transactions, status.cause) == (State.STOPPED, 10, "")


class Later(SystemClock):
    """A clock that a test sets forward."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


def test_a_stall_is_said_and_ends_with_progress(lab: Lab) -> None:
    with new_store(lab) as store:
        failures = [SourceError("no broker"), SourceError("no broker")]
        good, clock = ArrowComputer(store), Later()
        states: list[State] = []

        class Flaky(ArrowComputer):
            def compute(self, work):
                states.append(runner.status().state)
                if failures:
                    clock.ahead_ms += 600_000
                    raise failures.pop()
                return good.compute(work)

        rig = replace(rig_of(store, stall_ms=300_000), computer=Flaky(store))
        runner = Runner(Replica(rig), replace(store.env, clock=clock), rig.settings)
        assert runner.run(until_idle=True).state is State.STOPPED
        assert states[:4] == [State.RUNNING, State.STALLED, State.STALLED, State.RUNNING]


def test_a_step_that_hangs_is_told_to_whoever_asks(lab: Lab) -> None:
    with new_store(lab) as store:
        seen, clock = [], Later()

        class Slow(ArrowComputer):
            def compute(self, work):
                if work.time == 3:
                    seen.append(runner.status())
                    clock.ahead_ms += 600_000
                    seen.append(runner.status())
                return super().compute(work)

        rig = replace(rig_of(store, stall_ms=300_000), computer=Slow(store))
        runner = Runner(Replica(rig), replace(store.env, clock=clock), rig.settings)
        ended = runner.run(until_idle=True)
        assert [each.state for each in seen] == [State.RUNNING, State.STALLED]
        assert "computing transaction 3 for 600 s" in seen[1].cause
        assert "committed up to {3}, 3 is sealed" in seen[1].cause
        assert seen[1].still_ms >= 600_000
        assert (ended.state, ended.cause, ended.still_ms) == (State.STOPPED, "", 0)


def test_a_pause_is_no_stall_afterwards(lab: Lab) -> None:
    with new_store(lab) as store:
        states, clock = [], Later()

        class Watched(ArrowComputer):
            def compute(self, work):
                states.append(runner.status().state)
                return super().compute(work)

        rig = replace(rig_of(store, stall_ms=300_000), computer=Watched(store))
        runner = Runner(Replica(rig), replace(store.env, clock=clock), rig.settings)
        while runner.status().sealed is None:
            runner._round()
        runner.pause()
        runner._round()
        clock.ahead_ms += 600_000
        assert runner.status().state is State.PAUSED
        runner.resume()
        runner._round()
        assert states == [State.STARTING]
        runner._replica.close()


def test_a_sink_that_held_it_up_is_no_stall_afterwards(lab: Lab) -> None:
    class Behind:
        behind_by = 9

        def behind(self, _):
            return self.behind_by, "out"

        def unsure(self, _):
            return 0, ""

        def status(self):
            return []

    with new_store(lab) as store:
        clock, sinks = Later(), Behind()
        rig = rig_of(store, stall_ms=300_000, sink_lag_max=5)
        runner = Runner(Replica(rig), replace(store.env, clock=clock), rig.settings, sinks)
        sinks.behind_by = 0
        while runner.status().committed.time == 0:
            runner._round()
        sinks.behind_by = 9
        runner._round()
        clock.ahead_ms += 600_000
        status = runner.status()
        assert (status.state, status.still_ms >= 600_000) == (State.STALLED, True)
        assert "sink out is 9 transactions behind" in status.cause
        sinks.behind_by = 0
        runner._round()
        assert runner.status().state is State.RUNNING
        runner._replica.close()


def test_a_sink_that_has_not_looked_yet_holds_it_up_and_is_no_stall_unless_that_takes_long(
    lab: Lab,
) -> None:
    class Unsure:
        looked = False

        def behind(self, _):
            return 0, "out"

        def unsure(self, _):
            return (0, "") if self.looked else (9, "out")

        def status(self):
            return []

    with new_store(lab) as store:
        clock, sinks = Later(), Unsure()
        rig = rig_of(store, stall_ms=300_000, sink_lag_max=5)
        runner = Runner(Replica(rig), replace(store.env, clock=clock), rig.settings, sinks)
        runner._round()
        status = runner.status()
        assert (status.state, status.committed.time) == (State.STARTING, 0)
        assert "sink out has not looked yet" in status.cause
        clock.ahead_ms += 600_000
        assert runner.status().state is State.STALLED
        sinks.looked = True
        while runner.status().committed.time == 0:
            runner._round()
        assert (runner.status().state, runner.status().cause) == (State.RUNNING, "")
        runner._replica.close()


def test_whoever_is_held_up_by_a_sink_hears_what_others_commit(lab: Lab) -> None:
    """Its publisher would not know of a promotion otherwise, nor of what it is behind."""

    class Behind:
        def behind(self, _):
            return 9, "out"

        def status(self):
            return []

    with new_store(lab) as one, new_store(lab) as two:
        rig = rig_of(one, sink_lag_max=5)
        runner = Runner(Replica(rig), one.env, rig.settings, Behind())
        runner._round()
        assert runner.standing.next_t == 0
        other = Replica(rig_of(two))
        run(other)
        runner._round()
        assert (runner.standing.next_t, runner.standing.epoch) == (10, 1)
        assert runner.status().state is State.STALLED
        other.want(Want.PROMOTE)
        while other.wants():
            other.step()
        runner._round()
        assert runner.standing.epoch == 2
        runner._replica.close()
        other.close()


def test_whoever_is_paused_hears_that_its_program_was_replaced_and_lets_go_of_its_sinks(
    lab: Lab,
) -> None:
    """The new program's sinks have the same names: nobody would publish them."""
    with new_store(lab) as one, new_store(lab) as two:
        rig = publishing_rig(one, ScriptedTarget())
        runner = Runner(Replica(rig), one.env, rig.settings, Publishing(rig))
        task = one.env.tasks.start("run", runner.run)
        until(lambda: claim_of(one.env, "shop", "out").owner != "", one)
        runner.pause()
        until(lambda: runner.status().state is State.PAUSED, one)
        other = Replica(rig_of(two, TEXT.replace("> 10;", "> 30;")))
        other.want(Want.PROMOTE)
        run(other)
        until(lambda: claim_of(one.env, "shop", "out").owner == "", one)
        assert (runner.status().state, runner.standing.epoch) == (State.PAUSED, 2)
        other.close()
        runner.resume()
        assert task.join(60_000)


def test_what_goes_wrong_while_it_looks_does_not_end_a_paused_one(lab: Lab) -> None:
    wrong: list[Exception] = [JournalError("it is older"), StoreError("away")]

    class Blind(Replica):
        def look(self) -> None:
            if wrong:
                raise wrong.pop()
            super().look()

    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Blind(rig), store.env, rig.settings)
        runner.pause()
        told = []
        for _ in range(3):
            assert runner._round() > 0
            told.append((runner.status().state, runner.status().cause))
        assert told == [
            (State.PAUSED, "StoreError: away"),
            (State.PAUSED, "JournalError: it is older"),
            (State.PAUSED, ""),
        ]
        runner.resume()
        assert runner.run(until_idle=True).state is State.STOPPED


def test_what_nobody_foresaw_ends_a_paused_one_and_is_told(lab: Lab) -> None:
    class Broken(Replica):
        def look(self) -> None:
            raise ZeroDivisionError("planted")

    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Broken(rig), store.env, rig.settings)
        runner.pause()
        with pytest.raises(ZeroDivisionError):
            runner.run()
        assert runner.status().state is State.FAILED
        assert "planted" in runner.status().cause


def test_a_pause_holds_it_until_it_is_resumed(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Replica(rig), store.env, rig.settings)
        runner.pause()
        task = store.env.tasks.start("run", lambda: runner.run(until_idle=True))
        while runner.status().state is not State.PAUSED:
            store.env.tasks.sleep(1)
        assert rig.journal.standing.next_t == 0
        runner.resume()
        assert task.join(60_000)
        assert runner.status().state is State.STOPPED
        assert rig.journal.standing.next_t == 10


def test_a_restart_counts_only_what_is_committed_from_then_on(lab: Lab) -> None:
    with new_store(lab) as store:
        for upto in (3, 6):
            rig = rig_of(store)
            status = Runner(Replica(rig), store.env, rig.settings).run(transactions=3)
            assert (status.transactions, rig.journal.standing.next_t) == (3, upto)


def _sealed_and_dead(store: Store) -> None:
    writer = Replica(rig_of(store))
    while writer.standing.next_t < 2 or writer.standing.sealed is None:
        writer.step()
    writer.close()


@pytest.mark.parametrize("before", [lambda _: None, _sealed_and_dead])
def test_who_only_reads_stops_whether_anybody_writes_or_not(
    lab: Lab, before: Callable[[Store], None]
) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        before(one)
        rig = rig_of(other)
        runner = Runner(Auditor(rig), other.env, rig.settings)
        task = other.env.tasks.start("run", runner.run)
        while not runner._idle:
            other.env.tasks.sleep(1)
        runner.stop()
        assert task.join(10_000)
        assert runner.status().state is State.STOPPED
        runner._replica.close()


@pytest.mark.parametrize("before", [lambda _: None, _sealed_and_dead])
def test_who_only_reads_is_idle_where_nothing_that_is_committed_is_left(
    lab: Lab, before: Callable[[Store], None]
) -> None:
    """Nobody may ever found the pipeline, or finish what is sealed."""
    with new_store(lab) as one, new_store(lab) as other:
        before(one)
        rig = rig_of(other)
        runner = Runner(Auditor(rig), other.env, rig.settings)
        task = other.env.tasks.start("run", lambda: runner.run(until_idle=True))
        assert task.join(10_000)
        assert runner.status().state is State.STOPPED
        runner._replica.close()


def test_who_only_reads_is_not_idle_while_it_is_paused(lab: Lab) -> None:
    with new_store(lab) as one, new_store(lab) as other:
        rig = rig_of(other)
        runner = Runner(Auditor(rig), other.env, rig.settings)
        runner._round()
        runner.pause()
        task = other.env.tasks.start("run", lambda: runner.run(until_idle=True))
        assert not task.join(50)
        Runner(Replica(rig_of(one)), one.env, rig.settings).run(until_idle=True)
        runner.resume()
        assert task.join(10_000)
        assert runner.status().committed.settled(9)
        runner._replica.close()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_checkpoint_is_taken_while_it_is_paused_and_nothing_is_begun(
    lab: Lab, *, sealed: bool
) -> None:
    """What is sealed is finished for it, as before a stop."""
    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Replica(rig), store.env, rig.settings)
        while runner.standing.next_t < 3 or (runner.standing.sealed is not None) is not sealed:
            runner._round()
        counted = runner.status().transactions
        runner.pause()
        runner._round()
        runner.checkpoint()
        rests = [runner._round() for _ in range(6)]
        assert rests[-1] > 0
        standing = rig.journal.refresh()
        last = 3 if sealed else 2
        assert [each.t for each in standing.checkpoints] == [last]
        assert (standing.committed.last(), standing.sealed) == (last, None)
        assert runner.status().transactions == counted + sealed
        assert runner.status().state is State.PAUSED
        runner.resume()
        assert runner.run(until_idle=True).state is State.STOPPED
        assert rig.journal.standing.next_t == 10


def test_who_only_reads_rests_while_it_is_paused_and_asked_for_a_checkpoint(lab: Lab) -> None:
    with new_store(lab) as store:
        run(Replica(rig_of(store)))
        rig = rig_of(store)
        runner = Runner(Auditor(rig), store.env, rig.settings)
        runner.pause()
        runner.checkpoint()
        assert [runner._round() for _ in range(3)] == [rig.settings.poll_ms] * 3
        assert not runner._asked_checkpoint
        runner._replica.close()


class Troubled(Replica):
    """Its store can't be reached, and it counts how often it was asked to go on."""

    steps = 0
    troubled = True

    def step(self) -> float:
        self.steps += 1
        if self.troubled:
            raise StoreError("the store can't be reached")
        return super().step()


@pytest.mark.parametrize("asked", ["stop", "checkpoint", "transactions"])
def test_trouble_is_not_tried_again_at_once_because_something_is_asked(
    lab: Lab, asked: str
) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, stall_ms=1)
        replica = Troubled(rig)
        runner = Runner(replica, store.env, rig.settings)
        runner.pause()
        upto = 0 if asked == "transactions" else None
        task = store.env.tasks.start("run", lambda: runner.run(transactions=upto))
        if asked != "transactions":
            getattr(runner, asked)()
        assert not task.join(300)
        assert 0 < replica.steps < 10
        status = runner.status()
        assert "can't be reached" in status.cause
        assert status.state is (State.PAUSED if asked == "checkpoint" else State.STOPPING)
        replica.troubled = False
        runner.stop()
        assert task.join(10_000)
        assert runner.status().state is State.STOPPED
        assert replica.standing.checkpoints
