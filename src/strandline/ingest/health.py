"""How an ingest is: the decision behind its status. Pure.

RUNNING  its output moves, or has come as far as its input
STALLED  for `stall_ms` no turn has moved the output, although the input is further or nobody
         could tell; the cause says which
FENCED   a newer epoch took the output over: it has stopped
FAILED   it has stopped, and the cause says why
CLOSED   it was closed, or its input has ended and everything is settled
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier


class Health(Enum):
    """How an ingest is."""

    RUNNING = "running"
    STALLED = "stalled"
    FENCED = "fenced"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Sight:
    """What is to be seen of an ingest at one moment."""

    frontier: Frontier
    """How far its input is complete."""
    upper: Frontier
    """How far its output is settled; of a read-only one, how far it has compared."""
    oldest: int | None = None
    """The earliest time of which commands are held."""
    buffered_bytes: int = 0
    spilled_bytes: int = 0
    trouble: str = ""
    """What went wrong in the last turn."""
    busy: str = ""
    """What it is at, if a turn goes on."""
    read_only: bool = False
    ended: Health | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """How an ingest is, and why."""

    health: Health
    frontier: Frontier
    upper: Frontier
    oldest: int | None
    buffered_bytes: int
    spilled_bytes: int
    cause: str
    still_ms: int
    """For how long nothing has moved although it should have, or nobody could tell."""
    restarts: int

    def __str__(self) -> str:
        line = f"{self.health.value} at {self.upper}, input complete up to {self.frontier}"
        if self.oldest is not None:
            line += f", oldest buffered time {self.oldest}"
        return f"{line}: {self.cause}" if self.cause else line


class Watch:
    """Remembers when the output last moved, or was last where it should be."""

    def __init__(self, now_ms: int, stall_ms: int) -> None:
        self._stall_ms = stall_ms
        self._upper: Frontier | None = None
        self._since_ms = now_ms

    def turned(self, now_ms: int, upper: Frontier, frontier: Frontier) -> None:
        """A turn has worked."""
        if upper != self._upper or frontier <= upper:
            self._upper = upper
            self._since_ms = now_ms

    def look(self, now_ms: int, sight: Sight) -> Status:
        still_ms = now_ms - self._since_ms
        health, cause = self._judge(sight, still_ms)
        return Status(
            health,
            sight.frontier,
            sight.upper,
            sight.oldest,
            sight.buffered_bytes,
            sight.spilled_bytes,
            cause,
            still_ms,
            sight.restarts,
        )

    def _judge(self, sight: Sight, still_ms: int) -> tuple[Health, str]:
        if sight.ended is not None:
            return sight.ended, sight.trouble
        if still_ms < self._stall_ms:
            return Health.RUNNING, ""
        seconds = f"for {still_ms // 1000} s"
        if sight.trouble:
            return Health.STALLED, f"no turn has worked {seconds}: {sight.trouble}"
        if sight.busy:
            return Health.STALLED, f"it has been {sight.busy} {seconds}"
        if sight.read_only:
            return Health.STALLED, f"it is read-only, and others have settled nothing {seconds}"
        return Health.STALLED, f"nothing was settled {seconds}"
