"""What is written under chaos: rows whose every column follows from their id, and digests of them.

    events   no key     independent writers that take the next time
    race     keyed      writers that race for one time, and retract what they wrote before
    agreed   keyed      two replicas that write the same stream

An append is a range of new ids, and perhaps another range that it retracts. Ids are never used
twice, so the digest of what is stored at a time says which append that was, if any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

COLUMNS = pa.schema([("id", pa.int64()), ("mark", pa.int64()), ("pad", pa.string())])
SHARDS: dict[str, tuple[str, ...]] = {"events": (), "race": ("id",), "agreed": ("id",)}
RETAIN = {"events": "1s or 30 versions", "race": "2s", "agreed": "40 versions"}

LIFE_BITS = 24
"""So many bits of an id count the rows of one life; those above name the life."""

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Digest:
    """The sum of the diffs, and of the hashes of ids, each as often as its diff says."""

    count: int = 0
    total: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.count + other.count, (self.total + other.total) & _MASK)

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.count - other.count, (self.total - other.total) & _MASK)


NOTHING = Digest()


@dataclass(frozen=True, slots=True)
class Span:
    """Some ids in a row."""

    first: int = 0
    count: int = 0

    def ids(self) -> np.ndarray:
        return np.arange(self.first, self.first + self.count, dtype=np.int64)

    def digest(self) -> Digest:
        return digest_of(self.ids())


def mixed(ids: np.ndarray) -> np.ndarray:
    """One 64-bit hash for each id (splitmix64)."""
    with np.errstate(over="ignore"):
        z = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def digest_of(ids: np.ndarray, diffs: np.ndarray | None = None) -> Digest:
    hashes = mixed(ids)
    if diffs is None:
        return Digest(len(ids), int(hashes.sum(dtype=np.uint64)))
    with np.errstate(over="ignore"):
        total = (hashes * diffs.astype(np.uint64)).sum(dtype=np.uint64)
    return Digest(int(diffs.sum()), int(total))


NO_IDS = Span()


def rows(new: Span, gone: Span = NO_IDS) -> pa.Table:
    """The updates of one append, without their time."""
    ids = np.concatenate([new.ids(), gone.ids()])
    diffs = np.concatenate([np.ones(new.count, np.int64), -np.ones(gone.count, np.int64)])
    marks = mixed(ids).view(np.int64)
    pads = [f"{mark & 0xFFFFFFFF:08x}" * 5 for mark in marks.tolist()]
    return pa.table({"id": ids, "mark": marks, "pad": pa.array(pads, pa.string()), "_diff": diffs})


def digest_of_table(table: pa.Table, diffs: np.ndarray | None = None) -> Digest:
    """The digest of what was read; raises if a row is not what its id says."""
    ids = table["id"].to_numpy()
    if not np.array_equal(table["mark"].to_numpy(), mixed(ids).view(np.int64)):
        raise MangledError(f"{table.num_rows} rows were read, and some are not what was written")
    return digest_of(ids, diffs)


class MangledError(Exception):
    """A row was read that nobody wrote like this."""


def agreed(time: int) -> tuple[Span, Span]:
    """What every replica writes at a time: new ids, and those it retracts."""
    count = 1 + int(mixed(np.array([time]))[0] % np.uint64(60))
    new = Span(time << 12, count)
    if time % 5 or not time:
        return new, NO_IDS
    return new, agreed_new(time - 3)


def agreed_new(time: int) -> Span:
    return agreed(time)[0]
