"""The listing half of a subscription."""

from __future__ import annotations

import pytest

from strandline.errors import NotAppliedError
from strandline.handles.write import Writer
from strandline.model.frontier import Frontier
from strandline.reading.accounts import Accounts
from strandline.reading.follow import Follower, Hooks
from strandline.reading.lister import Increment, Lister, Range
from strandline.reading.request import Request
from strandline.testing.lab import Lab, rows


class Failing(Lister):
    """Fails so many times, and notes what is known of it each time."""

    failures = 0

    def step(self) -> Increment | None:
        if self.failures:
            self.failures -= 1
            raise NotAppliedError(f"away, {self.failures} to go")
        return super().step()


class Desk:
    """A shard with three times, and a follower that stops where they end."""

    def __init__(self, lab: Lab) -> None:
        env = lab.env()
        self.machine = lab.machine(env=env)
        leases = lab.leases(env)
        writer = Writer(self.machine, leases.writer(self.machine))
        for number in range(3):
            writer.append(rows(number))
        lease = leases.reader(self.machine, since=0)
        times = Range(0, Frontier(3), snapshot=True)
        self.lister = Failing(lease, Request(None, None), times)
        self.accounts = Accounts(env.tasks.condition(), 0, budget=0)
        self.found: list[Increment] = []
        self.seen: list[str] = []
        self.full = 0
        hooks = Hooks(full=self._is_full, found=self.found.append, look=self._look)
        self.follower = Follower(self.machine, self.lister, self.accounts, hooks=hooks)

    def _is_full(self) -> bool:
        self.full -= 1
        return self.full >= 0

    def _look(self) -> None:
        self.seen.append(self.follower.unseen()[1])


@pytest.fixture
def desk(lab: Lab) -> Desk:
    return Desk(lab)


def test_an_outage_is_outlasted_and_named_while_it_lasts(desk: Desk) -> None:
    desk.lister.failures = 2
    desk.follower.run(None)
    assert desk.seen == ["", "away, 1 to go", "away, 0 to go"]
    assert [len(increment.listed.parts) for increment in desk.found] == [3]
    assert desk.follower.upper == Frontier(3)
    assert desk.follower.unseen() == (0, "")


def test_nothing_is_listed_while_there_is_no_room(desk: Desk) -> None:
    desk.full = 3
    desk.follower.run(None)
    assert len(desk.seen) == 4
    assert len(desk.found) == 1


def test_it_waits_for_the_signal_and_not_for_ever(desk: Desk) -> None:
    answers = [True, False, False]
    desk.follower.run(answers.pop)
    assert (answers, len(desk.found)) == ([], 1)
    desk.accounts.let_go()
    desk.follower.run(lambda: False)
    assert len(desk.found) == 1
