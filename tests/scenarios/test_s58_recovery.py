"""S58, S60: killed anywhere, and the history is the one of a run that was not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest
from tests.scenarios.pipeline_place import NAME, Place, dies, dies_anywhere

from strandline.handles.store import Store
from strandline.journal.handles import Handles
from strandline.journal.log import Journal
from strandline.pipeline.meaning import packed_rows
from strandline.pipeline.rows import staged_rows
from strandline.testing.faults import FailNth
from strandline.testing.simulation import Simulation
from strandline.views.parse import parse

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
    """Killed at every call of a recovery, then at every write of the recovery from that, and of
    the one after it.

    What a kill leaves behind counts by the records and the rows that are there. From one example
    of each of those states the next recovery is killed again.
    """
    _swept((dies_anywhere, dies, dies), most=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_s60_every_call_at_every_depth() -> None:
    _swept((dies_anywhere, dies_anywhere, dies_anywhere), most=100)


def _swept(depths: tuple[Callable[[int], FailNth], ...], most: int) -> None:
    with Simulation(7) as sim:
        place, handle = _left(sim)
        place.until_idle()
        single = place.history(), _open(place, handle)
    assert [each[0] for each in single[0]] == [0, 1]
    assert single[1], "recovery leaves it as it is"
    frontier: list[tuple[FailNth, ...]] = [()]
    for depth, kind in enumerate(depths):
        states: dict[tuple[object, ...], tuple[FailNth, ...]] = {}
        for path in frontier[:most]:
            for nth in count():
                tried = (*path, kind(nth))
                reached, state, found = _killed(tried)
                if not reached:
                    assert nth >= 1
                    break
                assert found == single, f"killed at {[each.nth for each in tried]}"
                states.setdefault(state, tried)
        expected = 4 if depth == 0 else 2
        assert len(states) >= expected, "before its answer, after it, landed, and committed"
        frontier = list(states.values())


def _left(sim: Simulation) -> tuple[Place, str]:
    """What a crash left behind: a transaction that is sealed, and an open handle (S59)."""
    place = _sealed(sim)

    def opened(store: Store) -> str:
        handles = Handles(store.env, NAME)
        handle = handles.open(Journal(store.env, NAME).refresh)
        rows = staged_rows([{"id": 99, "amount": 1}], parse(place.text).tables[0], 0)
        handles.insert(handle, 0, "orders", packed_rows(rows), 1)
        return handle

    return place, str(place.ask(opened))


def _open(place: Place, handle: str) -> bool:
    """Whether a handle is open, with what was staged."""

    def look(store: Store) -> bool:
        found = Handles(store.env, NAME).look(handle)
        return found.closed is None and found.frozen is None and len(found.chunks) == 1

    return bool(place.ask(look))


def _killed(path: tuple[FailNth, ...]) -> tuple[bool, tuple[object, ...], object]:
    """Recover, and die at these calls one life after the other; then recover in peace."""
    with Simulation(7) as sim:
        place, handle = _left(sim)
        plans = [replace(each, seen=0) for each in path]
        for plan in plans:
            place.until_idle(plan)
        state = place.counts()
        place.until_idle()
        reached = plans[-1].reached
        return reached, state, (place.history(), _open(place, handle)) if reached else None
