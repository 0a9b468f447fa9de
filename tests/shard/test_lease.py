"""Tests of one lease, as its holder has it; those of all leases together are in test_leases."""

from __future__ import annotations

import pytest

from strandline.errors import HandleClosedError, LeaseLostError, UsageError
from strandline.testing.lab import Lab


def test_a_shared_pin_is_given_back_by_itself(lab: Lab) -> None:
    machine = lab.machine()
    reader = lab.leases(machine.env).reader(machine, since=0)
    first = reader.pin()
    second = first.share()
    first.give_back()
    assert reader.holds.pins == 1
    assert second.seqno == first.seqno
    second.give_back()
    assert reader.holds.pins == 0


def test_a_reader_without_times_can_not_give_any_up(lab: Lab) -> None:
    machine = lab.machine()
    own = lab.leases(machine.env).own_reader(machine)
    with pytest.raises(UsageError, match="holds no times"):
        own.downgrade(3)


def test_a_lost_heart_is_a_lost_lease_for_readers_and_writers(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader, writer = leases.reader(machine, since=0), leases.writer(machine)
    reader.heart.lost = True  # type: ignore[misc]
    with pytest.raises(LeaseLostError, match="did not renew it in time"):
        reader.pin()
    with pytest.raises(LeaseLostError, match="open a new writer"):
        writer.check()


def test_a_closed_lease_says_so(lab: Lab) -> None:
    machine = lab.machine()
    leases = lab.leases(machine.env)
    reader, writer = leases.reader(machine, since=0), leases.writer(machine)
    reader.close()
    writer.close()
    with pytest.raises(HandleClosedError, match="reader was closed"):
        reader.downgrade(1)
    with pytest.raises(HandleClosedError, match="writer was closed"):
        writer.check()
