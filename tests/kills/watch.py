"""Watches a store from outside while replicas come and go, and remembers all that it saw.

What it once read at a time it reads again later: history never changes.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from tests.kills import history
from tests.kills.shop import Content

import strandline
from strandline.errors import StrandlineError
from strandline.handles.shard import Shard
from strandline.journal.log import Journal

NAME = "shop"
POLL_S = 0.002


class Watch:
    """An eye on one pipeline of one store. Close it."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.url = str(folder)
        self._store = strandline.open(self.url, upkeep=False)
        self.journal = Journal(self._store.env, NAME)
        self._random = random.Random(seed)
        self._seen: dict[tuple[str, int], str] = {}
        self._records: list[history.Transaction] = []
        self.reads = 0
        self.wrong: list[str] = []

    def close(self) -> None:
        self._store.close()

    def committed(self) -> int:
        """How many transactions are committed."""
        return self.journal.refresh().next_t

    def sealed(self) -> int | None:
        found = self.journal.refresh().sealed
        return None if found is None else found.t

    def collections(self) -> list[str]:
        return sorted(self.journal.refresh().bindings)

    def shard(self, name: str) -> Shard:
        return self._store.shard(self.journal.refresh().bindings[name].shard)

    def rows(self, name: str, t: int) -> pa.Table:
        with self.shard(name).snapshot(as_of=t) as snapshot:
            return snapshot.to_arrow()

    def content(self, name: str, t: int) -> Content:
        """What a collection holds at a time, as plain rows; what can't be read, in words."""
        try:
            table = self.rows(name, t)
        except StrandlineError as error:
            return Counter([(f"unreadable: {error}",)])
        return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def digest(self, name: str, t: int) -> str:
        """The bytes of a collection at a time, sorted, as a hash."""
        try:
            found = self.rows(name, t)
        except StrandlineError as error:
            self.wrong.append(f"{name} at {t} can't be read: {error}")
            return "unreadable"
        return hashlib.blake2b(canonical(found), digest_size=16).hexdigest()

    def look(self) -> None:
        """Read something that is new, and something that was read before."""
        committed = self.committed()
        if committed:
            name = self._random.choice(self.collections())
            self._read(name, committed - 1)
            self._read(*self._random.choice(list(self._seen)))

    def look_at_all(self) -> None:
        """At once: all that is committed can be read, and is what it was."""
        committed = self.committed()
        for name in self.collections() if committed else []:
            self._read(name, committed - 1)

    def look_again(self) -> None:
        """Everything that was ever read, once more; and every record."""
        for name, t in sorted(self._seen):
            self._read(name, t)
        self.history()

    def history(self) -> list[history.Transaction]:
        """The journal; what was on record before is on record still."""
        found = history.read(self.journal)
        if found[: len(self._records)] != self._records:
            self.wrong.append("records of the journal changed")
        self._records = found
        return found

    def wait(self, holds: Callable[[], bool], within_s: float) -> bool:
        """Look on until something holds; whether it did within that time."""
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _read(self, name: str, t: int) -> None:
        found = self.digest(name, t)
        self.reads += 1
        known = self._seen.setdefault((name, t), found)
        if known != found:
            self.wrong.append(f"{name} at {t} was {known} and is {found}")


def canonical(table: pa.Table) -> bytes:
    """The rows of a table in one order, as bytes."""
    ordered = table.combine_chunks().replace_schema_metadata()
    if ordered.num_rows:
        ordered = ordered.sort_by([(name, "ascending") for name in ordered.column_names])
    sink = pa.BufferOutputStream()
    plain = pa.schema([pa.field(each.name, each.type) for each in ordered.schema])
    with pa.ipc.new_stream(sink, plain) as writer:
        writer.write_table(ordered.cast(plain).combine_chunks())
    return sink.getvalue().to_pybytes()


def sampled(count: int, of: int, seed: int) -> Sequence[int]:
    """So many times below `of`, in order; the first and the last are always there."""
    if of <= count:
        return range(of)
    inner = random.Random(seed).sample(range(1, of - 1), count - 2)
    return sorted([0, of - 1, *inner])
