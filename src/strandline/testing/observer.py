"""Watches what really happens in the shared store of a simulated history.

Every process has its own faulty handles; behind all of them lie the stores of this file, which
see each effect at the moment it happens, whoever caused it and whether or not anybody was told.
They read records with the shard's codec and rows with nothing but Arrow, and record versions,
appends and deletions for the checkers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.parts.chunk import decode_chunk
from strandline.parts.inline import decode_inline
from strandline.shard.change import Change, evolve
from strandline.shard.codec import decode_record
from strandline.store.consensus import CasResult
from strandline.store.memory import MemoryBlob, MemoryConsensus
from strandline.testing.history import CLOSED, Committed, Deleted, History, Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.parts.part import Batch, Chunk
    from strandline.shard.state import State
    from strandline.store.blob import BlobEntry
    from strandline.store.consensus import Versioned
    from strandline.testing.history import Update

_SHARD = "shard/"


def row_text(row: dict[str, object]) -> str:
    """A row as text; a column that is null says nothing, so that new columns change nothing."""
    return " ".join(
        f"{name}={value}"
        for name, value in row.items()
        if value is not None and name not in ("_time", "_diff")
    )


def update_list(table: pa.Table) -> tuple[Update, ...]:
    """The updates of an Arrow table with `_time` and `_diff`, as checkers want them."""
    return tuple((row_text(row), row["_time"], row["_diff"]) for row in table.to_pylist())


def number(time: int | None) -> int:
    return CLOSED if time is None else time


class Observer:
    """The truth about one store, recorded."""

    def __init__(
        self, history: History, now_us: Callable[[], int], store_ms: Callable[[], int]
    ) -> None:
        self.history = history
        self._store_ms = store_ms
        self.states: dict[str, State] = {}
        self.objects = MemoryBlob()
        self._now_us = now_us
        self._births: dict[str, int] = {}
        self._labels: dict[str, str] = {}
        self._last_needed: dict[str, int] = {}
        self._put_by: dict[str, str] = {}
        self._listed: dict[str, tuple[str, ...]] = {}
        self._moments: dict[str, list[tuple[int, int]]] = {}
        self._latest_ms = 0

    def label(self, name: str) -> str:
        """The name of a shard; one that took a dropped shard's name has a number as well."""
        births = self._births.get(name, 1)
        return name if births == 1 else f"{name}#{births}"

    def label_of(self, shard_id: str) -> str:
        """The label of the shard with this id, even if it was dropped since."""
        return self._labels[shard_id]

    def version(self, name: str, version: Versioned) -> None:
        """A version of a shard was committed."""
        change = decode_record(name, version.seqno, version.data).change
        if change.created is not None:
            self._births[name] = self._births.get(name, 0) + 1
        before = self.states.get(name)
        state = self.states[name] = evolve(before, change)
        label = self._labels[state.id] = self.label(name)
        if before is not None:
            self._ended(before, state)
        allowed = None
        if before is not None and change.since is not None:
            allowed = self._allowed(before, label)
        self._remember(label, change)
        for key in self.references(state):
            self._last_needed[key] = state.seqno.number
        if before is not None and change.splice is not None and change.moments_cut:
            self._withdrawn(label, number(change.upper))
        if change.batches and change.splice is None:
            self._appended(label, state, change)
        self.history.versions.append(
            Version(
                label,
                self._now_us(),
                state.seqno.number,
                number(state.upper.time),
                number(state.since.time),
                state.epoch,
                _holds(state),
                attached=state.timeline is not None,
                allowed=allowed,
            )
        )

    def latest_ms(self) -> int:
        """The most that anybody may have seen on the store's clock."""
        self.clock_was(self._store_ms())
        return self._latest_ms

    def _ended(self, before: State, after: State) -> None:
        for reader in before.readers.keys() - after.readers.keys():
            term = self.history.terms.get(reader)
            if term is not None and term.ended_ms is None:
                term.ended_ms = self.latest_ms()

    def clock_was(self, now_ms: int) -> None:
        """Somebody may have seen this much on the store's clock."""
        self._latest_ms = max(self._latest_ms, now_ms)

    def put(self, key: str, process: str) -> None:
        self._put_by.setdefault(key, process)

    def delete(self, key: str, process: str) -> None:
        """An object is about to be deleted."""
        held_by = () if self.objects.get(key) is None else tuple(self.holders(key, process))
        self.history.deleted.append(
            Deleted(key.split("/", maxsplit=1)[0], key, self._now_us(), held_by)
        )

    def holders(self, key: str, process: str = "") -> Iterator[str]:
        """Why an object may not be deleted."""
        shard_id, _, rest = key.partition("/")
        needed = self._last_needed.get(key, -1)
        for state in self.states.values():
            owns = state.id == shard_id or needed >= 0
            hold = min((r.seqno for r in state.readers.values()), default=state.seqno.number)
            if owns and needed >= hold and self._is_of(state, key):
                yield f"v{needed} of {state.name} refers to it and v{hold} is held"
            writer = rest.split("/")[0]
            listed = any(key in (*g.keys, *g.chunks) for g in state.garbage)
            unborn = writer in state.writers and needed < 0 and not listed
            if unborn and self._put_by.get(key) != process:
                yield f"writer {writer} is registered and may be about to append it"

    def references(self, state: State) -> Iterator[str]:
        """Every object that a version needs, those that its chunks list included."""
        for batch in state.batches:
            yield from self._of_batch(batch, state)
        yield from (chunk.key for chunk in state.moment_chunks)
        if state.manifest is not None:
            yield state.manifest.key

    def _of_batch(self, batch: Batch, state: State) -> Iterator[str]:
        yield from batch.object_keys()
        for chunk in batch.chunks:
            yield from self._of_chunk(chunk, state)

    def _of_chunk(self, chunk: Chunk, state: State) -> tuple[str, ...]:
        known = self._listed.get(chunk.key)
        if known is None:
            found = self.objects.get(chunk.key)
            if found is None:
                return ()
            table = decode_chunk(found, chunk, shard=state.id)
            known = self._listed[chunk.key] = tuple(table.columns.column("key").to_pylist())
        return known

    def _remember(self, label: str, change: Change) -> None:
        moments = self._moments.setdefault(label, [])
        if change.moments_cut:
            del moments[-change.moments_cut :]
        moments += [(moment.time, moment.instant_ms) for moment in change.moments]

    def _allowed(self, before: State, label: str) -> int:
        """How far retention lets history be merged, worked out from all moments ever made."""
        self.clock_was(self._store_ms())
        moments, rule = self._moments.get(label, []), before.retention
        newest = moments[-1][0] if before.timeline is None and moments else CLOSED
        wanted = [newest]
        if rule.count is not None:
            wanted.append(moments[-rule.count][0] if len(moments) >= rule.count else 0)
        if rule.duration_ms is not None:
            oldest = self._latest_ms - rule.duration_ms
            wanted.append(max((time for time, ms in moments if ms <= oldest), default=0))
        if rule.count is None and rule.duration_ms is None:
            wanted.append(0)
        return max(before.readable_from(), min(wanted))

    def _is_of(self, state: State, key: str) -> bool:
        return key.startswith(f"{state.id}/") or any(key in g.keys for g in state.garbage)

    def _appended(self, label: str, state: State, change: Change) -> None:
        for batch in change.batches:
            updates = tuple(self._rows(batch, state))
            self.history.committed.append(Committed(label, self._now_us(), batch.lower, updates))

    def _rows(self, batch: Batch, state: State) -> Iterator[Update]:
        if batch.inline is not None:
            schema = state.schema
            yield from update_list(decode_inline(batch.inline, schema, shard=state.name))
        keys = [part.key for part in batch.parts]
        for key in (*keys, *(key for c in batch.chunks for key in self._of_chunk(c, state))):
            found = self.objects.get(key)
            if found is not None:
                yield from update_list(pq.ParquetFile(pa.BufferReader(found)).read())

    def _withdrawn(self, label: str, lower: int) -> None:
        self.history.committed[:] = [
            Committed(c.shard, c.at, c.lower, c.updates, gone=True)
            if c.shard == label and c.lower >= lower
            else c
            for c in self.history.committed
        ]


def _holds(state: State) -> dict[str, int]:
    """What readers and critical holds keep readable, read without the help of `State`."""
    leased = {name: r.since for name, r in state.readers.items() if r.since is not None}
    return {**leased, **{name: hold.since for name, hold in state.holds.items()}}


class ObservedBlob(MemoryBlob):
    """The shared objects, as one process reaches them."""

    def __init__(self, observer: Observer, process: str) -> None:
        super().__init__()
        self._observer = observer
        self._shared = observer.objects
        self._process = process

    def get(self, key: str) -> bytes | None:
        return self._shared.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes | None:
        return self._shared.get_range(key, start, length)

    def put(self, key: str, value: bytes) -> None:
        self._observer.put(key, self._process)
        self._shared.put(key, value)

    def delete(self, key: str) -> bool:
        self._observer.delete(key, self._process)
        return self._shared.delete(key)

    def list(self, prefix: str) -> Iterator[BlobEntry]:
        return self._shared.list(prefix)


class ObservedConsensus(MemoryConsensus):
    """The shared versions; one for all processes."""

    def __init__(self, observer: Observer, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._observer = observer

    def compare_and_set(self, key: str, new: Versioned) -> CasResult:
        result = super().compare_and_set(key, new)
        if result is CasResult.COMMITTED and key.startswith(_SHARD):
            self._observer.version(key.removeprefix(_SHARD), new)
        return result

    def now_ms(self) -> int:
        now = super().now_ms()
        self._observer.clock_was(now)
        return now
