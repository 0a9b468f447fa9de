"""Whether an append counts, and what it changes. Pure.

    shard       lower                      outcome
    --------    -----------------------    ---------------------------------------------------
    any         the writer's last token    Unchanged: it counted already
    any         writer not registered      Lost: it expired, and its parts may be gone
    any         its batch counted before   Repeated, or Diverged: see `txn`
    any         epoch below the highest    Fenced
    unattached  == upper                   Changed
    unattached  /= upper                   UpperMismatch
    attached    not through its timeline   Refused
    attached    >= physical upper          Changed: the times between had no rows
    attached    <  physical upper          UpperMismatch: somebody appended at this time
    attached    <  since                   UpperMismatch: this time is committed and merged

Whoever is lost is told so even if the batch counted: perhaps it was this very append, whose
objects nobody may then take for left-overs. The next writer of the application learns the truth.

An attached shard's append stays invisible until its timeline commits; who may append at which
time is the timeline's business (`timeline`), and the digests tell whether two owners agreed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from strandline.errors import invariant
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.shard import command as c
from strandline.shard.change import Change
from strandline.shard.state import Garbage, Moment, State, Writer
from strandline.shard.txn import APPS_MAX, Mark, Txn, divergence

if TYPE_CHECKING:
    from collections.abc import Iterable

_ZERO = Digest.ZERO.pack()


def append(state: State, command: c.Append) -> c.Outcome:
    invariant(command.token, "an append without a token can't be found again")
    writer = state.writers.get(command.writer)
    if writer is None:
        return c.Lost((command.writer,))
    if writer.token == command.token:
        return c.Unchanged()
    added = _sum(command.digests.values())
    known = None if command.txn is None else repeated(state, command.txn, added)
    obstacle = known or _obstacle(state, command)
    if obstacle is not None:
        return obstacle
    _check_bounds(command, added)
    instant_ms = max(command.now_ms, state.instant_ms)
    return c.Changed(
        Change(
            upper=command.upper.time,
            closed=command.upper.is_closed,
            epoch=command.epoch if command.epoch > state.epoch else None,
            batches=() if command.batch is None else (command.batch,),
            moments=_moments(command, instant_ms),
            total=(state.total + added).pack() if command.digests else None,
            instant_ms=instant_ms,
            writers={
                command.writer: msgspec.structs.replace(
                    writer,
                    token=command.token,
                    lower=command.lower,
                    upper=command.upper.time,
                    seqno=state.seqno.next().number,
                )
            },
            txns=_marked(state, command, added, instant_ms),
        )
    )


def _obstacle(state: State, command: c.Append) -> c.Outcome | None:
    """Why an append of a living writer does not count."""
    if command.epoch < state.epoch:
        return c.Fenced(state.epoch)
    if command.timeline != state.timeline:
        return c.Refused(_foreign(state, command))
    if not _starts_at_upper(state, command.lower):
        return c.UpperMismatch(max(state.upper, state.since))
    refusal = _unfit_txn(state, command)
    return c.Refused(refusal) if refusal else None


def repeated(state: State, txn: Txn, rows: Digest) -> c.Repeated | c.Diverged | None:
    """What to say about a batch that counted before; `None` if it did not. `rows` are its own."""
    mark = state.txns.get(txn.app)
    if mark is None or mark.batch < txn.batch:
        return None
    digest = rows if txn.digest is None else txn.digest
    if mark.batch == txn.batch and mark.total != digest:
        return c.Diverged(divergence(txn.app, mark, digest))
    return c.Repeated(txn.app, txn.batch, mark.batch)


def _unfit_txn(state: State, command: c.Append) -> str:
    """Why a new batch can't be remembered; empty if it can, or if there is none."""
    if command.txn is None:
        return ""
    if command.timeline is not None:
        return "batches of applications do not go through a timeline, which may withdraw them"
    if command.txn.app not in state.txns and len(state.txns) >= APPS_MAX:
        return (
            f"it remembers the batches of {APPS_MAX} applications, and of no more; forget those "
            "that will not come back with shard.forget_txn(app)"
        )
    return ""


def _marked(
    state: State, command: c.Append, added: Digest, instant_ms: int
) -> dict[str, Mark | None]:
    txn = command.txn
    if txn is None:
        return {}
    digest = added if txn.digest is None else txn.digest
    return {txn.app: Mark(txn.batch, digest.pack(), state.seqno.next().number, instant_ms)}


def withdraw(state: State, command: c.Withdraw) -> c.Outcome:
    """Only what no reader can have seen goes: at or after what the timeline committed.

    The writers of what goes forget their tokens, or an append of unknown fate would be told
    that it counted. Older owners are fenced even if there was nothing to take back: what they
    have under way must not come after.
    """
    if command.epoch < state.epoch:
        return c.Fenced(state.epoch)
    reason = _kept_by(state, command)
    if reason:
        return c.Refused(reason)
    epoch = command.epoch if command.epoch > state.epoch else None
    if state.upper <= Frontier(command.lower):
        return c.Unchanged() if epoch is None else c.Changed(Change(epoch=epoch))
    first = sum(batch.upper <= command.lower for batch in state.batches)
    gone = state.batches[first:]
    moments = [m for m in state.moments if m.time >= command.lower]
    removed = _sum(moment.total for moment in moments)
    invariant(removed == _sum(b.total for b in gone), "R5: withdrawn times are not their batches")
    keys = tuple(key for batch in gone for key in batch.object_keys())
    chunks = tuple(chunk.key for batch in gone for chunk in batch.chunks)
    return c.Changed(
        Change(
            upper=command.lower,
            epoch=epoch,
            splice=(first, len(state.batches)) if gone else None,
            moments_cut=len(moments),
            total=(state.total - removed).pack(),
            writers=_without_tokens(state, command.lower),
            garbage=(Garbage(state.seqno.next().number, keys, chunks),) if keys else (),
        )
    )


def _kept_by(state: State, command: c.Withdraw) -> str:
    """Why nothing may be withdrawn; empty if it may."""
    lower = command.lower
    if state.timeline is None:
        return "only an attached shard has appends that are not committed"
    if lower < state.readable_from() or not command.committed <= Frontier(lower):
        return f"times before {max(command.committed, state.since)} are committed"
    if any(b.lower < lower < b.upper for b in state.batches):
        return f"a batch straddles {lower}"
    if any(chunk.last_time >= lower for chunk in state.moment_chunks):
        return f"moments from {lower} on are in a chunk"
    return ""


def _without_tokens(state: State, lower: int) -> dict[str, Writer | None]:
    return {
        name: msgspec.structs.replace(writer, token="", lower=0, upper=0, seqno=-1)
        for name, writer in state.writers.items()
        if writer.token and Frontier(lower) < Frontier(writer.upper)
    }


def _foreign(state: State, command: c.Append) -> str:
    if state.timeline is None:
        return f"it is not attached to timeline {command.timeline}"
    return f"it is attached to timeline {state.timeline} and takes appends only through it"


def _starts_at_upper(state: State, lower: int) -> bool:
    if state.timeline is None:
        return state.upper.time == lower
    return max(state.upper, state.since) <= Frontier(lower)


def _check_bounds(command: c.Append, added: Digest) -> None:
    """The shell has checked the rows; this is the second of a pair of checks."""
    lower, upper = command.lower, command.upper
    invariant(upper.settled(lower), "an append of no time at all")
    for time in command.digests:
        invariant(lower <= time and upper.settled(time), "rows outside of their append")
    batch = command.batch
    invariant((batch is None) == (not command.digests), "rows without digests, or the reverse")
    if batch is not None:
        invariant(batch.total == added, "R5: a batch's digest is not the sum of its times'")
        invariant(batch.lower == lower, "a batch that does not start at its append")
        invariant(upper.settled(batch.upper - 1), "a batch that ends after its append")
        invariant(max(command.digests) < batch.upper, "rows outside of their batch")


def _moments(command: c.Append, instant_ms: int) -> tuple[Moment, ...]:
    moments = [Moment(t, instant_ms, d.pack()) for t, d in sorted(command.digests.items())]
    last = command.upper.last() if not command.upper.is_closed else None
    if last is None:
        last = max(command.digests, default=command.lower)
    if not moments or moments[-1].time < last:
        moments.append(Moment(last, instant_ms, _ZERO))
    return tuple(moments)


def _sum(digests: Iterable[Digest]) -> Digest:
    total = Digest.ZERO
    for digest in digests:
        total = total + digest
    return total
