"""How far back a pipeline can be read and computed again: one number on record, for everything.

The last RETAIN in the journal counts, whoever wrote it, and every replica follows it.

shards     `retain` transactions, or all; and a hold on the last commit, which the next
           transaction reads: it is moved at checkpoints, since an idle shard costs nothing, and
           goes there where no name of the program means the shard any more
sinks      what each has not delivered yet; one that was removed lets go at the next checkpoint
journal    from the checkpoint before those transactions on, with what they staged
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from strandline.errors import ConflictError, FencedError, NotFoundError, UsageError
from strandline.journal.log import Lost
from strandline.journal.record import Checkpoint, Retain
from strandline.pipeline.place import hold_of
from strandline.shard.state import Retention

if TYPE_CHECKING:
    from strandline.journal.checkpoint import Checkpoints
    from strandline.journal.log import Journal
    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig


def put_on_record(journal: Journal, transactions: int | None) -> None:
    """Let everything be kept for so many transactions from now on; `None` is all of them."""
    while not say(journal, journal.refresh(), transactions):
        pass


def say(journal: Journal, standing: Standing, transactions: int | None) -> bool:
    """The same, if the pipeline still stands there; whether it is on record."""
    if transactions is not None and transactions < 1:
        raise UsageError(f"{transactions} transactions can't be kept: keep 1 at least, or all")
    if standing.retain == transactions:
        return True
    return not isinstance(journal.propose(standing, [Retain(transactions)]), Lost)


def keep(rig: Rig, standing: Standing) -> None:
    """Tell every shard what to keep; those that know it already are left alone."""
    rule = Retention(None, standing.retain)
    since = standing.committed.last() or 0
    note = f"the last commit of pipeline {standing.pipeline}"
    for bound in standing.bindings.values():
        shard = rig.store.shard(bound.shard)
        if shard.state().retention != rule:
            shard.retain(rule)
        shard.hold(rig.timeline, since, epoch=standing.epoch, note=note)


def release(rig: Rig, standing: Standing) -> None:
    """Let go of what nobody will ever take: what sinks hold that the program no longer has, and
    the last commit in shards that no name means any more. What a sink has yet to deliver of those
    is the sink's own hold."""
    theirs = hold_of(standing.pipeline, "")
    ours = {hold_of(standing.pipeline, target.name) for target in rig.sinks}
    bound = {each.shard for each in standing.bindings.values()}
    # All that a pipeline writes, and ever wrote, is named after it.
    gone = {
        name: [each for each in state.holds if each.startswith(theirs) and each not in ours]
        for name in rig.store.shards(f"{standing.pipeline}.")
        if (state := rig.store.machine(name).state).timeline == rig.timeline
    }
    # A newer program may have other sinks: what they hold was not there before its epoch.
    stands = any(gone.values()) and rig.journal.refresh().epoch == standing.epoch
    for name, holds in gone.items():
        # It may be dropped this moment, or a newer epoch means it again.
        with suppress(NotFoundError, FencedError):
            shard = rig.store.shard(name)
            for each in holds if stands else ():
                shard.release_hold(each)
            if name not in bound and rig.timeline in shard.machine.state.holds:
                shard.release_hold(rig.timeline, epoch=standing.epoch)


def cut(rig: Rig, checkpoints: Checkpoints, standing: Standing) -> None:
    """Cut the journal below the newest checkpoint that is before all that is retained."""
    if standing.retain is None:
        return
    first = standing.next_t - standing.retain
    try:
        old = [
            lsn
            for lsn, record in rig.journal.records()
            if isinstance(record, Checkpoint) and (record.t is None or record.t < first)
        ]
    except ConflictError:
        # Somebody else cuts it this moment.
        return
    if old:
        checkpoints.cut(max(old))
