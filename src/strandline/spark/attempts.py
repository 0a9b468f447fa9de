"""One loop for everybody who writes without owning a time: Table's calls and the data source's.

    try at the next time ─┬─► Appended, Repeated, or nothing to say: done
          ▲               └─► UpperMismatch: another writer was faster
          └──── pause ◄───────────┘

An append is stamped anew and keeps its parts. An upsert has looked at rows that are old by now: it
looks again, and what it has put is of no use to anybody. It goes on for as long as it takes, for
each loss is an append of somebody else. A replica's times were agreed on beforehand: it tries once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from strandline.model.digest import Digest
from strandline.shard.command import Repeated, UpperMismatch
from strandline.shard.decide_append import repeated
from strandline.shard.machine import raise_refusal
from strandline.spark.landed import Load
from strandline.store.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from strandline.handles.write import Appended
    from strandline.model.frontier import Time
    from strandline.reading.view import View
    from strandline.shard.state import State
    from strandline.shard.txn import Txn
    from strandline.spark.desk import Desk, Stand

CONTENTION = Backoff(first_ms=1, factor=1.0, cap_ms=1, spread=1.0)
"""Constant, not growing: whoever has lost most would otherwise wait longest, and starve."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt: what it was to append, and what came of it."""

    load: Load
    outcome: Appended | UpperMismatch | Repeated | None
    """`None` if there was nothing to append."""
    lasting: bool = False
    """Whether the same parts do at another time."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The last attempt, and how many there were."""

    load: Load
    outcome: Appended | Repeated | None
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Resolving:
    """How an upsert finds out what it changes."""

    view: Callable[[], AbstractContextManager[View]]
    """The newest state, pinned until the differences are found."""
    differences: Callable[[State], Load]
    """What the rows that came change in a state, at its upper or at their own times."""
    txn: Txn | None = None


def settled(tried: Tried, attempts: int) -> Settled | None:
    """The end of it; `None` if another writer was faster. Pure."""
    if isinstance(tried.outcome, UpperMismatch):
        return None
    return Settled(tried.load, tried.outcome, attempts)


def in_vain(tried: Tried) -> list[str]:
    """The objects of an attempt that nobody refers to, nor ever will. Pure."""
    lost = isinstance(tried.outcome, UpperMismatch) and not tried.lasting
    if lost or isinstance(tried.outcome, Repeated):
        return [part.key for part in tried.load.parts]
    return []


def once(desk: Desk, tried: Tried) -> Tried:
    """The same attempt, without what it has put in vain."""
    desk.discard(in_vain(tried))
    return tried


def until_settled(desk: Desk, attempt: Callable[[], Tried]) -> Settled:
    """Try until no other writer is faster. Each attempt finds out itself which time is next."""
    for attempts in count(1):
        done = settled(once(desk, attempt()), attempts)
        if done is not None:
            return done
        desk.env.tasks.sleep(CONTENTION.delay(attempts, desk.env.random.uniform))
    raise AssertionError("counting has no end")


def append_next(desk: Desk, stand: Stand, load: Load, txn: Txn | None = None) -> Settled:
    """Append what tasks gave back at the next time, whichever that is by then."""
    if not load.parts:
        few = load.few
        return Settled(load, None if few is None else stand.writer.append(few, txn=txn))
    load.put_few(stand.bench, untimed=True)
    _, rows = load.total(stand.bench.ground.schema)

    def attempt() -> Tried:
        known = counted(desk.shard.state(), txn, rows)
        if known is not None:
            return Tried(load, known)
        lower = desk.writable().upper.time or 0
        outcome = load.commit(desk, stand, (lower, lower + 1), restamp=True, txn=txn)
        return Tried(load, outcome, lasting=True)

    return until_settled(desk, attempt)


def upsert_next(desk: Desk, stand: Stand, resolving: Resolving) -> Settled:
    """Upsert at the next time, whichever that is by then."""
    return until_settled(desk, lambda: resolve(desk, stand, resolving, None))


def resolve(
    desk: Desk, stand: Stand, resolving: Resolving, bounds: tuple[Time, Time] | None
) -> Tried:
    """One attempt to upsert: look old rows up, find the differences and append them.

    Without bounds the time is the upper of the very state that is looked at: of a later one
    history may be merged past the time before an upper that was seen earlier.
    """
    txn = resolving.txn
    with resolving.view() as view:
        state = view.state
        known = _known(state, txn)
        if known is not None:
            return Tried(Load.of(()), known)
        if bounds is None:
            desk.check_writable(state)
        lower, end = bounds or (state.upper.time or 0, (state.upper.time or 0) + 1)
        if state.upper.time != lower:
            return Tried(Load.of(()), UpperMismatch(state.upper))
        load = resolving.differences(state)
    load.check_times(lower, end)
    timed = bounds is not None
    return Tried(load, load.settle(desk, stand, (lower, end), timed=timed, txn=txn))


def counted(state: State, txn: Txn | None, rows: Digest) -> Repeated | None:
    """What to say of a batch that counted before, or of one that is past; also where nothing can
    be written any more. Raises if the one that counted was another."""
    known = None if txn is None else repeated(state, txn, rows)
    if known is None or isinstance(known, Repeated):
        return known
    raise_refusal(state.name, known)
    return None


def _known(state: State, txn: Txn | None) -> Repeated | None:
    """The same before anybody looks at rows: by the digest of what came in, if there is one."""
    if txn is None or txn.digest is not None:
        return counted(state, txn, Digest.ZERO)
    mark = state.txns.get(txn.app)
    if mark is None or mark.batch <= txn.batch:
        return None
    return Repeated(txn.app, txn.batch, mark.batch)
