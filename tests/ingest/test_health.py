"""How an ingest is: never `running` when nothing moves."""

import pytest

from strandline.ingest.health import Health, Sight, Watch
from strandline.model.frontier import Frontier


def look(watch, now_ms, upper, frontier, **sight):
    return watch.look(now_ms, Sight(Frontier(frontier), Frontier(upper), **sight))


def test_an_ingest_that_moves_or_has_caught_up_is_running():
    watch = Watch(0, stall_ms=30_000)
    for now, upper, frontier in [(10_000, 1, 9), (35_000, 2, 9), (70_000, 9, 9), (200_000, 9, 9)]:
        watch.turned(now, Frontier(upper), Frontier(frontier))
        assert look(watch, now, upper, frontier).health is Health.RUNNING


@pytest.mark.parametrize(
    ("sight", "cause"),
    [
        ({}, "nothing was settled for 31 s"),
        ({"trouble": "no route"}, "no turn has worked for 31 s: no route"),
        ({"busy": "waiting for its input"}, "it has been waiting for its input for 31 s"),
        ({"read_only": True}, "it is read-only, and others have settled nothing for 31 s"),
    ],
)
def test_an_ingest_that_stands_still_says_where_and_why(sight, cause):
    watch = Watch(0, stall_ms=30_000)
    watch.turned(5_000, Frontier(3), Frontier(9))
    watch.turned(20_000, Frontier(3), Frontier(12))
    assert look(watch, 34_999, 3, 12, oldest=4, **sight).health is Health.RUNNING
    status = look(watch, 36_000, 3, 12, oldest=4, **sight)
    assert (status.health, status.oldest, status.cause) == (Health.STALLED, 4, cause)
    shown = "stalled at {3}, input complete up to {12}, oldest buffered time 4: "
    assert str(status) == shown + cause


def test_a_turn_that_never_ends_is_a_stall_although_nothing_is_known_to_be_due():
    watch = Watch(0, stall_ms=30_000)
    watch.turned(1_000, Frontier(9), Frontier(9))
    status = look(watch, 40_000, 9, 9, busy="reading its shards")
    assert status.health is Health.STALLED


@pytest.mark.parametrize("ended", [Health.FENCED, Health.FAILED, Health.CLOSED])
def test_what_has_ended_says_so(ended):
    status = look(Watch(0, 30_000), 99_000, 0, 9, ended=ended, trouble="the reason")
    assert (status.health, status.cause) == (ended, "the reason")
