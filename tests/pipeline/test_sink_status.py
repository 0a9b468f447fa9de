"""How a sink is: by its record, which outlives everybody, and by those that live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.model.frontier import Frontier
from strandline.pipeline.claim import Claim
from strandline.pipeline.delivery import Mark
from strandline.pipeline.said import SILENT, Said, Seen, SinkSaid
from strandline.pipeline.sink_status import (
    DELIVERED,
    PENDING,
    UNCHANGED,
    SinkReport,
    SinkSight,
    fate_of,
    report_of,
    trouble_of,
)
from strandline.pipeline.states import SinkState

CLAIM = Claim(
    owner="token-a", name="a", marks={"old": Mark(1, 99, 99, 99), "now": Mark(1, 5, 4, 6)}
)
SIGHT = SinkSight("out", "large", "files", "now", CLAIM, paused=False, since=2)
COMMITTED = Frontier(10)


def replica(
    name: str, state: str, *, at_ms: int = 0, alive: str = "running", **said: object
) -> Seen:
    word = SinkSaid("out", state=state, lineage="now", **said)
    told = Said(name, "host", 1, False, 0, at_ms, state=alive, sinks=(word,))
    return Seen(name, alive, 0, told)


def seen(*replicas: Seen, **change: object) -> SinkReport:
    return report_of(replace(SIGHT, **change), replicas, COMMITTED)


def test_how_far_it_is_comes_from_the_record_of_its_lineage() -> None:
    found = seen()
    assert (found.delivered, found.reached, found.behind) == (4, 6, 3)
    assert (found.state, found.publisher, found.cause) == (SinkState.ENDED, None, "")
    new = seen(lineage="later")
    assert (new.delivered, new.reached, new.behind) == (None, None, 8), "since it means that"
    assert seen(lineage="").reached is None


def test_the_one_that_has_the_claim_is_believed() -> None:
    waiting = replica("b", "waiting", reached=9)
    owner = replica(
        "a", "retrying", owner="token-a", reached=8, retries=3, still_ms=4_000, cause="x"
    )
    found = seen(waiting, owner)
    assert (found.state, found.publisher, found.cause) == ("retrying", "a", "x")
    assert (found.reached, found.behind, found.retries, found.still_seconds) == (8, 1, 3, 4.0)
    other = replica("c", "publishing", owner="token-of-another")
    assert seen(other, owner).publisher == "a"
    assert seen(other).publisher is None
    assert (seen(waiting).reached, seen(waiting).behind) == (6, 3), "it may have been set back"


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["stopped", "publishing"], "publishing"),
        (["waiting", "stopped"], "waiting"),
        (["starting", "waiting"], "starting"),
        (["blocked", "retrying"], "blocked"),
        (["stopped", "stopped"], "stopped"),
        (["something new"], "something new"),
    ],
)
def test_without_it_the_best_of_those_that_live(states: list[str], state: str) -> None:
    assert seen(*(replica(str(at), each) for at, each in enumerate(states))).state == state


def test_every_state_has_a_place() -> None:
    for state in SinkState:
        assert seen(replica("a", state)).state == state


def test_that_it_has_stopped_is_told_also_when_nobody_lives() -> None:
    last = replica("a", "stopped", at_ms=9, alive="stopped", cause="sink out: look at it")
    earlier = replica("b", "ended", at_ms=3, alive="stopped")
    found = seen(earlier, last)
    assert (found.state, found.cause, found.stopped) == ("stopped", "look at it", True)
    assert trouble_of([found, seen()]) == "sink out has stopped: look at it"
    assert seen(replace(earlier, said=replace_at(earlier.said, 20)), last).state == "ended"
    assert seen(last, replica("c", "publishing", at_ms=1)).state == "publishing"
    assert seen(replica("a", "publishing", alive=SILENT)).state == "ended"


def replace_at(said: Said, at_ms: int) -> Said:
    return Said(*(said.token, said.host, 1, False, 0, at_ms), state=said.state, sinks=said.sinks)


def test_a_word_about_another_lineage_is_no_word() -> None:
    old = replica("a", "stopped", cause="x")
    assert seen(old, lineage="later").state == "ended"
    young = Seen(
        "b", "running", 0, Said("b", "h", 1, False, 0, 0, sinks=(SinkSaid("out", "starting"),))
    )
    assert seen(young).state == "starting", "it does not know its lineage yet"


def test_a_pause_is_told_once_it_is_heard_and_never_hides_a_stop() -> None:
    assert seen(paused=True).state == "paused"
    heard, deaf = replica("a", "paused"), replica("b", "publishing", owner="token-a")
    assert (seen(heard, paused=True).state, seen(deaf, paused=True).state) == (
        "paused",
        "publishing",
    )
    assert seen(replica("a", "stopped"), paused=True).state == "stopped"
    assert seen(deaf, paused=True).paused


@pytest.mark.parametrize(
    ("t", "changed", "fate"),
    [
        (6, True, DELIVERED),
        (4, True, DELIVERED),
        (7, True, PENDING),
        (7, False, UNCHANGED),
        (4, False, UNCHANGED),
        (1, True, None),
    ],
)
def test_what_became_of_a_transaction(t: int, *, changed: bool, fate: str | None) -> None:
    assert fate_of(SIGHT, t, changed=changed) == fate


def test_of_a_sink_that_has_not_begun_everything_is_to_come() -> None:
    assert fate_of(replace(SIGHT, claim=Claim()), 3, changed=True) == PENDING
    assert fate_of(replace(SIGHT, lineage=""), 3, changed=True) is None
