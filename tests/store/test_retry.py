"""Backoff: growing, capped, spread."""

from __future__ import annotations

from itertools import islice

import pytest

from strandline.store.retry import Backoff


class _Highest:
    def token(self) -> str:
        return "0" * 32

    def uniform(self, low: float, high: float) -> float:
        assert low <= high
        return high


def test_delays_grow_to_the_cap_and_are_spread_around_the_middle():
    backoff = Backoff(first_ms=10, factor=3, cap_ms=200, spread=0.2)
    assert [*islice(backoff.delays(_Highest()), 5)] == pytest.approx([12, 36, 108, 240, 240])
    assert backoff.delay(1, lambda low, _high: low) == pytest.approx(24)


def test_no_number_of_attempts_overflows():
    assert Backoff(first_ms=0.5, factor=10, cap_ms=100).middle(10**9) == 100
    assert Backoff(first_ms=7, factor=1, cap_ms=7).middle(10**9) == 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"first_ms": 0, "factor": 2, "cap_ms": 1},
        {"first_ms": 2, "factor": 2, "cap_ms": 1},
        {"first_ms": 1, "factor": 0.5, "cap_ms": 1},
        {"first_ms": 1, "factor": 2, "cap_ms": 2, "spread": 1.5},
    ],
)
def test_values_that_are_no_backoff_are_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError, match="not a backoff"):
        Backoff(**wrong)
