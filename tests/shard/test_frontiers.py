"""Tests of how far a shard is settled, as its readers may see it."""

from __future__ import annotations

import pytest

from strandline.errors import CancelledError, NotAppliedError, NotFoundError
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.cancel import Cancel
from strandline.shard.frontiers import visible, wait_past
from strandline.testing.lab import Client, Lab, rows


def test_waiting_for_an_attached_shard_waits_for_its_timeline(lab: Lab) -> None:
    ours = Client(lab)
    ours.attach()
    with ours.own() as owner:
        owner.stage("orders", rows(1))
        with pytest.raises(NotAppliedError, match="not settled past 0"):
            wait_past(ours.machines["orders"], 0, timeout_ms=1)
        owner.commit()
        upper, state = wait_past(ours.machines["orders"], 0)
    assert upper == Frontier(1)
    assert sum(batch.rows for batch in state.batches) == 1


def test_an_uncommitted_append_does_not_show_in_the_upper(lab: Lab) -> None:
    ours, theirs = Client(lab), Client(lab)
    ours.attach()
    with ours.own() as owner:
        owner.stage("orders", rows(1))
        assert theirs.machines["orders"].refresh().upper == Frontier(1)
        assert visible(theirs.machines["orders"])[0] == Frontier(0)


def test_the_timeline_is_read_before_the_state(lab: Lab) -> None:
    """A commit between the two reads must not show a frontier without its rows."""
    ours, theirs = Client(lab), Client(lab)
    ours.attach()
    owner = ours.own()
    machine = theirs.machines["orders"]
    machine.refresh()
    refresh = machine.refresh

    def committed_meanwhile() -> object:
        if owner.committed == Frontier(0):
            owner.stage("orders", rows(1))
            owner.commit()
        return refresh()

    machine.refresh = committed_meanwhile  # type: ignore[method-assign,assignment]
    upper, state = visible(machine)
    assert upper == Frontier(0)
    assert sum(batch.rows for batch in state.batches) == 1
    owner.close()


def test_waiting_can_be_cancelled(lab: Lab) -> None:
    machine = lab.machine()
    cancel = Cancel(machine.env.tasks.event())
    cancel.cancel()
    with pytest.raises(CancelledError, match="orders"):
        wait_past(machine, 3, cancel=cancel)


def test_a_dropped_shard_is_not_found(lab: Lab) -> None:
    machine = lab.machine()
    machine.demand(c.Drop())
    with pytest.raises(NotFoundError, match="dropped"):
        visible(machine)


def test_a_wait_ends_when_the_shard_was_created_anew(lab: Lab) -> None:
    machine = lab.machine()
    before = machine.refresh().id
    machine.demand(c.Drop())
    lab.machine()
    with pytest.raises(NotFoundError, match="created anew"):
        wait_past(machine, 3, shard_id=before)
