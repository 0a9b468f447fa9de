"""Waits until what somebody asked for has happened; where nobody runs, it is done by own steps.

A step may do what it is asked for and tell of trouble all the same: a source that can't be read
keeps no transaction of a user back. Or somebody promotes the program just before it. So such an
error counts only where nothing came on record meanwhile: whoever was told that a commit failed
would commit the same rows again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import FencedError, SourceError, StalledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.journal.log import Journal
    from strandline.journal.standing import Standing
    from strandline.shard.env import Env

POLL_MS = 50
"""How often somebody who waits for a replica looks."""
LOOK_MS = 1_000
"""How often it looks whether anybody runs."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """How one process waits for one pipeline."""

    env: Env
    journal: Journal
    alone: Callable[[], bool]
    """Whether nobody runs, here or elsewhere."""
    step: Callable[[], float]
    """Carries out one decision; returns for how many ms there is nothing to do."""

    def until(
        self, holds: Callable[[Standing], bool], timeout_ms: int | None, what: str
    ) -> Standing:
        """Wait for somebody to get there; where nobody runs and this process can, it steps."""
        env = self.env
        deadline = None if timeout_ms is None else env.clock.monotonic_ms() + timeout_ms
        looked_ms, alone = 0, False
        while not holds(standing := self.journal.refresh()):
            now_ms = env.clock.monotonic_ms()
            if deadline is not None and now_ms >= deadline:
                raise StalledError(
                    f"pipeline {self.journal.pipeline}: nobody carried out {what} within "
                    f"{timeout_ms} ms; it is asked for, and comes when a replica runs"
                )
            if now_ms - looked_ms >= LOOK_MS:
                looked_ms, alone = now_ms, self.alone()
            if not alone or self._stepped(standing) > 0:
                env.tasks.sleep(POLL_MS)
        return standing

    def _stepped(self, standing: Standing) -> float:
        try:
            return self.step()
        except (SourceError, FencedError):
            if self.journal.refresh().lsn == standing.lsn:
                raise
            return 0
