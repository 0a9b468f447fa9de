"""Listing increment after increment."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import LeaseLostError, NotAppliedError
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.reading import lister as lister_module
from strandline.reading.lister import Increment, Lister, Range
from strandline.reading.request import Bounds, Request
from strandline.reading.view import Described, described
from strandline.shard import command as c
from strandline.shard.lease import ReadLease
from strandline.shard.machine import Machine
from strandline.shard.state import State
from strandline.testing.lab import Lab

CLOSED = Frontier.closed()


class Bench:
    """A shard, a writer and a reader of it."""

    def __init__(self, lab: Lab) -> None:
        env = lab.env(inline_max_bytes=0)
        self.machine = lab.machine(env=env)
        leases = lab.leases(env)
        self.writer = Writer(self.machine, leases.writer(self.machine))
        self.lease: ReadLease = leases.reader(self.machine, since=0)

    def fill(self, times: int) -> None:
        for _ in range(times):
            self.writer.append(pa.table({"id": [1], "name": ["x"]}))

    def lister(self, as_of: int, until: Frontier = CLOSED, *, snapshot: bool = True) -> Lister:
        return Lister(self.lease, Request(None, None), Range(as_of, until, snapshot))


@pytest.fixture
def bench(lab: Lab) -> Bench:
    return Bench(lab)


def _listed(increment: Increment | None) -> list[tuple[bool, int]]:
    """(as part of the snapshot, owed at), and the pin given back."""
    assert increment is not None
    increment.pin.give_back()
    return [(part.as_of is not None, part.owed) for part in increment.listed.parts]


def test_the_first_increment_has_the_snapshot_and_what_follows_it(bench: Bench) -> None:
    bench.fill(4)
    lister = bench.lister(1)
    first = lister.step()
    assert _listed(first) == [(True, 1), (True, 1), (False, 2), (False, 3)]
    assert first is not None
    assert first.frontier == Frontier(4)
    assert lister.step() is None
    bench.fill(2)
    assert _listed(lister.step()) == [(False, 4), (False, 5)]
    assert bench.lease.holds.pins == 0


def test_nothing_is_listed_before_the_time_is_settled(bench: Bench) -> None:
    lister = bench.lister(2)
    bench.fill(2)
    assert lister.step() is None
    bench.fill(1)
    assert _listed(lister.step()) == [(True, 2)] * 3


@pytest.mark.parametrize("good", [0, 1])
def test_an_increment_that_failed_half_way_is_listed_again_in_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, good: int
) -> None:
    """First it lists the snapshot, then the changes after it; either may fail."""
    bench.fill(3)
    lister = bench.lister(0)
    left = [good]

    def failing(machine: Machine, state: State, request: Request, bounds: Bounds) -> Described:
        if left[0] == 0:
            raise NotAppliedError("the store is away")
        left[0] -= 1
        return described(machine, state, request, bounds)

    monkeypatch.setattr(lister_module, "described", failing)
    with pytest.raises(NotAppliedError):
        lister.step()
    monkeypatch.undo()
    assert bench.lease.holds.pins == 0
    assert _listed(lister.step()) == [(True, 0), (False, 1), (False, 2)]
    assert lister.step() is None


def test_listening_leaves_the_snapshot_out(bench: Bench) -> None:
    bench.fill(3)
    assert _listed(bench.lister(1, snapshot=False).step()) == [(False, 2)]


@pytest.mark.parametrize(("until", "owed"), [(2, [0, 1]), (9, [0, 1, 2]), (0, [])])
def test_s15_what_is_reached_ends_it(bench: Bench, until: int, owed: list[int]) -> None:
    bench.fill(3)
    increment = bench.lister(0, Frontier(until)).step()
    assert [time for _, time in _listed(increment)] == owed
    assert increment is not None
    assert increment.frontier == (Frontier(3) if until == 9 else CLOSED)


def test_a_closed_shard_ends_it(bench: Bench) -> None:
    bench.fill(2)
    nothing = pa.table({"id": [1], "name": ["x"]}).slice(0, 0)
    bench.writer.compare_and_append(nothing, lower=2, upper=None)
    increment = bench.lister(0).step()
    assert _listed(increment) == [(True, 0), (False, 1)]
    assert increment is not None
    assert increment.frontier == CLOSED


def test_s48_a_lost_lease_lists_nothing(bench: Bench) -> None:
    bench.fill(2)
    lister = bench.lister(0)
    bench.machine.demand(c.Release(readers=(bench.lease.id,)))
    with pytest.raises(LeaseLostError):
        lister.step()
