"""Whether a reader makes progress."""

from __future__ import annotations

import pytest

from strandline.model.frontier import Frontier
from strandline.reading.watch import Health, Sight, Watch

AHEAD = Sight(Frontier(5), Frontier(9), oldest="part p at 5")


def test_a_frontier_that_stands_still_behind_the_upper_is_a_stall_that_names_the_part():
    watch = Watch(0, stall_ms=60_000)
    assert watch.look(0, AHEAD).health is Health.RUNNING
    assert watch.look(59_999, AHEAD).health is Health.RUNNING
    status = watch.look(60_000, AHEAD)
    assert status.health is Health.STALLED
    assert "part p at 5" in status.cause
    assert str(status).startswith("stalled at {5}, settled up to {9}")


@pytest.mark.parametrize(
    ("sight", "health"),
    [
        pytest.param(Sight(Frontier(9), Frontier(9)), Health.RUNNING, id="caught up"),
        pytest.param(Sight(Frontier(5), Frontier(9), ready=True), Health.WAITING, id="consumer"),
        pytest.param(
            Sight(Frontier(5), Frontier(9), oldest="part p at 5", ready=True),
            Health.WAITING,
            id="nobody has begun to take",
        ),
        pytest.param(
            Sight(Frontier(9), Frontier(9), unseen_ms=60_000), Health.STALLED, id="unseen"
        ),
        pytest.param(
            Sight(Frontier(9), Frontier(9), unseen_ms=59_999), Health.RUNNING, id="hiccup"
        ),
        pytest.param(Sight(Frontier(5), Frontier(9), error="gone"), Health.STALLED, id="error"),
        pytest.param(Sight(Frontier(None), Frontier(9), closed=True), Health.CLOSED, id="closed"),
        pytest.param(Sight(Frontier(5), Frontier(9)), Health.STALLED, id="nothing listed"),
    ],
)
def test_ten_minutes_of_the_same_sight(sight, health):
    watch = Watch(0, stall_ms=60_000)
    for now_ms in range(0, 600_000, 1000):
        status = watch.look(now_ms, sight)
    assert status.health is health


def test_a_frontier_that_moves_starts_the_clock_again():
    watch = Watch(0, stall_ms=60_000)
    for time in range(100):
        sight = Sight(Frontier(time), Frontier(1000), oldest=f"p{time}")
        assert watch.look(time * 59_000, sight).health is Health.RUNNING


def test_an_upper_that_nobody_could_look_at_is_not_one_that_was_reached():
    sight = Sight(Frontier(9), Frontier(9), ready=True, unseen_ms=61_000, trouble="store away")
    status = Watch(0, stall_ms=60_000).look(61_000, sight)
    assert (status.health, status.still_ms) == (Health.STALLED, 61_000)
    assert status.cause == "the shard could not be seen for 61 s: store away"


def test_an_error_shows_at_once():
    status = Watch(0, stall_ms=60_000).look(0, Sight(Frontier(5), Frontier(9), error="gone"))
    assert (status.health, status.cause) == (Health.STALLED, "gone")
