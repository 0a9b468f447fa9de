"""Tests of how transitions are committed."""

from __future__ import annotations

import pytest

from strandline.errors import (
    CancelledError,
    FencedError,
    LeaseLostError,
    MaybeAppliedError,
    NotAppliedError,
    NotFoundError,
    SinceError,
    UsageError,
)
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.cancel import Cancel
from strandline.shard.machine import Machine, raise_refusal
from strandline.store.consensus import CasResult, Versioned
from strandline.testing.lab import Lab


class Trouble:
    """A Consensus whose next compare-and-sets go wrong as told: (happens, error)."""

    def __init__(self, inner: object, script: list[tuple[bool, type[Exception] | None]]) -> None:
        self.inner = inner
        self.script = script
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        self.calls += 1
        happens, error = self.script.pop(0) if self.script else (True, None)
        result = self.inner.compare_and_set(key, new) if happens else CasResult.MISMATCH
        if error is not None:
            raise error("planted")
        return result


def _troubled(lab: Lab, script: list[tuple[bool, type[Exception] | None]]) -> Machine:
    machine = lab.machine()
    env = machine.env
    object.__setattr__(env, "consensus", Trouble(env.consensus, script))
    return machine


def _append(machine: Machine, token: str, lower: int) -> c.Outcome:
    command = c.Append("w1", token, lower, Frontier(lower + 1), None, {}, now_ms=5)
    return machine.commit(command)[0]


def test_a_commit_is_seen_by_another_process(lab: Lab) -> None:
    ours, theirs = lab.machine(), lab.machine()
    ours.demand(c.RegisterWriter("w1", "0.0"))
    assert "w1" in theirs.refresh().writers


def test_a_lost_race_is_decided_again_on_what_won(lab: Lab) -> None:
    ours, theirs = lab.machine(), lab.machine()
    ours.demand(c.RegisterWriter("w1", "0.0"))
    assert isinstance(_append(ours, "a", 0), c.Changed)
    # Their cached state is old; the mismatch must name the upper that is there now.
    theirs.commit(c.RegisterWriter("w2", "0.0"))
    command = c.Append("w2", "b", 0, Frontier(1), None, {}, now_ms=5)
    assert theirs.commit(command)[0] == c.UpperMismatch(Frontier(1))
    assert theirs.env.metrics.value("conflicts", "orders") == 1


def test_a_mismatch_on_an_old_view_is_looked_up_before_it_is_reported(lab: Lab) -> None:
    ours, theirs = lab.machine(), lab.machine()
    ours.demand(c.RegisterWriter("w1", "0.0"))
    theirs.refresh()
    _append(ours, "a", 0)
    # Time 1 is EARLY for their cached view and DUE in truth.
    assert isinstance(_append(theirs, "b", 1), c.Changed)


@pytest.mark.parametrize(
    ("happens", "error"),
    [(True, MaybeAppliedError), (False, MaybeAppliedError), (False, NotAppliedError)],
)
def test_an_append_of_unknown_fate_counts_once(
    lab: Lab, *, happens: bool, error: type[Exception]
) -> None:
    machine = _troubled(lab, [])
    machine.demand(c.RegisterWriter("w1", "0.0"))
    machine.env.consensus.script[:] = [(happens, error)]  # type: ignore[attr-defined]
    outcome = _append(machine, "a", 0)
    assert isinstance(outcome, c.Unchanged if happens else c.Changed)
    state = lab.machine().refresh()
    assert state.upper == Frontier(1)
    assert state.writers["w1"].token == "a"
    assert len(state.moments) == 1


def test_an_outcome_that_can_not_be_decided_raises_maybe(lab: Lab) -> None:
    env = lab.env(commit_deadline_ms=0)
    machine = lab.machine(env=env)
    machine.demand(c.RegisterWriter("w1", "0.0"))
    object.__setattr__(env, "consensus", Trouble(env.consensus, [(True, MaybeAppliedError)]))
    with pytest.raises(MaybeAppliedError):
        _append(machine, "a", 0)


def test_a_shard_that_does_not_exist_is_named(lab: Lab) -> None:
    machine = Machine(lab.env(), "nowhere")
    with pytest.raises(NotFoundError, match="nowhere"):
        machine.refresh()
    with pytest.raises(NotFoundError, match="nowhere"):
        machine.commit(c.Fence(1))


def test_waiting_ends_when_ready_by_time_or_by_cancel(lab: Lab) -> None:
    machine = lab.machine()
    assert machine.wait_for(lambda state: True).name == "orders"
    with pytest.raises(NotAppliedError, match="not yet after 1 ms"):
        machine.wait_for(lambda state: False, timeout_ms=1)
    cancel = Cancel(machine.env.tasks.event())
    cancel.cancel()
    with pytest.raises(CancelledError):
        machine.wait_for(lambda state: False, cancel=cancel)


def test_a_commit_of_this_process_wakes_a_waiter(lab: Lab) -> None:
    machine = lab.machine()
    tasks = machine.env.tasks
    seen: list[int] = []
    task = tasks.start(
        "waiter",
        lambda: seen.append(machine.wait_for(lambda s: s.epoch == 3).epoch),
    )
    machine.demand(c.Fence(3))
    assert task.join(5_000)
    assert seen == [3]


def test_s50_nobody_waits_for_a_neighbour_that_is_stuck(lab: Lab) -> None:
    env = lab.env(turn_ms=10)
    machine = lab.machine(env=env)
    assert machine._take_turn()  # a neighbour takes its turn and never gives it back
    machine.demand(c.Fence(2))
    assert machine.state.epoch == 2


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (c.Lost(("r1",)), LeaseLostError),
        (c.Fenced(4), FencedError),
        (c.SincePassed(Frontier(9)), SinceError),
        (c.Refused("it is odd"), UsageError),
        (c.Refused("it was dropped"), NotFoundError),
    ],
)
def test_refusals_become_errors_that_name_the_shard(
    outcome: c.Outcome, error: type[Exception]
) -> None:
    with pytest.raises(error, match="shard orders"):
        raise_refusal("orders", outcome)


def test_an_append_of_a_writer_that_expired_meanwhile_is_in_doubt_and_not_refused(
    lab: Lab,
) -> None:
    # It counted, its answer was lost, and with its writer its token went: nobody can tell.
    ours, theirs = _troubled(lab, []), lab.machine()
    ours.demand(c.RegisterWriter("w1", "0.0"))

    class Expiring(Trouble):
        def compare_and_set(self, key: str, new: Versioned) -> CasResult:
            try:
                return super().compare_and_set(key, new)
            finally:
                theirs.commit(c.Expire(frozenset({"0.0"})))

    inner = lab.consensus.client()
    object.__setattr__(ours.env, "consensus", Expiring(inner, [(True, MaybeAppliedError)]))
    with pytest.raises(MaybeAppliedError):
        _append(ours, "a", 0)
    assert theirs.refresh().upper == Frontier(1)
    # Without a doubt it is refused.
    object.__setattr__(ours.env, "consensus", inner)
    assert isinstance(_append(ours, "b", 1), c.Lost)


def test_s46_who_was_overtaken_looks_first_until_it_is_alone_again(lab: Lab) -> None:
    ours, theirs = lab.machine(), lab.machine()
    for epoch in range(1, 40):
        (ours if epoch % 2 else theirs).demand(c.Fence(epoch))
    overtaken = [m.env.metrics.value("conflicts", "orders") for m in (ours, theirs)]
    assert max(overtaken) <= 1
    for epoch in range(40, 80):
        ours.demand(c.Fence(epoch))
    scanned: list[str] = []
    scan = ours.env.consensus.scan
    ours.env.consensus.scan = lambda *page: scanned.append("scan") or scan(*page)  # type: ignore[method-assign]
    ours.demand(c.Fence(80))
    assert scanned == []
