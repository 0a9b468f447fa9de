"""The binding shard: any number of processes agree on times, and remember them."""

import pytest

from strandline.errors import LeaseLostError
from strandline.ingest.bindings import Bindings
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.testing.lab import new_store


@pytest.fixture
def stores(lab):
    with new_store(lab) as one, new_store(lab) as other:
        yield one, other


def test_what_one_binds_the_other_learns(stores):
    with Bindings(stores[0], "b") as one, Bindings(stores[1], "b") as other:
        assert one.bind({"0": 5}) == Frontier(1)
        assert other.refresh() == Frontier(1)
        assert other.bind({"0": 5}) == Frontier(1), "what has a time gets no other"
        assert other.bind({"0": 7, "1": 2}) == Frontier(2)
        one.refresh()
        for known in (one.known, other.known):
            assert known.position() == {"0": 7, "1": 2}
            assert known.frontier({}) == Frontier(0)
            assert known.frontier({"0": 5}) == Frontier(1)


def test_a_loser_adopts_what_the_winner_bound(stores):
    with Bindings(stores[0], "b") as one, Bindings(stores[1], "b") as other:
        other.refresh()
        one.bind({"0": 5})
        # It still believes that nothing is bound, and offers more.
        assert other.bind({"0": 8}) == Frontier(2)
        assert other.known.frontier({"0": 5}) == Frontier(1)


def test_times_follow_the_stores_clock_and_never_go_back(lab, stores):
    with Bindings(stores[0], "b", times="clock") as bindings:
        assert bindings.bind({"0": 1}) == Frontier(lab.clock.now + 1)
        highest = lab.clock.now
        lab.clock.now -= 60_000
        assert bindings.bind({"0": 2}) == Frontier(highest + 2)
        lab.clock.now += 600_000
        assert bindings.bind({"0": 3}) == Frontier(lab.clock.now + 1)


def test_a_time_is_not_before_the_furthest_target(stores):
    with Bindings(stores[0], "b") as bindings:
        assert bindings.bind({"0": 1}, at_least=Frontier(10)) == Frontier(11)
        assert bindings.known.frontier({}) == Frontier(10)


def test_nothing_is_bound_for_targets_that_are_closed(stores):
    with Bindings(stores[0], "b") as bindings:
        assert bindings.bind({"0": 1}, at_least=Frontier.closed()) == Frontier(0)


def test_a_newcomer_learns_only_what_it_needs(stores):
    with Bindings(stores[0], "b") as one, Bindings(stores[1], "b") as other:
        for end in range(1, 6):
            one.bind({"0": end})
        other.refresh(Frontier(3))
        assert other.known.since == Frontier(3)
        assert other.known.frontier({"0": 3}) == Frontier(3)
        assert other.known.skipped({}, Frontier(3)) == {"0": 3}


def test_history_that_somebody_needs_is_held_and_the_hold_moves_rarely(stores):
    with Bindings(stores[0], "b") as bindings:
        bindings.hold("ingest.t", 0)
        for time in (1, 40, 63):
            bindings.hold("ingest.t", time)
        assert bindings.shard.state().holds["ingest.t"].since == 0
        bindings.hold("ingest.t", 64)
        assert bindings.shard.state().holds["ingest.t"].since == 64


def test_a_writer_that_lost_its_lease_is_replaced(stores):
    with Bindings(stores[0], "b") as bindings:
        bindings.bind({"0": 1})
        bindings.shard.machine.demand(c.Release(writers=(bindings._lent.id,)))
        with pytest.raises(LeaseLostError):
            bindings.bind({"0": 2})
        assert bindings.bind({"0": 2}) == Frontier(2)


def test_a_subscription_that_stands_still_is_replaced(stores):
    with Bindings(stores[0], "b") as one, Bindings(stores[1], "b") as other:
        one.bind({"0": 1})
        other.refresh()
        other._subscription.close()
        other._subscription = None
        one.bind({"0": 2})
        assert other.refresh() == Frontier(2)
        assert other.known.since == Frontier(0), "nothing was missed"
        assert other.known.frontier({"0": 1}) == Frontier(1)
