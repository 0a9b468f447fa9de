"""Changes that wait to be published, by time, in bounded memory.

    add      keep changes, each at its `_time`
    merge    let all that is at or before a time be at that time
    take     what is at a time: consolidated, in pieces, those of one key next to each other

What does not fit into memory is spilled, the largest time first, cut by the hash of the key into
buckets, so that each bucket can be consolidated by itself. One that is itself too large is cut
again when it is taken, by further bits of the hash: a table of any size leaves in pieces of bounded
size. Only the changes of one key are never cut. A crash leaves files that belong to nobody: all of
it is read again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import StoreError
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import consolidate
from strandline.parts.ranks import ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.model.clock import Random
    from strandline.model.frontier import Time
    from strandline.model.valuehash import I64, U64
    from strandline.store.blob import Blob

MEMORY_MAX = 64 * 1024 * 1024
BUCKETS = 64
_BITS = (BUCKETS - 1).bit_length()


@dataclass(slots=True)
class _Bucket:
    """Changes that are spilled, of keys whose hashes begin alike."""

    names: list[str] = field(default_factory=list)
    """The objects that hold them."""
    bytes: int = 0
    lowest: int = 2**64
    highest: int = 0
    """Of the hashes: a bucket that has one alone can't be cut."""

    def add(self, other: _Bucket) -> None:
        self.names += other.names
        self.bytes += other.bytes
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)


@dataclass(slots=True)
class Pending:
    """The changes of one collection."""

    spill: Callable[[], Blob]
    """Where to spill; asked when it is needed first."""
    random: Random
    key: Sequence[str] = ()
    memory_max: int = MEMORY_MAX
    depth: int = 0
    """How often its changes were cut before: those bits of their hashes are all the same."""
    _pieces: dict[Time, list[pa.Table]] = field(default_factory=dict)
    _spilled: dict[Time, dict[int, _Bucket]] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Keep changes: the columns, `_time` and `_diff`. May fail halfway, and is then useless."""
        times = rows.column(TIME_COLUMN).to_numpy()
        plain = rows.drop_columns([TIME_COLUMN])
        for time, at in _groups(times):
            # Taken and not sliced: a slice would keep the whole table in memory.
            piece = plain if at is None else plain.take(pa.array(at))
            self._pieces.setdefault(time, []).append(piece)
        self._make_room()

    @property
    def memory_bytes(self) -> int:
        return sum(_size(each) for each in self._pieces.values())

    def times(self) -> list[Time]:
        """The times that have changes, which may cancel."""
        return sorted({*self._pieces, *self._spilled})

    def merge(self, upto: Time) -> None:
        """What changed at or before a time shall be seen as one change at that time."""
        for time in [each for each in self.times() if each < upto]:
            if time in self._pieces:
                self._pieces.setdefault(upto, []).extend(self._pieces.pop(time))
            for number, bucket in self._spilled.pop(time, {}).items():
                self._add(upto, number, bucket)

    def take(self, time: Time) -> Iterator[pa.Table]:
        """What is at a time, once: pieces that have rows, the columns and `_diff`."""
        if time not in self._spilled:
            yield from self._consolidated(self._pieces.pop(time, []))
            return
        if time in self._pieces:
            self._put_away(time)
        buckets = self._spilled.pop(time)
        for number in sorted(buckets):
            yield from self._taken(time, buckets.pop(number))

    def _taken(self, time: Time, bucket: _Bucket) -> Iterator[pa.Table]:
        found = map(self._brought_back, bucket.names)
        if bucket.bytes <= self.memory_max or bucket.lowest == bucket.highest:
            yield from self._consolidated(list(found))
            return
        finer = Pending(self.spill, self.random, self.key, self.memory_max, self.depth + 1)
        for each in found:
            finer._pieces.setdefault(time, []).append(each)
            finer._make_room()
        yield from finer.take(time)

    def _make_room(self) -> None:
        while self.memory_bytes > self.memory_max:
            self._put_away(max(self._pieces, key=lambda time: _size(self._pieces[time])))

    def _put_away(self, time: Time) -> None:
        rows = pa.concat_tables(self._pieces.pop(time))
        hashes = self._hashes(rows)
        for number, at in _groups(self._numbers(hashes)):
            name = f"pending/{self.random.token()}"
            some, theirs = (rows, hashes) if at is None else (rows.take(pa.array(at)), hashes[at])
            self.spill().put(name, _encoded(some))
            ends = int(theirs.min()), int(theirs.max())
            self._add(time, number, _Bucket([name], int(some.nbytes), *ends))

    def _add(self, time: Time, number: int, bucket: _Bucket) -> None:
        self._spilled.setdefault(time, {}).setdefault(number, _Bucket()).add(bucket)

    def _hashes(self, rows: pa.Table) -> U64:
        """Rows of one key, and equal rows, have the same."""
        names = self.key or [name for name in rows.column_names if name != DIFF_COLUMN]
        return row_base(rows.select(list(names)), range(1, len(names) + 1))

    def _numbers(self, hashes: U64) -> I64:
        """Of the buckets: the first bits that were not yet cut by."""
        left = hashes << np.uint64(self.depth * _BITS)
        found: I64 = (left >> np.uint64(64 - _BITS)).astype(np.int64)
        return found

    def _brought_back(self, name: str) -> pa.Table:
        encoded = self.spill().get(name)
        if encoded is None:
            # Nothing of ours is damaged: whoever tries again reads it anew.
            raise StoreError(
                f"changes that were spilled to {name} are gone: they are read again from the shard"
            )
        self.spill().delete(name)
        return pa.ipc.open_stream(encoded).read_all()

    def _consolidated(self, pieces: list[pa.Table]) -> Iterator[pa.Table]:
        if not pieces:
            return
        whole = consolidate(pa.concat_tables(pieces))
        if whole.num_rows:
            yield self._in_order(whole)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """By key, what goes before what comes; without a key, as they are."""
        if not self.key or rows.num_rows == 1:
            return rows
        place = ranks([rows.column(name) for name in self.key], rows.num_rows)
        if (place[1:] > place[:-1]).all():
            return rows  # As shards keep them: a row for each key, in order.
        order = np.lexsort((rows.column(DIFF_COLUMN).to_numpy(), place))
        return rows.take(pa.array(order))


def _groups(values: I64) -> Iterator[tuple[int, I64 | None]]:
    """Each value with the positions where it is; without positions if it is everywhere."""
    order = np.argsort(values, kind="stable")
    found, starts = np.unique(values[order], return_index=True)
    if len(found) == 1:
        yield int(found[0]), None
        return
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=False)


def _size(pieces: list[pa.Table]) -> int:
    return sum(int(each.nbytes) for each in pieces)


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
