"""One life of one process of a chaos run: its store, its journal, its chance."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.content import LIFE_BITS, SHARDS, Digest, Span
from tests.chaos.journal import Journal, now

from strandline.errors import LeaseLostError
from strandline.handles.shard import Shard
from strandline.handles.store import Store
from strandline.shard.settings import Settings

SETTINGS = Settings(
    inline_max_bytes=1024,
    inline_flush_bytes=16 * 1024,
    inline_flush_batches=8,
    manifest_every=24,
    moments_loose=48,
    upkeep_ms=50,
    scan_page=16,
)
"""Small numbers, so that a run of a minute has many objects, manifests and compactions."""


class Life:
    """What a role has to work with."""

    def __init__(self, store: Store, journal: Journal, number: int, seed: int) -> None:
        self.store = store
        self.journal = journal
        self.number = number
        self.random = random.Random(seed)
        self.stopped = False
        self._parent = os.getppid()
        self._next = number << LIFE_BITS
        self._intents = 0
        self.shards = {name: store.shard(name) for name in SHARDS}

    def going(self) -> bool:
        """Whether to go on; whoever started us may be gone."""
        return not self.stopped and os.getppid() == self._parent

    def rest(self, longest_ms: float) -> None:
        time.sleep(self.random.uniform(0, longest_ms) / 1000)

    def span(self, count: int = 0) -> Span:
        """New ids: mostly a few rows, sometimes enough for an object of several blocks."""
        count = count or self.random.choice((1, 3, 5, 20, 60, 400))
        first = self._next
        self._next += count
        return Span(first, count)

    def intend(self, shard: str, lower: int | None, new: Span, gone: Span) -> int:
        self._intents += 1
        self.journal.swear(
            "intent",
            self._intents,
            shard,
            lower,
            new.first,
            new.count,
            gone.first,
            gone.count,
            now(),
        )
        return self._intents

    @contextmanager
    def trying(self, number: int) -> Iterator[None]:
        """A lost lease means that the append did not count, and that is written down too."""
        try:
            yield
        except LeaseLostError:
            self.journal.swear("refused", number, now())
            raise

    def seen(self, shard: Shard) -> tuple[int, int]:
        """`since` and upper as they are now, written down."""
        start = now()
        state = shard.state()
        upper = state.upper.time or 0
        self.journal.note(
            "seen", shard.name, state.readable_from(), upper, state.seqno.number, start, now()
        )
        return state.readable_from(), upper

    def served(self, shard: str, as_of: int, digest: Digest) -> None:
        self.journal.note("read", shard, as_of, digest.count, digest.total)
