"""A checkpoint that is asked for is taken: before a pause, before a stop, beside others, after
trouble, and while a sink holds everything else up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline.shop import rig_of

from strandline.errors import StoreError
from strandline.journal.next import Want
from strandline.model.frontier import Frontier
from strandline.pipeline.replica import Replica
from strandline.pipeline.retain import cut
from strandline.pipeline.runner import Runner
from strandline.pipeline.states import State
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def test_a_checkpoint_that_was_asked_for_just_before_a_pause_is_taken(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Replica(rig), store.env, rig.settings)
        while runner.standing.sealed is None:
            runner._round()
        runner.checkpoint()
        runner._round()
        assert not runner.standing.checkpoints, "what is sealed was finished for it"
        runner.pause()
        rests = [runner._round() for _ in range(4)]
        assert [each.t for each in rig.journal.refresh().checkpoints] == [0]
        assert rests[-1] > 0
        assert not runner._owes_checkpoint
        runner._replica.close()


def test_a_checkpoint_that_is_only_due_waits_for_the_end_of_a_pause(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, checkpoint_every=2)
        runner = Runner(Replica(rig), store.env, rig.settings)
        runner.checkpoint()
        while not (runner.standing.checkpoints and runner._replica.wants()):
            runner._round()
        runner.pause()
        rests = [runner._round() for _ in range(4)]
        assert rests == [rig.settings.poll_ms] * 4
        assert len(rig.journal.refresh().checkpoints) == 1
        runner._replica.close()


class Slower(Replica):
    """Whenever it is about to publish a checkpoint, another replica has gone on."""

    other: Replica
    sealed = False

    def _published(self, standing):
        while self.other.standing.next_t <= standing.next_t:
            self.other.step()
        self.other.want(Want.CHECKPOINT)
        while self.other.wants():
            self.other.step()
        while self.sealed and self.other.standing.sealed is None:
            self.other.step()
        return super()._published(standing)


@pytest.mark.parametrize("sealed", ["nothing", "for both", "for the other"])
def test_a_stop_beside_a_busy_replica_ends_after_the_checkpoint_of_that_one(
    lab: Lab, sealed: str
) -> None:
    with new_store(lab) as one, new_store(lab) as two:
        busy, rig = Replica(rig_of(one)), rig_of(two)
        slower = Slower(rig)
        slower.other, slower.sealed = busy, sealed != "nothing"
        runner = Runner(slower, two.env, rig.settings)
        while runner.standing.next_t < 2 or runner.standing.sealed is not None:
            runner._round()
        runner.stop()
        for _ in range(5):
            if runner.status().state is not State.STOPPED:
                runner._round()
            while sealed == "for the other" and not slower.wants() and busy.standing.sealed:
                busy.step()
        assert runner.status().state is State.STOPPED
        standing = rig.journal.refresh()
        assert standing.checkpoints[-1].t == 2
        after = 3 if sealed == "nothing" else 4
        assert (standing.next_t, standing.sealed) == (after, None), "it begins nothing"
        slower.close()
        busy.close()


class Blip:
    """Cuts, but the store can't be reached at first."""

    def __init__(self) -> None:
        self.calls, self.done = 0, 0

    def __call__(self, *what: Any) -> None:
        self.calls += 1
        if self.calls == 1:
            raise StoreError("a blip")
        cut(*what)
        self.done += 1


@pytest.fixture
def blip(monkeypatch: pytest.MonkeyPatch) -> Blip:
    made = Blip()
    monkeypatch.setattr("strandline.pipeline.replica.cut", made)
    return made


def _between(runner: Runner, t: int) -> None:
    while runner.standing.next_t < t or runner.standing.sealed is not None:
        runner._round()


def test_what_a_checkpoint_is_followed_by_is_repeated_after_trouble_before_a_stop(
    lab: Lab, blip: Blip
) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Replica(rig), store.env, rig.settings)
        _between(runner, 2)
        runner.stop()
        assert runner.run().state is State.STOPPED
        standing = rig.journal.refresh()
        assert [each.t for each in standing.checkpoints] == [1]
        assert standing.next_t == 2, "it begins nothing"
        assert blip.done == 1


def test_trouble_after_a_checkpoint_that_is_over_is_no_cause_of_a_pause(
    lab: Lab, blip: Blip
) -> None:
    with new_store(lab) as store:
        rig = rig_of(store)
        runner = Runner(Replica(rig), store.env, rig.settings)
        _between(runner, 2)
        runner.pause()
        runner.checkpoint()
        runner._round()
        assert runner.status().cause == "StoreError: a blip"
        for _ in range(3):
            runner._round()
        status = runner.status()
        assert (status.state, status.cause, blip.done) == (State.PAUSED, "", 1)
        assert [each.t for each in rig.journal.refresh().checkpoints] == [1]
        runner._replica.close()


class Behind:
    """A sink that takes nothing after the first transaction."""

    def behind(self, committed: Frontier) -> tuple[int, str]:
        return (9 if committed.settled(0) else 0), "out"

    def unsure(self, _: Frontier) -> tuple[int, str]:
        return 0, ""

    def status(self) -> list[object]:
        return []


def test_a_checkpoint_is_taken_while_a_sink_holds_up_what_is_new(lab: Lab) -> None:
    with new_store(lab) as store:
        rig = rig_of(store, sink_lag_max=5)
        runner = Runner(Replica(rig), store.env, rig.settings, Behind())
        while runner.status().state is not State.STALLED:
            runner._round()
        runner.checkpoint()
        for _ in range(3):
            runner._round()
        standing = rig.journal.refresh()
        assert [each.t for each in standing.checkpoints] == [0]
        assert (standing.next_t, standing.sealed) == (1, None), "nothing is begun"
        status = runner.status()
        assert status.state is State.STALLED
        assert "sink out is 9 transactions behind" in status.cause
        runner._replica.close()
