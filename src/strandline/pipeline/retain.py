"""How far back a pipeline can be read and computed again: one setting, for everything it has.

shards     `retain` transactions, or all; and a hold on the last commit, which the next
           transaction reads: it is moved at checkpoints, since an idle shard costs nothing
sinks      what each has not delivered yet; one that was removed lets go at the next checkpoint
journal    from the checkpoint before those transactions on, with what they staged
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import ConflictError
from strandline.journal.record import Checkpoint
from strandline.pipeline.place import hold_of
from strandline.shard.state import Retention

if TYPE_CHECKING:
    from strandline.journal.checkpoint import Checkpoints
    from strandline.journal.standing import Standing
    from strandline.pipeline.rig import Rig


def keep(rig: Rig, standing: Standing) -> None:
    """Tell every shard what to keep; those that know it already are left alone."""
    rule = Retention(None, rig.settings.retain)
    since = standing.committed.last() or 0
    note = f"the last commit of pipeline {standing.pipeline}"
    for bound in standing.bindings.values():
        shard = rig.store.shard(bound.shard)
        if shard.state().retention != rule:
            shard.retain(rule)
        shard.hold(rig.timeline, since, epoch=standing.epoch, note=note)


def release(rig: Rig, standing: Standing) -> None:
    """Let go of what sinks hold that the program no longer has: nobody will ever take it."""
    theirs = hold_of(standing.pipeline, "")
    ours = {hold_of(standing.pipeline, target.name) for target in rig.sinks}
    for bound in standing.bindings.values():
        shard = rig.store.shard(bound.shard)
        for name in shard.state().holds:
            if name.startswith(theirs) and name not in ours:
                shard.release_hold(name)


def cut(rig: Rig, checkpoints: Checkpoints, standing: Standing) -> None:
    """Cut the journal below the newest checkpoint that is before all that is retained."""
    if rig.settings.retain is None:
        return
    first = standing.next_t - rig.settings.retain
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
