"""S56, S58, S60, S63: killed anywhere, and the history is the one of a run that was not."""

from __future__ import annotations

from itertools import count

import pytest
from tests.scenarios.pipeline_place import NAME, Place, dies

from strandline.journal.log import Journal
from strandline.testing.simulation import Simulation

JOURNAL = f"journal/{NAME}"


def _sealed(sim: Simulation) -> Place:
    """One transaction is committed, a second one is sealed, and nobody is left."""
    place = Place(sim)
    place.send(1, 2, 3)
    place.until_sealed(0)
    place.until_idle()
    place.lives = 1
    place.send(2, 3)
    place.until_sealed(1)
    return place


def _sealed_time(place: Place) -> object:
    return place.ask(lambda store: Journal(store.env, NAME).refresh().sealed)


@pytest.mark.parametrize("after", [False, True])
def test_s58_a_crash_around_the_seal_loses_and_doubles_nothing(after) -> None:
    with Simulation(1) as sim:
        place = Place(sim)
        place.send(1, 2, 3)
        # The first entry founds the pipeline, the second one seals.
        assert not place.until_idle(dies(1, after=after, key=JOURNAL))
        assert (_sealed_time(place) is not None) == after
        place.send(5, 7)
        assert place.until_idle()
        history = place.history()
    first, second = history
    sealed = {"0": (0, 1), "1": (0, 2)}
    assert first[1] == [("orders", sealed)], "exactly what was sealed, and no more"
    assert second[1] == [("orders", {"1": (2, 4)})]


def test_s60_a_crash_while_recovering_changes_nothing_up_to_depth_3() -> None:
    """Killed at every write of a recovery, of the recovery from that, and of the one after it.

    What a kill leaves behind counts by the records and the rows that are there. From one example
    of each of those states the next recovery is killed at every write again.
    """
    with Simulation(7) as sim:
        place = _sealed(sim)
        place.until_idle()
        single = place.history()
    assert [each[0] for each in single] == [0, 1]
    frontier: list[tuple[int, ...]] = [()]
    for depth in (1, 2, 3):
        states: dict[tuple[object, ...], tuple[int, ...]] = {}
        for path in frontier:
            for nth in count():
                reached, state, history = _killed((*path, nth))
                if not reached:
                    assert nth >= 1
                    break
                assert history == single, f"killed at the writes {(*path, nth)}"
                states.setdefault(state, (*path, nth))
        assert len(states) >= (3 if depth == 1 else 2), "before it landed, after it, and committed"
        frontier = list(states.values())


def _killed(path: tuple[int, ...]) -> tuple[bool, tuple[object, ...], list[tuple[object, ...]]]:
    """Recover, and die at these writes one life after the other; then recover in peace."""
    with Simulation(7) as sim:
        place = _sealed(sim)
        for nth in path:
            plan = dies(nth)
            place.until_idle(plan)
        state = place.counts()
        place.until_idle()
        return plan.reached, state, place.history() if plan.reached else []


@pytest.mark.parametrize("seed", [1, 2])
def test_s63_small_transactions_survive_a_crash_at_any_point(seed: int) -> None:
    """And S56: every life comes back to running, and what it computes again is the same."""
    with Simulation(seed) as sim:
        place = Place(sim)
        kills = sim.stream("kills")
        for life in range(1, 26):
            place.send(*(kills.randrange(8) for _ in range(4)))
            place.until_idle(dies(kills.randrange(25), after=kills.random() < 0.5))
            place.lives = life
        assert place.until_idle()
        history = place.history()
        expected: dict[int, bytes] = {}
        for t, taken, _, _, rows in history:
            for partition, (start, stop) in taken[0][1].items():
                for offset in range(start, stop):
                    key, value = place.topic.record(partition, offset)
                    expected[int(key)] = value
            assert {row["id"] for row in rows} == set(expected), f"at {t}"
        ends = {p: max(e[1][0][1].get(p, (0, 0))[1] for e in history) for p in ("0", "1")}
    assert [each[0] for each in history] == list(range(len(history)))
    assert ends == place.topic.ends
    assert len(history) >= 25
