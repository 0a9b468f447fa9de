"""How far history may be merged: what retention asks for, bounded by every hold. Pure.

A time stays readable if it is among the last `count` moments, or if somebody who asks for the
content at an instant within the last `duration_ms` would need it. The newest settled time
always stays. Chunks of moments are judged as a whole, so a little more than asked may stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import UsageError
from strandline.model.ids import printable
from strandline.shard.state import Retention

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier, Time
    from strandline.shard.state import State

_DURATION = re.compile(r"([0-9]{1,9}) *(ms|s|m|h|d|w)")
_VERSIONS = re.compile(r"([0-9]{1,9}) *versions?")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


@dataclass(frozen=True, slots=True)
class Aged:
    """Which time of its timeline was the last that counted `lasting_ms` ago.

    The moments of an attached shard say when rows were staged, which may be long before they were
    committed. So its history is not merged by age but by this: whoever asks for an instant since
    then is told this time, or a later one.
    """

    lasting_ms: int
    time: Time | None
    """`None` if there was none, or nobody knows any more."""


def duration_ms(text: str) -> int | None:
    """`30s`, `5m`, `1h` in milliseconds; `None` if it is no duration.

    >>> duration_ms("5m")
    300000
    """
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else int(found[1]) * _UNIT_MS[found[2]]


def parse_retention(text: str) -> Retention:
    """What people write: `1h`, `7d`, `100 versions`, `1h or 100 versions`, `forever`.

    >>> parse_retention("1h or 10 versions")
    Retention(duration_ms=3600000, count=10)
    """
    if text.strip() == "forever":
        return Retention(None, None)
    lasting: int | None = None
    count: int | None = None
    for word in text.split(" or "):
        duration = duration_ms(word)
        versions = _VERSIONS.fullmatch(word.strip())
        if duration is not None and lasting is None:
            lasting = duration
        elif versions is not None and count is None and int(versions[1]) > 0:
            count = int(versions[1])
        else:
            raise UsageError(
                f"retention {printable(text)} is not understood: write '1h', '7d', "
                "'100 versions', '1h or 100 versions', or 'forever'"
            )
    return Retention(lasting, count)


def since_allowed(
    state: State, *, now_ms: int, committed: Frontier | None, aged: Aged | None = None
) -> Time:
    """The largest since that retention and all holds allow; never below the current one."""
    current = state.readable_from()
    newest = _newest(state, committed)
    if newest is None:
        return current
    target = min(newest, _wanted(state, now_ms, newest, aged))
    for _, hold in state.since_holds():
        target = min(target, hold)
    return max(current, target)


def instants_from(state: State, *, committed: Frontier, aged: Aged | None) -> Time:
    """The first time whose instant is of use to the readers of an attached shard.

    It is where since may be, even while nothing happens in the shard: since stays at its last
    moment then, but by age nobody is promised an instant before `aged`.
    """
    rule = state.retention
    newest = committed.last()
    if newest is None or rule == Retention(None, None):
        return state.readable_from()
    by_duration = newest if rule.duration_ms is None else _known(aged, rule.duration_ms)
    by_count = newest if rule.count is None else _by_count(state, rule.count, newest)
    holds = (hold for _, hold in state.since_holds())
    return max(state.readable_from(), min(newest, by_duration, by_count, *holds))


def _newest(state: State, committed: Frontier | None) -> Time | None:
    """The newest settled time: the last one that somebody may ask for."""
    upper = committed if state.timeline is not None else state.upper
    if upper is None:
        return None
    if not upper.is_closed:
        return upper.last()
    if state.moments:
        return state.moments[-1].time
    return state.moment_chunks[-1].last_time if state.moment_chunks else None


def _wanted(state: State, now_ms: int, newest: Time, aged: Aged | None) -> Time:
    rule = state.retention
    if rule == Retention(None, None):
        return 0
    wanted = newest
    if rule.duration_ms is not None:
        wanted = min(wanted, _by_age(state, now_ms - rule.duration_ms))
        if state.timeline is not None:
            wanted = min(wanted, _known(aged, rule.duration_ms))
    if rule.count is not None:
        wanted = min(wanted, _by_count(state, rule.count, newest))
    return wanted


def _known(aged: Aged | None, lasting_ms: int) -> Time:
    """What was looked up for another rule, which was in force before, says nothing."""
    return (aged.time or 0) if aged is not None and aged.lasting_ms == lasting_ms else 0


def _by_age(state: State, oldest_ms: int) -> Time:
    """The last time that was settled at or before an instant: its content was current then."""
    for moment in reversed(state.moments):
        if moment.instant_ms <= oldest_ms:
            return moment.time
    for chunk in reversed(state.moment_chunks):
        if chunk.last_instant_ms <= oldest_ms:
            return chunk.last_time
    return 0


def _by_count(state: State, count: int, newest: Time) -> Time:
    # What is staged and not committed is no version yet, and may never become one.
    moments = state.moments
    while moments and moments[-1].time > newest:
        moments = moments[:-1]
    if len(moments) >= count:
        return moments[-count].time
    left = count - len(moments)
    for chunk in reversed(state.moment_chunks):
        left -= chunk.count
        if left <= 0:
            return chunk.first_time
    return 0
