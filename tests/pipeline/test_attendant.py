"""Whoever stands beside a runner says how it is, and tells it what was asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipeline.shop import TEXT, rig_of

from strandline.errors import NotAppliedError, StoreError
from strandline.handles.store import Store
from strandline.pipeline.attendant import Attendant, _sink_said
from strandline.pipeline.presence import Presence
from strandline.pipeline.publishing import Publishing
from strandline.pipeline.replica import Replica
from strandline.pipeline.requests import Requests
from strandline.pipeline.runner import Runner
from strandline.pipeline.said import Said, SinkStatus
from strandline.pipeline.states import Event, SinkState, State
from strandline.testing.lab import Lab, new_store


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def attended(store: Store, lab: Lab, token: str = "t") -> tuple[Attendant, Runner]:
    rig = rig_of(store)
    runner = Runner(Replica(rig), store.env, rig.settings)
    said = Said(token, "host", 1, False, lab.clock.now, lab.clock.now)
    return Attendant(store.env, "shop", runner, name="a", said=said), runner


def test_the_last_word_is_how_it_ended(lab: Lab) -> None:
    with new_store(lab) as store:
        attendant, runner = attended(store, lab)
        with attendant:
            assert Presence(store.env, "shop").all()[0].state == State.STARTING
            runner.run(until_idle=True)
        told = Presence(store.env, "shop").all()[0].said
        assert (told.state, told.committed, told.transactions) == ("stopped", 10, 10)


def test_a_pipeline_that_is_paused_stays_so_for_those_who_come_later(lab: Lab) -> None:
    with new_store(lab) as store:
        Requests(store.env, "shop").pause()
        attendant, runner = attended(store, lab)
        with attendant:
            runner._round()
            assert runner.status().state is State.PAUSED
            Requests(store.env, "shop").resume()
            attendant._turn()
            runner._round()
            assert runner.status().state is not State.PAUSED
        runner._replica.close()


def test_what_was_asked_before_it_came_is_not_its_business(lab: Lab) -> None:
    with new_store(lab) as store:
        Requests(store.env, "shop").stop()
        attendant, runner = attended(store, lab)
        with attendant:
            attendant._turn()
            assert not runner._asked_stop
            Requests(store.env, "shop").stop("b")
            attendant._turn()
            assert not runner._asked_stop
            Requests(store.env, "shop").stop("a")
            Requests(store.env, "shop").checkpoint()
            attendant._turn()
            assert runner._asked_stop
            assert runner._asked_checkpoint
        runner._replica.close()


def test_a_store_that_does_not_answer_ends_nothing(lab: Lab) -> None:
    with new_store(lab) as store:
        attendant, runner = attended(store, lab)
        with attendant:
            fine = attendant._requests

            class Silent:
                def read(self) -> object:
                    raise NotAppliedError("no answer")

            attendant._requests = Silent()
            attendant._turn()
            attendant._requests = fine
            assert store.env.metrics.value("attendant_errors") >= 1
        runner._replica.close()


def test_who_lost_its_name_takes_another(lab: Lab) -> None:
    with new_store(lab) as store:
        attendant, runner = attended(store, lab)
        with attendant:
            lab.clock.now += 60_000
            other = Said("other", "host", 2, False, lab.clock.now, lab.clock.now)
            Presence(store.env, "shop").claim("a", other)
            attendant._turn()
            assert attendant.name == "r1"
        runner._replica.close()


def test_what_its_publishers_say_is_said_to_everybody(lab: Lab, tmp_path: Path) -> None:
    text = TEXT + f"CREATE SINK out FROM large USING files OPTIONS (path '{tmp_path}');"
    with new_store(lab) as store:
        rig = rig_of(store, text)
        runner = Runner(Replica(rig), store.env, rig.settings, Publishing(rig))
        said = Said("t", "host", 1, False, lab.clock.now, lab.clock.now)
        with Attendant(store.env, "shop", runner, name="a", said=said):
            runner.run(until_idle=True)
        (told,) = Presence(store.env, "shop").all()[0].said.sinks
    assert (told.name, told.state, told.reached, told.delivered) == ("out", "ended", 9, 10)
    assert told.lineage
    assert not told.owner, "it has let go of the claim"


def test_a_long_cause_is_cut(lab: Lab) -> None:
    status = SinkStatus("out", SinkState.STOPPED, 1, 0, 0, 0, "x" * 10_000)
    assert len(_sink_said(status).cause) == 500
    with new_store(lab) as store:
        attendant, runner = attended(store, lab)
        with attendant:
            runner._end(Event.FAIL, StoreError("x" * 10_000))
        told = Presence(store.env, "shop").all()[0].said
        assert (told.state, len(told.cause)) == ("failed", 500)
        assert len(runner.status().cause) > 10_000, "who asks it here gets all of it"


def test_a_stall_is_counted_once(lab: Lab) -> None:
    with new_store(lab) as store:
        attendant, runner = attended(store, lab)
        with attendant:
            attendant._done.set()
            assert attendant._task.join(60_000), "nobody else counts"
            for state in (State.RUNNING, State.STALLED, State.STALLED, State.RUNNING):
                runner._state = state
                attendant._watch()
            assert store.env.metrics.value("replica_stalls") == 1
            runner._state = State.STALLED
            attendant._watch()
            assert store.env.metrics.value("replica_stalls") == 2
        runner._replica.close()
