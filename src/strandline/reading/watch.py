"""Whether a reader makes progress: the decision behind its status. Pure.

A reader is one of:

    STALLED  something failed, or the frontier stood still for `stall_ms` although more is settled,
             or nobody could see for as long whether more is settled
    WAITING  something is ready and the consumer has not taken it: not our stall
    RUNNING  everything else: caught up, or moving
    CLOSED   it has given out all there ever will be, or was closed
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier


class Health(Enum):
    """How a reader is."""

    RUNNING = "running"
    WAITING = "waiting"
    STALLED = "stalled"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Sight:
    """What is to be seen of a reader at one moment."""

    frontier: Frontier
    upper: Frontier
    """How far the shard is known to be settled (or `until`, if that is less)."""
    oldest: str = ""
    """The part that holds the frontier back most; empty if none does."""
    ready: bool = False
    """Whether the consumer could take something at once."""
    error: str = ""
    closed: bool = False
    unseen_ms: int = 0
    """For how long the shard has been looked for in vain: `upper` is as old."""
    trouble: str = ""
    """What went wrong when it was looked for last."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a reader is, and why."""

    health: Health
    frontier: Frontier
    upper: Frontier
    oldest: str
    cause: str
    still_ms: int
    """How long the frontier has not moved although it should have, or nobody could tell."""

    def __str__(self) -> str:
        line = f"{self.health.value} at {self.frontier}, settled up to {self.upper}"
        if self.oldest:
            line += f", waiting for {self.oldest}"
        return f"{line}: {self.cause}" if self.cause else line


class Watch:
    """Remembers when the frontier last moved, or was last where it should be."""

    def __init__(self, now_ms: int, stall_ms: int) -> None:
        self._stall_ms = stall_ms
        self._frontier: Frontier | None = None
        self._since_ms = now_ms

    def look(self, now_ms: int, sight: Sight) -> Status:
        behind = sight.frontier < sight.upper
        if sight.frontier != self._frontier or not behind or sight.ready:
            self._frontier = sight.frontier
            self._since_ms = now_ms
        still_ms = max(now_ms - self._since_ms, sight.unseen_ms)
        health, cause = self._judge(sight, still_ms)
        return Status(health, sight.frontier, sight.upper, sight.oldest, cause, still_ms)

    def _judge(self, sight: Sight, still_ms: int) -> tuple[Health, str]:
        if sight.error:
            return Health.STALLED, sight.error
        if sight.closed:
            return Health.CLOSED, ""
        if sight.unseen_ms >= self._stall_ms:
            unseen = f"the shard could not be seen for {sight.unseen_ms // 1000} s"
            return Health.STALLED, f"{unseen}: {sight.trouble}" if sight.trouble else unseen
        if sight.ready:
            return Health.WAITING, "what is ready has not been taken by its consumer"
        if still_ms < self._stall_ms:
            return Health.RUNNING, ""
        seconds = still_ms // 1000
        late = f"not fetched for {seconds} s: {sight.oldest}" if sight.oldest else ""
        return Health.STALLED, late or f"nothing was listed for {seconds} s"
