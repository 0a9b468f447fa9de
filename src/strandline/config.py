"""Settings from the environment; the only reader of it.

STRANDLINE_LEASE_MS     how long a lease lasts without a heartbeat (default 60000)
STRANDLINE_UPKEEP       "off" leaves compaction and collection to `strandline compact`
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from strandline.errors import UsageError
from strandline.model.ids import printable


@dataclass(frozen=True, slots=True)
class Config:
    """What the environment says."""

    lease_ms: int | None = None
    upkeep: bool = True


def from_environment() -> Config:
    upkeep = os.environ.get("STRANDLINE_UPKEEP", "on")
    if upkeep not in {"on", "off"}:
        raise UsageError(f"STRANDLINE_UPKEEP is {printable(upkeep)}: set it to on or off")
    return Config(lease_ms=_whole("STRANDLINE_LEASE_MS"), upkeep=upkeep == "on")


def _whole(name: str) -> int | None:
    text = os.environ.get(name)
    if text is None:
        return None
    if not text.isdigit() or int(text) < 100:
        raise UsageError(f"{name} is {printable(text)}: set it to a number of milliseconds >= 100")
    return int(text)
