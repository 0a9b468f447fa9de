"""Whose turn it is, when an automatic transaction closes, and what goes into it. Pure.

what is last on record                    first asked, and the others if it has nothing
--------------------------------------    -----------------------------------------
an explicit transaction, or an ABORT      the sources: handles that keep coming can't starve them
all else                                  handles: sources that keep coming can't starve them

offered                                   then
--------------------------------------    -----------------------------------------
no row by any source                      nothing: forget when the first one came
`rows_max` rows or `bytes_max` bytes      close at once
a transaction that a source initiated     close at once
some, the first `delay_ms` ago or more    close
some, younger                             wait for as long as is left
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.connectors.position import Range
    from strandline.journal.standing import Standing
    from strandline.pipeline.settings import PipelineSettings


@dataclass(frozen=True, slots=True)
class Offered:
    """What a source would give now."""

    taken: Range
    rows: int
    bytes: int = 0
    begins: bool = False
    """It says where partitions begin that nothing was taken from so far."""
    closes: bool = False
    """It is a transaction by itself: nothing is waited for."""


@dataclass(frozen=True, slots=True)
class Close:
    """Seal what is offered."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after `for_ms`; the first row was seen at `since_ms`, if there is one."""

    for_ms: float
    since_ms: float | None


def handles_first(standing: Standing) -> bool:
    """Whether explicit transactions are looked at before the sources: the same for everybody who
    plans on this standing. A handle that was forgotten since gives handles one turn more."""
    last = standing.committed.last()
    explicit = last is not None and last in standing.closed.values()
    return not explicit and standing.last_kind != "ABORT"


def closing(
    offers: Mapping[str, Offered],
    since_ms: float | None,
    now_ms: float,
    settings: PipelineSettings,
) -> Close | Wait:
    """Whether the transaction that is being offered closes now, by a monotonic clock."""
    rows = sum(offer.rows for offer in offers.values())
    if rows == 0 and any(offer.begins for offer in offers.values()):
        return Close()
    if rows == 0:
        return Wait(settings.poll_ms, None)
    total = sum(offer.bytes for offer in offers.values())
    first = now_ms if since_ms is None else since_ms
    left = first + settings.delay_ms - now_ms
    full = rows >= settings.rows_max or total >= settings.bytes_max
    if full or left <= 0 or any(offer.closes for offer in offers.values()):
        return Close()
    return Wait(min(left, settings.poll_ms), first)
