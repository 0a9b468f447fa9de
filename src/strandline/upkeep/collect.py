"""Deletes what nobody needs.

The order in which it touches durable things; every crash point is safe:

    1  dead     readers and writers whose processes are gone lose what they hold
    2  parts    of chunks that are garbage with all they list    crash: listed still, done again
    3  objects  that are garbage and that nobody holds           crash: listed still, done again
    4  forget   the state stops listing them                     crash: nothing is left to do
    5  records  before the newest manifest                       crash: cut again next time

A sweep for orphans lists objects first and loads the state after that (see `garbage`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import CorruptionError
from strandline.shard import command as c
from strandline.shard.machine import Machine
from strandline.shard.versions import shard_key
from strandline.upkeep.garbage import (
    deletable,
    held,
    listed_parts,
    listing_chunks,
    orphans,
    orphans_of_dropped,
    shard_of,
    truncate_before,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from strandline.shard.env import Env
    from strandline.shard.leases import Leases
    from strandline.shard.state import State
    from strandline.store.blob import BlobEntry

_FORGET_AT_ONCE = 1024
"""So many objects are forgotten in one version, so that its record stays small."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What one collection did."""

    deleted: int = 0
    orphans: int = 0
    truncated: bool = False

    def __bool__(self) -> bool:
        return bool(self.deleted or self.orphans or self.truncated)


class Collector:
    """Collects the garbage of shards. Any number of processes may do so at once."""

    def __init__(self, env: Env, leases: Leases) -> None:
        self._env = env
        self._leases = leases
        self._truncated: dict[str, int] = {}

    def collect(self, machine: Machine) -> Collected:
        """Delete the garbage that nobody holds, and the records that nobody needs."""
        self._leases.bury(machine)
        if machine.state.garbage:
            self._leases.sync(machine)
        deleted = self._delete_garbage(machine, machine.refresh())
        return Collected(deleted, truncated=self._truncate(machine.name, machine.state))

    def sweep(self, machine: Machine, *, delete: bool) -> list[BlobEntry]:
        """Find the orphans of a shard, and `delete` them if told to."""
        shard_id = machine.refresh().id
        listed = self._env.patient(
            lambda: list(self._env.blob.list(f"{shard_id}/")), shard=machine.name
        )
        state = machine.refresh()
        if state.id != shard_id:
            return []
        gone = {key for entry in state.garbage for key in entry.chunks}
        lists = {key: self._listed(key, gone=key in gone) for key in listing_chunks(state)}
        found = orphans(state, listed, lists)
        if delete:
            for entry in found:
                self._delete(entry.key, machine.name)
            self._env.metrics.add("orphans_deleted", machine.name, len(found))
        return found

    def sweep_dropped(
        self, *, delete: bool, proven: Collection[str] | None = None
    ) -> list[BlobEntry]:
        """Find what is left of shards whose names others have taken, over the whole store.

        Only what lies under `proven` ids is deleted; without them, whoever asks knows that the
        objects belong to this store and that it lost no records (R18).
        """
        listed = self._env.patient(lambda: list(self._env.blob.list("")))
        names = self._env.patient(lambda: self._env.consensus.keys("shard/"))
        ids: set[str] = set()
        kept: set[str] = set()
        for name in names:
            state = Machine(self._env, name.removeprefix("shard/")).refresh()
            lists = {key: self._listed(key, gone=True) for key in listing_chunks(state)}
            ids.add(state.id)
            kept |= held(state, lists)
        found = orphans_of_dropped(ids, kept, listed)
        if delete:
            keys = [entry.key for entry in found]
            self._delete_all((k for k in keys if proven is None or shard_of(k) in proven), "")
        return found

    def _delete_garbage(self, machine: Machine, state: State) -> int:
        free = deletable(state)
        for key in sorted(free.chunks):
            self._delete_all(self._parts_of(key), machine.name)
        keys = sorted(free.keys)
        for start in range(0, len(keys), _FORGET_AT_ONCE):
            gone = keys[start : start + _FORGET_AT_ONCE]
            self._delete_all(gone, machine.name)
            machine.demand(c.Forget(frozenset(gone)))
        return len(keys)

    def _parts_of(self, key: str) -> list[str]:
        """What a garbage chunk lists. If it can't be read, a sweep will find its parts."""
        try:
            return self._listed(key, gone=True)
        except CorruptionError:
            return []

    def _listed(self, key: str, *, gone: bool) -> list[str]:
        """The parts of a chunk. One that is `gone` may have been deleted, after its parts."""
        listing = self._env.patient(lambda: self._env.blob.get(key))
        if listing is None and gone:
            return []
        if listing is None:
            raise CorruptionError(f"part list {key} is missing; run `strandline fsck`")
        return listed_parts(key, listing)

    def _delete_all(self, keys: Iterable[str], shard: str) -> None:
        for key in keys:
            if self._delete(key, shard):
                self._env.metrics.add("objects_deleted", shard)

    def _delete(self, key: str, shard: str) -> bool:
        return self._env.patient(lambda: self._env.blob.delete(key), shard=shard)

    def _truncate(self, name: str, state: State) -> bool:
        before = truncate_before(state)
        if before is None or self._truncated.get(name, -1) >= before.number:
            return False
        self._env.patient(lambda: self._env.consensus.truncate(shard_key(name), before), shard=name)
        self._truncated[name] = before.number
        return True
