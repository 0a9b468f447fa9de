"""A signal is noted; a second one of its kind does what it always does."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from strandline.cli.signals import heeding_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_nothing_is_raised(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with heeding_signals() as signals:
        assert not signals.came
        signal.raise_signal(number)
        assert signals.came
    assert signal.getsignal(number) == before


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Who starts tests in the background may have them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_the_second_one_ends_the_command() -> None:
    with heeding_signals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
