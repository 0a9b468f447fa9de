"""The books of a subscription."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.errors import CorruptionError
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.reading.accounts import Accounts
from strandline.reading.events import Progress, Updates
from strandline.reading.lister import Lister, Range
from strandline.reading.request import Request
from strandline.shard.lease import ReadLease
from strandline.testing.lab import Lab

ROWS = pa.table({"id": [1], "_time": [0], "_diff": [1]})


@pytest.fixture
def case(lab: Lab):
    env = lab.env(inline_max_bytes=0)
    machine = lab.machine(env=env)
    leases = lab.leases(env)
    writer = Writer(machine, leases.writer(machine))
    for _ in range(3):
        writer.append(pa.table({"id": [1], "name": ["x"]}))
    lease: ReadLease = leases.reader(machine, since=0)
    increment = Lister(
        lease, Request(None, None), Range(0, Frontier.closed(), snapshot=True)
    ).step()
    assert increment is not None
    books = Accounts(env.tasks.condition(), 0, budget=0)
    books.hold(lease)
    books.take_in(increment)
    increment.pin.give_back()
    return books, lease


def test_what_is_given_out_while_the_lease_goes_back_is_no_error(case, monkeypatch) -> None:
    books, lease = case
    for part in books.take_all():
        books.arrived(part)
    downgrade = lease.downgrade

    def closed_just_now(since: int) -> None:
        lease.close()
        downgrade(since)

    monkeypatch.setattr(lease, "downgrade", closed_just_now)
    with books.changed:
        ready = books.hand_out()
    assert ready is not None
    assert ready[0] == Progress(Frontier(3))
    assert books.given == Frontier(3)


def test_s04_a_pin_goes_back_with_its_own_bytes_whatever_the_order(case) -> None:
    books, lease = case
    first, second, third = books.take_all()
    assert lease.holds.pins == 3
    for part, pins, frontier in ((third, 2, 0), (second, 1, 0), (first, 0, 3)):
        books.arrived(part, ROWS)
        books.arrived(part, ROWS)
        assert lease.holds.pins == pins
        assert books.frontier == Frontier(frontier)
    kinds = []
    for given, since in ((0, 0), (0, 0), (0, 0), (3, 2)):
        with books.changed:
            ready = books.hand_out()
        assert ready is not None
        kinds.append(type(ready[0]))
        assert (books.given, lease.since) == (Frontier(given), since)
    assert kinds == [Updates, Updates, Updates, Progress]
    with books.changed:
        assert books.hand_out() is None


def test_with_workers_elsewhere_what_has_arrived_is_given(case) -> None:
    books, lease = case
    with books.changed:
        books.go_abroad()
    parts = books.take_all()
    for part, given in zip(parts, (1, 2, 3), strict=True):
        assert books.given == Frontier(given - 1)
        books.arrived(part)
        assert books.given == Frontier(given)
    assert lease.since == 2


def test_whose_turn_it_is_shows_in_the_books(case) -> None:
    books, _ = case
    assert books.sight(Frontier(3)).ready, "nobody has begun to fetch"
    first, *others = books.take_all()
    assert not books.sight(Frontier(3)).ready
    books.arrived(first, ROWS)
    assert books.sight(Frontier(3)).ready, "rows wait"
    with books.changed:
        books.go_abroad()
    for part in others:
        books.arrived(part)
    assert not books.sight(Frontier(3)).ready, "workers need not poll"


def test_s03_what_failed_stays_pinned_and_since_does_not_pass_it(case) -> None:
    books, lease = case
    first, second, third = books.take_all()
    books.failed(second, CorruptionError("gone"))
    assert books.take_error(early=False) is None
    books.arrived(first)
    books.arrived(third)
    assert books.frontier == Frontier(1)
    assert (lease.holds.pins, lease.since) == (1, 0)
    assert str(books.take_error(early=False)) == "gone"
    assert books.take_error(early=False) is None
    assert "gone" in books.sight(Frontier(3)).error


def test_letting_go_gives_everything_back(case) -> None:
    books, lease = case
    (first, *_) = books.take_all()
    books.let_go()
    books.let_go()
    assert lease.holds.pins == 0
    assert (books.frontier, books.given) == (Frontier.closed(), Frontier(0))
    assert not books.arrived(first, ROWS)
    with books.changed:
        assert books.next_ready() is None


def test_a_part_that_is_given_back_is_the_next_one_until_it_has_arrived(case) -> None:
    books, lease = case
    first, second, third = books.take_all()
    books.arrived(second)
    for part in (first, second, first):
        books.give_back(part)
    assert lease.holds.pins == 2
    assert [part.id for part in books.take_all()] == [first.id]
    books.arrived(first)
    assert books.frontier == Frontier(third.owed)
    books.let_go()
    books.give_back(third)
    assert books.backlog == 0
