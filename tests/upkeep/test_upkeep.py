"""Upkeep in the background: it starts, it stops, and one shard's trouble is its own."""

from __future__ import annotations

from strandline.upkeep.units import rows_pile_up
from strandline.upkeep.upkeep import Upkeep

from .upkeep_lab import Table


def wait_until(table, ready):
    """Looks until it is so; the test's own time limit ends it if it never is."""
    while not ready():
        table.env.tasks.sleep(5)


def test_appends_are_looked_after_in_the_background(lab):
    table = Table(lab, inline_max_bytes=0, upkeep_ms=5)
    table.retain(count=1)
    upkeep = Upkeep(table.env, table.leases)
    upkeep.start()
    for n in range(12):
        table.append((n, "x", 1))
        upkeep.nudge(table.machine)
    wait_until(table, lambda: len(table.parts()) <= 8 and not table.state.garbage)
    wait_until(table, lambda: table.state.readable_from() == 11)
    upkeep.stop()
    table.check()
    assert upkeep.status()["orders"].rounds > 0


def test_errors_of_one_shard_are_remembered_and_keep_no_other_from_its_round(lab):
    bad = Table(lab, name="bad", inline_max_bytes=0, upkeep_ms=5)
    good = Table(lab, name="good", env=bad.env, leases=bad.leases)
    for table in (bad, good):
        table.env = bad.env
        for n in range(12):
            table.append((n, "x", 1))
    for part in bad.parts():
        lab.blob.delete(part.key)
    upkeep = Upkeep(bad.env, bad.leases)
    upkeep.nudge(bad.machine)
    upkeep.nudge(good.machine)
    upkeep.start()
    wait_until(good, lambda: {"bad", "good"} <= set(upkeep.status()))
    upkeep.stop()
    assert "missing" in upkeep.status()["bad"].last_error
    assert upkeep.status()["bad"].errors > 0
    assert upkeep.status()["good"].errors == 0
    assert bad.env.metrics.value("upkeep_errors", "bad") > 0
    good.check()


def test_stopping_twice_and_without_start_is_harmless(lab):
    table = Table(lab)
    upkeep = Upkeep(table.env, table.leases)
    upkeep.stop()
    upkeep.start()
    upkeep.start()
    upkeep.stop()
    upkeep.stop()


def test_an_unforeseen_error_is_counted_and_ends_nobodys_upkeep(lab, monkeypatch):
    bad = Table(lab, name="bad", upkeep_ms=5)
    good = Table(lab, name="good", env=bad.env, leases=bad.leases)

    def refresh():
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(bad.machine, "refresh", refresh)
    upkeep = Upkeep(bad.env, bad.leases)
    upkeep.nudge(bad.machine)
    upkeep.nudge(good.machine)
    upkeep.start()
    wait_until(good, lambda: {"bad", "good"} <= set(upkeep.status()))
    before = upkeep.status()["good"].rounds
    upkeep.nudge(good.machine)
    wait_until(good, lambda: upkeep.status()["good"].rounds > before)
    upkeep.stop()
    assert upkeep.status()["bad"].errors > 0
    assert upkeep.status()["bad"].last_error == "RuntimeError: can't start new thread"
    assert upkeep.status()["good"].errors == 0


def test_rows_that_pile_up_are_moved_without_waiting_for_the_next_pause(lab):
    table = Table(lab, upkeep_ms=3_600_000, inline_flush_batches=4)
    upkeep = Upkeep(table.env, table.leases)
    upkeep.start()
    for n in range(8):
        table.append((n, "x", 1))
        upkeep.nudge(table.machine)
    # A round that begins in their middle may leave a few behind: too few to be moved at once.
    wait_until(table, lambda: not rows_pile_up(table.state, table.env.settings))
    upkeep.stop()
    assert upkeep.status()["orders"].rounds > 0
