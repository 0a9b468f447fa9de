"""How several workers stop together."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from strandline.errors import InvariantError
from strandline.reading.stop import Stop


def test_s08_a_local_press_lets_nobody_go():
    stop = Stop(2)
    stop.press(0)
    for _ in range(1000):
        assert not stop.may_take(0)
        assert not stop.may_let_go(0)
    assert stop.may_take(1)
    assert stop.missing() == (1,)
    stop.press(1)
    assert stop.all_pressed
    assert stop.may_let_go(0)
    assert stop.may_let_go(1)


@given(st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1)))))
def test_somebody_may_let_go_exactly_when_all_have_pressed(case):
    workers, presses = case
    stop = Stop(workers)
    pressed = set()
    for worker in presses:
        stop.press(worker)
        pressed.add(worker)
        everybody = pressed == set(range(workers))
        assert [stop.may_let_go(w) for w in range(workers)] == [everybody] * workers
        assert [stop.pressed(w) for w in range(workers)] == [w in pressed for w in range(workers)]
        assert set(stop.missing()) == set(range(workers)) - pressed


def test_pressing_all_presses_every_one():
    stop = Stop(3)
    stop.press_all()
    assert stop.missing() == ()


def test_a_reader_without_workers_is_refused():
    with pytest.raises(InvariantError):
        Stop(0)
