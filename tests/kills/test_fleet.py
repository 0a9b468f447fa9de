"""Replicas in processes of their own: what is killed is gone, and nobody else is."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.kills.fleet import Fleet, Life
from tests.kills.killing import Killing, Plan
from tests.kills.shop import program

from strandline.system import SystemTasks

pytestmark = pytest.mark.process


def until(holds) -> None:
    """Wait as long as the test's own timeout allows."""
    while not holds():
        SystemTasks().sleep(10)


def test_a_replica_runs_until_it_is_killed_or_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(program())
    fleet = Fleet(tmp_path / "said")

    def start(*more: str) -> Life:
        words = ["run", str(file), "--store", str(tmp_path / "lake"), "--rows", "5", "--delay", "0"]
        return fleet.start("arrow", [*words, "--json", *more])

    try:
        first = start()
        until(first.ran)
        first.kill()
        assert not first.alive()
        assert not first.ended_well()
        first.signal(signal.SIGKILL)  # Whoever has its number now is not meant.
        second = start("--transactions", "2")
        until(lambda: not second.alive())
        assert second.ended_well(), second.last_words()
        third = start("--rows", "nothing")
        until(lambda: not third.alive())
        assert third.events() == [{"kind": "exit", "code": 2}]
        assert "--rows" in third.last_words()
        last = start()
        until(last.ran)
    finally:
        fleet.close()
    assert not last.alive()


def test_a_replica_that_ends_by_itself_is_a_difference(tmp_path: Path) -> None:
    run = Killing(tmp_path, Plan(kills=1, transactions=1))
    (tmp_path / "shop.sql").write_text("CREATE TABLE t (k INT) USING nowhere;")
    outcome = run.run()
    assert any("ended by itself" in each or "in order" in each for each in outcome.wrong)
