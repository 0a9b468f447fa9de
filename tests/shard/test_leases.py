"""Tests of the leases of one process."""

from __future__ import annotations

import gc

import pytest

from strandline.errors import (
    HandleClosedError,
    LeaseLostError,
    NotFoundError,
    SinceError,
    UsageError,
)
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.shard.pulses import begin_pulse
from strandline.shard.state import Retention
from strandline.testing.lab import Lab


def _settled(machine: Machine, upper: int) -> None:
    machine.demand(c.RegisterWriter("w1", "0.0"))
    machine.demand(c.Append("w1", "t", 0, Frontier(upper), None, {}, now_ms=1))


def test_a_reader_is_listed_until_it_is_closed(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0, purpose="a test")
    assert machine.refresh().readers[reader.id].purpose == "a test"
    reader.close()
    reader.close()
    assert machine.refresh().readers == {}
    with pytest.raises(HandleClosedError):
        reader.pin()


def test_a_reader_below_since_is_refused_with_the_oldest_time(lab: Lab) -> None:
    machine = lab.machine()
    _settled(machine, 10)
    machine.demand(c.Retain(Retention(None, 1)))
    machine.demand(c.AdvanceSince(now_ms=1))
    leases = lab.leases(machine.env)
    with pytest.raises(SinceError, match="oldest time that can be read is 9") as caught:
        leases.reader(machine, since=3)
    assert caught.value.oldest == 9
    assert leases.reader_from(machine, since=None, lease_ms=None, purpose="").since == 9


def test_s44_downgrades_are_lazy_unless_asked_to_be_durable(lab: Lab) -> None:
    machine = lab.machine()
    _settled(machine, 10)
    reader = lab.leases(machine.env).reader(machine, since=0)
    reader.downgrade(4)
    assert machine.refresh().readers[reader.id].since == 0
    reader.downgrade(6, durable=True)
    assert machine.refresh().readers[reader.id].since == 6
    with pytest.raises(UsageError, match="cannot move since back from 6 to 5"):
        reader.downgrade(5)


def test_r10_holds_stay_where_they_are_once_their_heart_is_not_ours(lab: Lab) -> None:
    machine = lab.machine()
    _settled(machine, 10)
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0)
    reader.downgrade(4)
    reader.heart.lost = True  # So it is in a forked child.
    leases.sync(machine)
    assert machine.refresh().readers[reader.id].since == 0


def test_s45_many_downgrades_are_one_commit(lab: Lab) -> None:
    machine = lab.machine()
    _settled(machine, 20_000)
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0)
    before = machine.refresh().seqno.number
    for since in range(10_000):
        reader.downgrade(since)
    leases.sync(machine)
    leases.sync(machine)
    assert machine.refresh().seqno.number == before + 1


def test_a_pin_gives_a_state_at_or_after_it(lab: Lab) -> None:
    ours, theirs = lab.machine(), lab.machine()
    reader = lab.leases(ours.env).reader(ours, since=0)
    theirs.demand(c.Fence(3))
    pin = reader.pin()
    state = pin.state()
    assert state.epoch == 3
    assert state.seqno.number >= pin.seqno
    pin.give_back()
    pin.give_back()
    assert reader.holds.pins == 0


def test_a_pin_that_nobody_gives_back_is_noticed(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0)
    reader.pin()
    gc.collect()
    leases.sync(machine)
    assert reader.holds.pins == 0


def test_a_reader_that_others_dropped_is_lost_for_ever(lab: Lab) -> None:
    machine = lab.machine()
    reader = lab.leases(machine.env).reader(machine, since=0)
    other = lab.machine()
    other.demand(c.Expire(frozenset({reader.heart.pulse_id})))
    with pytest.raises(LeaseLostError, match=reader.id):
        reader.pin().state()
    with pytest.raises(LeaseLostError, match="open a new reader"):
        reader.check()
    assert machine.env.metrics.value("leases_lost", "orders") == 1


def test_a_lost_reader_does_not_keep_its_neighbours_from_moving(lab: Lab) -> None:
    machine = lab.machine()
    _settled(machine, 10)
    leases = lab.leases(machine.env)
    lost, kept = leases.reader(machine, since=0), leases.reader(machine, since=0)
    lab.machine().demand(c.Release(readers=(lost.id,)))
    lost.downgrade(3)
    kept.downgrade(5)
    leases.sync(machine)
    assert machine.refresh().readers[kept.id].since == 5
    with pytest.raises(LeaseLostError):
        lost.check()


def test_s47_a_forgotten_reader_is_given_back_at_the_next_tick(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    leases.reader(machine, since=0)
    gc.collect()
    leases._tick()
    assert machine.refresh().readers == {}


def test_s47_a_reader_that_is_forgotten_while_others_are_given_back_is_so_too(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0)
    leave_a_note = leases.forgotten.append  # So far a finaliser is, when the tick comes.
    leases._tick()
    leave_a_note((machine, c.Release(readers=(reader.id,))))
    leases._tick()
    assert machine.refresh().readers == {}


def test_s53_a_clone_has_its_own_id_and_outlives_the_original(lab: Lab) -> None:
    machine = lab.machine()
    _settled(machine, 10)
    reader = lab.leases(machine.env).reader(machine, since=4)
    clone = reader.clone("copy")
    reader.close()
    assert clone.id != reader.id
    assert machine.refresh().readers[clone.id].since == 4


def test_the_process_has_one_reader_of_its_own_per_shard(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    own = leases.own_reader(machine)
    assert leases.own_reader(machine) is own
    assert machine.refresh().readers[own.id].since is None
    lab.machine().demand(c.Release(readers=(own.id,)))
    with pytest.raises(LeaseLostError):
        own.pin().state()
    assert leases.own_reader(machine) is not own


def test_closing_gives_everything_back(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    held = [leases.reader(machine, since=0), leases.own_reader(machine)]
    lab.opened.clear()
    leases.close()
    assert machine.refresh().readers == {}
    assert len(held) == 2


def test_the_dead_are_buried_with_their_readers_and_writers(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0)
    machine.demand(c.RegisterReader("r9", "99.0", 0))  # a pulse that never was
    machine.demand(c.RegisterWriter("w9", "99.0"))
    leases.bury(machine)
    state = machine.refresh()
    assert set(state.readers) == {reader.id}
    assert state.writers == {}


def test_a_writer_is_listed_until_it_is_closed(lab: Lab) -> None:
    machine = lab.machine()
    writer = lab.leases(machine.env).writer(machine)
    assert writer.id in machine.refresh().writers
    writer.close()
    assert machine.refresh().writers == {}
    with pytest.raises(HandleClosedError):
        writer.check()


def test_nothing_ends_the_background_task(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0)

    def broken() -> None:
        raise ZeroDivisionError

    reader.heart.tend = broken  # type: ignore[method-assign]
    leases._tick()
    assert machine.env.metrics.value("lease_errors") == 1


def test_a_pulse_that_no_shard_refers_to_is_looked_at_too(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    leases.reader(machine, since=0)
    begin_pulse(machine.env.consensus, machine.env.random, lease_ms=10, owner="a zombie")
    seen: list[set[str]] = []
    over = leases.undertaker.over
    leases.undertaker.over = lambda pulses: (seen.append(set(pulses)), over(pulses))[1]  # type: ignore[method-assign]
    for _ in range(20):
        leases._tick()
    assert any("1.0" in pulses for pulses in seen)


def test_a_reader_of_a_dropped_shard_does_not_go_on_in_its_successor(lab: Lab) -> None:
    machine = lab.machine()
    reader = lab.leases(machine.env).reader(machine, since=0)
    pin = reader.pin()
    machine.demand(c.Drop())
    lab.machine()
    with pytest.raises(NotFoundError, match="created anew"):
        pin.state()


def test_r26_a_term_is_buried_by_anybody_after_its_end_and_by_nobody_before(lab: Lab) -> None:
    planner, other = lab.machine(), lab.machine()
    _settled(planner, 10)
    hold = lab.leases(planner.env).term_reader(planner, since=4, term_ms=1_000, purpose="a plan")
    lab.close()
    lab.opened.clear()
    leases = lab.leases(other.env)
    for now in (hold.until_ms - 1, 5, hold.until_ms - 1):
        lab.clock.now = now
        other.refresh()
        leases.bury(other)
        assert other.refresh().terms() == {hold.id: hold.until_ms}
    lab.clock.now = hold.until_ms
    leases.bury(other)
    assert other.refresh().readers == {}


def test_a_shard_without_terms_costs_no_look_at_the_clock(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader = leases.reader(machine, since=0)
    looks: list[int] = []
    object.__setattr__(machine.env.consensus, "_now_ms", lambda: looks.append(1) or 5)
    leases.bury(machine)
    assert looks == []
    reader.close()
