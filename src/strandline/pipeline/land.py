"""Lands the answer of a time in the shards of a pipeline, before anybody commits it.

    the shard at t              this replica computed      then
    ------------------------    -----------------------    ------------------------------------
    nothing yet (DUE)           no change                  nothing: an idle shard costs nothing
    nothing yet (DUE)           what ANSWER(t) says        append it, invisible until COMMIT(t)
    the answer's digest (LATE)  the same                   drop it: a peer was faster
    any                         what the answer denies     nothing: it is never sent

EARLY does not occur: nothing is computed at t before COMMIT(t - 1) has been read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.errors import invariant
from strandline.handles.verify import digest_at
from strandline.model.digest import Digest
from strandline.shard.command import UpperMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.handles.store import Store
    from strandline.handles.write import Appended, Writer
    from strandline.model.frontier import Time
    from strandline.pipeline.compute import Computed, Delta


class Landing:
    """The shards of one pipeline, and this replica's writers of them."""

    def __init__(self, store: Store, timeline: str) -> None:
        self._store = store
        self._timeline = timeline
        self._writers: dict[str, Writer] = {}

    def writers(self, shards: Mapping[str, str]) -> dict[str, Writer]:
        """A writer for each collection; opened when it is first asked for."""
        return {collection: self._writer(shard) for collection, shard in shards.items()}

    def land(
        self,
        computed: Computed,
        shards: Mapping[str, str],
        time: Time,
        epoch: int,
        answer: Mapping[str, Digest],
    ) -> int:
        """Append every change of the answer that nobody has appended; returns how many were ours.

        What was computed otherwise than the answer says stays here.
        """
        mine = 0
        for collection, digest in sorted(computed.digests().items()):
            if answer.get(collection) != digest:
                continue
            writer = self._writer(shards[collection])
            outcome = self._append(writer, computed.deltas[collection], time, epoch)
            if isinstance(outcome, UpperMismatch):
                invariant(outcome.upper.settled(time), "an attached shard takes any later time")
            else:
                mine += 1
        return mine

    def settled(self, shards: Mapping[str, str], time: Time) -> dict[str, Digest]:
        """What each shard holds at a time, committed or not; those that hold nothing are left out.

        A shard whose history is merged past the time is left out as well: the time is committed
        there, and the journal says what it held.
        """
        found = {}
        for collection, shard in shards.items():
            digest = digest_at(self._store.machine(shard), time)
            if digest is not None and digest != Digest.ZERO:
                found[collection] = digest
        return found

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, shard: str) -> Writer:
        writer = self._writers.get(shard)
        if writer is None:
            purpose = f"timeline {self._timeline}"
            writer = self._writers[shard] = self._store.shard(shard).writer(purpose)
        return writer

    def _append(
        self, writer: Writer, delta: Delta, time: Time, epoch: int
    ) -> Appended | UpperMismatch:
        upper = time + 1
        if delta.batch is not None:
            return writer.commit_parts_through(
                self._timeline, epoch, delta.batch, {time: delta.digest}, lower=time, upper=upper
            )
        rows: pa.Table | None = delta.updates
        invariant(rows is not None, "a change without rows and without parts")
        return writer.append_through(self._timeline, epoch, rows, lower=time, upper=upper)
