"""Terms: readers that nobody renews, for a fixed time by the store's clock. Pure.

Whoever plans a job and exits before it runs can't keep a heartbeat. It takes a term instead: a
reader whose `pulse` is not a process but an instant, `until.<ms>`.

    a term                  by                          then
    ---------------------   -------------------------   ------------------------------------
    is taken at `now`       anybody                     ends at max(now, the last instant) + term
    the clock is before it  anybody who buries          stays, whoever took it may be long dead
    the clock reached it    anybody who buries          goes
    is given back           anybody who knows its id    goes at once

    R26  only the store's clock ends a term, or its id; no death and no other clock does
    R27  a reader keeps its pulse, and so a term its end, for as long as it is listed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import UsageError
from strandline.model.ids import printable

if TYPE_CHECKING:
    from strandline.model.frontier import Time

TERM_MAX_MS = 30 * 24 * 3600 * 1000
"""A forgotten term holds everything back until it ends; what must last longer is a hold."""
TERMS_MAX = 10_000
"""So many terms at once: each is listed in the state of its shard."""

# No number, so that what takes it for the pulse of a process fails, and buries nobody.
_PREFIX = "until."


@dataclass(frozen=True, slots=True)
class TermHold:
    """A term that was taken: what it holds and how long. Only `id` is needed to give it back."""

    id: str
    since: Time
    """History from here on stays readable."""
    seqno: int
    """The objects of this version and of all later ones stay; list one of those."""
    until_ms: int
    """When it ends, by the store's clock."""


def term_pulse(until_ms: int) -> str:
    """What a reader with a term has in the place of a heartbeat.

    >>> end_of(term_pulse(1_700_000_000_000))
    1700000000000
    """
    return f"{_PREFIX}{until_ms}"


def end_of(pulse: str) -> int | None:
    """When the term ends, or `None` for the heartbeat of a process."""
    return int(pulse.removeprefix(_PREFIX)) if pulse.startswith(_PREFIX) else None


def valid_term(term_ms: object) -> int:
    """Return `term_ms` if a term may be so long."""
    if type(term_ms) is not int or not 0 < term_ms <= TERM_MAX_MS:
        raise UsageError(
            f"a term lasts from 1 to {TERM_MAX_MS} ms (30 days), not {printable(term_ms)}; what "
            "must last longer is a critical hold: shard.hold"
        )
    return term_ms
