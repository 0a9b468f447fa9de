"""Shards whose rows are small numbers: states, pieces and commands without any bytes.

An update is `(row, time, diff)`. Its digest is the real one of a made-up row hash, so that what
adds up here adds up for the same reason as in production. A `ToyShard` remembers what every
piece holds and can tell what a reader would see, with nothing but a dictionary.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import invariant
from strandline.model.digest import Digest
from strandline.model.frontier import Frontier
from strandline.model.schema import Schema
from strandline.parts.part import PLACE_MAX, Batch, Chunk, Inline, Part
from strandline.shard import command as c
from strandline.shard.change import evolve
from strandline.shard.decide import decide
from strandline.shard.state import check, check_whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.shard.state import State

Update = tuple[int, int, int]

SCHEMA = Schema.create(pa.schema([("row", pa.int64())]), key=("row",))
NAME = "toy"
ID = "s" + "0" * 32
W1 = "w" + "1" * 32
W2 = "w" + "2" * 32
R1 = "r" + "1" * 32


@lru_cache(maxsize=4096)
def digest_of_row(row: int, diff: int) -> Digest:
    return Digest.of(np.array([row], dtype=np.uint64), np.array([diff], dtype=np.int64))


def digest_of(updates: Iterable[Update]) -> Digest:
    total = Digest.ZERO
    for row, _, diff in updates:
        total = total + digest_of_row(row, diff)
    return total


def digests_of(updates: Iterable[Update]) -> dict[int, Digest]:
    """One digest for each time that occurs."""
    found: dict[int, Digest] = {}
    for update in updates:
        found[update[1]] = found.get(update[1], Digest.ZERO) + digest_of([update])
    return found


def toy_part(key: str, updates: Iterable[Update]) -> Part:
    updates = tuple(updates)
    times = [time for _, time, _ in updates]
    return Part(
        key=key,
        size=100,
        checksum=7,
        rows=len(updates),
        digest=digest_of(updates).pack(),
        t_min=min(times),
        t_max=max(times),
        base=False,
        level=0,
        place_lo=0,
        place_hi=PLACE_MAX,
        schema=1,
    )


def toy_inline(updates: Iterable[Update]) -> Inline:
    updates = tuple(updates)
    times = [time for _, time, _ in updates]
    digest = digest_of(updates).pack()
    return Inline(len(updates), _payload(updates), digest, min(times), max(times), 1)


def toy_append(
    updates: Iterable[Update] = (),
    *,
    lower: int,
    upper: int | None,
    token: str,
    writer: str = W1,
    key: str = "",
) -> c.Append:
    """An append of these updates: inline, or as one part if it has a `key`."""
    updates = tuple(updates)
    batch = None
    if updates:
        end = max(time for _, time, _ in updates) + 1 if upper is None else upper
        parts = (toy_part(key, updates),) if key else ()
        inline = None if key else toy_inline(updates)
        batch = Batch(lower, end, parts=parts, inline=inline)
    return c.Append(writer, token, lower, Frontier(upper), batch, digests_of(updates), now_ms=1000)


def created(*, writers: Iterable[str] = (W1,)) -> State:
    """A new shard with these writers, all on pulse `0.0`."""
    state = step(None, c.Create(NAME, ID, SCHEMA, 5))
    for writer in writers:
        state = step(state, c.RegisterWriter(writer, "0.0"))
    return state


def step(state: State | None, command: c.Command, committed: Frontier | None = None) -> State:
    """Carry out a command that must change something, and prove all rules."""
    outcome = decide(state, command)
    invariant(isinstance(outcome, c.Changed), f"{command} gave {outcome}")
    return apply(state, outcome, committed)


def apply(state: State | None, outcome: c.Outcome, committed: Frontier | None = None) -> State:
    """The state after an outcome, with all rules proven."""
    if not isinstance(outcome, c.Changed):
        invariant(state is not None, "a shard that was never created stays so")
        return state  # type: ignore[return-value]  # proven on the line above
    after = evolve(state, outcome.change)
    if state is not None:
        check(state, after, committed)
    check_whole(after)
    return after


class ToyShard:
    """What the pieces of a shard hold, so that any version of it can be read."""

    def __init__(self) -> None:
        self.contents: dict[str, tuple[Update, ...]] = {}
        self.listed: dict[str, tuple[str, ...]] = {}
        """The parts of each chunk."""

    def put(self, key: str, updates: Iterable[Update]) -> Part:
        invariant(key not in self.contents, "a key is never used again")
        self.contents[key] = tuple(updates)
        return toy_part(key, self.contents[key])

    def put_chunk(self, key: str, parts: Iterable[Part]) -> Chunk:
        """A chunk of parts that are there already."""
        parts = tuple(parts)
        self.listed[key] = tuple(part.key for part in parts)
        self.contents[key] = ()
        updates = [update for part in parts for update in self.contents[part.key]]
        times = [time for _, time, _ in updates]
        return Chunk(
            key=key,
            size=10,
            checksum=7,
            parts=len(parts),
            rows=len(updates),
            part_bytes=100 * len(parts),
            digest=digest_of(updates).pack(),
            t_min=min(times),
            t_max=max(times),
            place_lo=0,
            place_hi=PLACE_MAX,
        )

    def part_keys(self, batch: Batch) -> list[str]:
        """The parts a reader would fetch; none of their chunks may be gone."""
        keys = [part.key for part in batch.parts]
        for chunk in batch.chunks:
            invariant(chunk.key in self.contents, f"chunk {chunk.key} is gone")
            keys += self.listed[chunk.key]
        return keys

    def updates(self, batch: Batch) -> list[Update]:
        """All updates of a batch; inline rows carry their own."""
        found = [update for key in self.part_keys(batch) for update in self.contents[key]]
        if batch.inline is not None:
            found += inline_updates(batch.inline)
        return found

    def read(self, state: State, as_of: int) -> Counter[int]:
        """What a snapshot at `as_of` would hold."""
        seen: Counter[int] = Counter()
        for batch in state.batches:
            for row, time, diff in self.updates(batch):
                if time <= as_of:
                    seen[row] += diff
        return Counter({row: count for row, count in seen.items() if count})


def _payload(updates: Iterable[Update]) -> bytes:
    return " ".join(str(number) for update in updates for number in update).encode()


def inline_updates(inline: Inline) -> list[Update]:
    numbers = [int(word) for word in inline.payload.split()]
    return list(zip(numbers[0::3], numbers[1::3], numbers[2::3], strict=True))


def merged(updates: Iterable[Update], since: int) -> list[Update]:
    """The updates as a compactor leaves them: times moved up to `since`, equal rows summed."""
    sums: Counter[tuple[int, int]] = Counter()
    for row, time, diff in updates:
        sums[row, max(time, since)] += diff
    return [(row, time, diff) for (row, time), diff in sorted(sums.items()) if diff]
