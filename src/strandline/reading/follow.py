"""The listing half of a subscription: looks again and again, and hands over what is new.

An outage of the store ends nothing; it shows in `unseen`, so that a frontier which nobody could
compare with the shard is not taken for one that has caught up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import MaybeAppliedError, NotAppliedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.frontier import Frontier
    from strandline.model.tasks import Event as Signal
    from strandline.reading.accounts import Accounts
    from strandline.reading.lister import Increment, Lister
    from strandline.shard.machine import Machine


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the listing asks of its subscription, and tells it."""

    full: Callable[[], bool]
    """Whether so much waits to be fetched that nothing more should be listed."""
    found: Callable[[Increment], None]
    """An increment is in the books."""
    look: Callable[[], None]
    """Called at every turn."""


class Follower:
    """Lists for one subscription, in its listing task."""

    def __init__(
        self, machine: Machine, lister: Lister, accounts: Accounts, *, hooks: Hooks
    ) -> None:
        self._machine = machine
        self._lister = lister
        self._accounts = accounts
        self._hooks = hooks
        self._trying_ms: int | None = None
        self._trouble = ""

    @property
    def upper(self) -> Frontier:
        """How far the shard was seen to be settled, as far as it is asked for."""
        return self._lister.upper

    def unseen(self) -> tuple[int, str]:
        """For how long the shard has been looked for in vain, and what went wrong last."""
        trying_ms = self._trying_ms
        if trying_ms is None:
            return 0, ""
        return self._now_ms() - trying_ms, self._trouble

    def run(self, signal: Signal | Callable[[], bool] | None) -> None:
        """Wait for the signal, then list until there will be nothing more."""
        try:
            if self._started(signal):
                self._list()
        finally:
            self._trying_ms = None

    def _started(self, signal: Signal | Callable[[], bool] | None) -> bool:
        """Wait for the signal to start; the lease is held already (S14)."""
        poll_ms = self._machine.env.settings.poll_cap_ms
        while signal is not None and not self._accounts.over:
            self._hooks.look()
            if self._asked(signal) if callable(signal) else signal.wait(poll_ms):
                break
            if callable(signal):
                self._machine.env.tasks.sleep(poll_ms)
        return not self._accounts.over

    def _asked(self, signal: Callable[[], bool]) -> bool:
        try:
            return signal()
        except Exception as error:
            name = self._machine.name
            raise UsageError(
                f"the start_signal of the subscription to {name} failed: {error!r}"
            ) from error

    def _list(self) -> None:
        settings = self._machine.env.settings
        pause_ms = float(settings.poll_first_ms)
        while not self._accounts.listing_over:
            self._hooks.look()
            full = self._hooks.full()
            increment = None if full else self._step()
            if increment is None:
                self._rest(pause_ms, full=full)
                pause_ms = min(pause_ms * 1.5, settings.poll_cap_ms)
                continue
            pause_ms = float(settings.poll_first_ms)
            self._accounts.take_in(increment)
            increment.pin.give_back()
            self._hooks.found(increment)
            if increment.frontier.is_closed:
                return

    def _step(self) -> Increment | None:
        # From the first attempt of several that fail; a process that was stopped between two
        # of them looked for nothing, and so missed nothing.
        if self._trying_ms is None:
            self._trying_ms = self._now_ms()
        try:
            increment = self._lister.step()
        except (NotAppliedError, MaybeAppliedError) as error:
            self._trouble = str(error)
            self._machine.env.metrics.add("retries", self._machine.name)
            return None
        self._trying_ms = None
        self._trouble = ""
        return increment

    def _rest(self, pause_ms: float, *, full: bool) -> None:
        """Wait for a new version, or for room, which no version makes."""
        if not full:
            self._machine.pause(self._lister.state, pause_ms)
            return
        self._trying_ms = None
        with self._accounts.changed:
            self._accounts.changed.wait(int(pause_ms))

    def _now_ms(self) -> int:
        return self._machine.env.clock.monotonic_ms()
