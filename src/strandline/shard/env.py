"""What every shell module of a process is given: the ports, the numbers, the counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from strandline.errors import HandleClosedError, MaybeAppliedError, NotAppliedError
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.clock import Clock, Random
    from strandline.model.tasks import Tasks
    from strandline.model.timeline import Timeline
    from strandline.shard.metrics import Metrics
    from strandline.shard.settings import Settings
    from strandline.store.blob import Blob
    from strandline.store.consensus import Consensus

_Answer = TypeVar("_Answer")

PATIENCE = Backoff(first_ms=2, factor=2.0, cap_ms=1_000)


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Home:
    """The process that opened a store: nobody else may use what came of it.

    In a forked child nothing renews the leases, nothing moves them forward, and the locks are as
    they were at the fork. So what begins with a handle asks here first, before it takes a lock;
    what ends with one does nothing there, for what it holds is the parent's.
    """

    store: str = "memory://"
    is_here: Callable[[], bool] = _always

    def check(self) -> None:
        if not self.is_here():
            raise HandleClosedError(
                f"store {self.store} was opened by another process: leases do not survive a fork; "
                "open the store again in this process"
            )


_ANYWHERE = Home()


@dataclass(frozen=True, slots=True)
class Env:
    """One process's view of one store."""

    blob: Blob
    consensus: Consensus
    clock: Clock
    tasks: Tasks
    random: Random
    metrics: Metrics
    settings: Settings
    timelines: Callable[[str], Timeline]
    """Finds the timeline that a shard is attached to."""
    home: Home = _ANYWHERE

    def patient(self, call: Callable[[], _Answer], *, shard: str = "") -> _Answer:
        """Repeat a call that may be repeated until it answers, within the read deadline.

        For reads, and for writes that are harmless when they happen twice.
        """
        return self._repeat(call, (NotAppliedError, MaybeAppliedError), shard)

    def insistent(self, call: Callable[[], _Answer], *, shard: str = "") -> _Answer:
        """Repeat a call that did not happen; what may have happened is the caller's to solve."""
        return self._repeat(call, (NotAppliedError,), shard)

    def _repeat(
        self,
        call: Callable[[], _Answer],
        errors: tuple[type[NotAppliedError | MaybeAppliedError], ...],
        shard: str,
    ) -> _Answer:
        self.home.check()
        deadline = self.clock.monotonic_ms() + self.settings.read_deadline_ms
        attempt = 0
        while True:
            try:
                return call()
            except errors:
                if self.clock.monotonic_ms() >= deadline:
                    raise
                self.metrics.add("retries", shard)
                self.tasks.sleep(PATIENCE.delay(attempt, self.random.uniform))
                attempt += 1
