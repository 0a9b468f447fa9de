"""Replicas say how they are; who is silent is not said to run."""

from __future__ import annotations

import pytest

from strandline.errors import ConflictError, NameRefusedError
from strandline.pipeline.presence import Presence
from strandline.pipeline.said import SILENT_MS, Said, seen
from strandline.pipeline.states import LIVING, State
from strandline.system import SystemTasks
from strandline.testing.lab import Lab


@pytest.fixture
def lab():
    made = Lab()
    yield made
    made.close()


def said(lab: Lab, token: str, state: State = State.RUNNING) -> Said:
    return Said(token, "host", 7, False, lab.clock.now, lab.clock.now, state=state)


@pytest.mark.parametrize("state", list(State))
def test_only_the_living_fall_silent(lab, state):
    one = said(lab, "a", state)
    assert seen("r1", one, lab.clock.now + SILENT_MS).state == state
    late = seen("r1", one, lab.clock.now + SILENT_MS + 1)
    assert late.state == ("silent" if state in LIVING else state)
    assert not late.alive


def test_a_store_whose_clock_went_back_says_nothing_negative(lab):
    assert seen("r1", said(lab, "a"), lab.clock.now - 5).silent_ms == 0


def test_names_are_given_once_and_again_after_their_owner_ended(lab):
    presence = Presence(lab.env(), "shop")
    assert presence.claim(None, said(lab, "a")) == "r1"
    assert presence.claim(None, said(lab, "b")) == "r2"
    with pytest.raises(ConflictError, match="process 7 on host"):
        presence.claim("r1", said(lab, "c"))
    assert presence.say("r1", said(lab, "a", State.STOPPED))
    assert presence.claim(None, said(lab, "d")) == "r1"
    assert [each.name for each in presence.all()] == ["r1", "r2"]


def test_a_silent_owner_loses_its_name_and_learns_it(lab):
    presence = Presence(lab.env(), "shop")
    presence.claim("east", said(lab, "a"))
    lab.clock.now += SILENT_MS + 1
    assert [each.state for each in presence.all()] == ["silent"]
    assert presence.claim("east", said(lab, "b")) == "east"
    assert not presence.say("east", said(lab, "a"))
    assert [each.said.token for each in presence.all()] == ["b"]


def test_who_asks_for_the_name_of_a_dead_replica_waits_until_it_is_silent(lab):
    presence = Presence(lab.env(), "shop")
    presence.claim("east", said(lab, "a"))
    asked = SystemTasks().start("asks", lambda: presence.wait_for("east"))
    assert not asked.join(300), "it may be alive"
    lab.clock.now += SILENT_MS + 1
    assert asked.join(60_000)
    assert presence.claim("east", said(lab, "b")) == "east"


def test_who_asks_for_the_name_of_a_living_replica_is_refused_at_its_next_beat(lab):
    presence = Presence(lab.env(), "shop")
    presence.claim("east", said(lab, "a"))
    asked = SystemTasks().start("asks", lambda: presence.wait_for("east"))
    assert not asked.join(300)
    lab.clock.now += 1
    presence.say("east", said(lab, "a"))
    assert asked.join(60_000)
    with pytest.raises(ConflictError, match="process 7 on host"):
        presence.claim("east", said(lab, "b"))
    presence.wait_for("west")


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 300])
def test_names_that_are_no_names_are_refused(lab, name):
    with pytest.raises(NameRefusedError):
        Presence(lab.env(), "shop").claim(name, said(lab, "a"))
