"""A replica's life: it runs, pauses, stops after a checkpoint, and says why it ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.pipeline.shop import rig_of

from strandline.errors import SourceError, SourceGoneError
from strandline.pipeline.replica import Replica
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import State
from strandline.testing.computing import ArrowComputer
from strandline.testing.lab import Lab, new_store


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


def test_a_stall_is_said_and_ends_with_progress(lab: Lab) -> None:
    with new_store(lab) as store:
        failures = [SourceError("no broker")]
        good = ArrowComputer(store)
        states: list[State] = []

        class Flaky(ArrowComputer):
            def compute(self, work):
                states.append(runner.status().state)
                if failures:
                    raise failures.pop()
                return good.compute(work)

        rig = replace(rig_of(store, stall_ms=0), computer=Flaky(store))
        runner = Runner(Replica(rig), store.env, rig.settings)
        assert runner.run(until_idle=True).state is State.STOPPED
        assert states[1] is State.STALLED
        assert states[2] is State.RUNNING


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
