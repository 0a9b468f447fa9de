"""Ctrl-C as something that is noted, and no exception in the middle of something else."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Signals:
    """Whether somebody wants the command to end."""

    def __init__(self) -> None:
        self.came = False


@contextmanager
def heeding_signals() -> Iterator[Signals]:
    """Ctrl-C and what ends a service politely are noted, and no exception: one that comes while a
    thread is joined would leave the thread taken for ended. A second one ends the command."""
    signals = Signals()

    def note(number: int, _: FrameType | None) -> None:
        signals.came = True
        signal.signal(number, before[signal.Signals(number)])

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, note)
    try:
        yield signals
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
