"""The numbers of upkeep, its units of work, and when its smaller jobs are due. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.model.frontier import Frontier, Time
    from strandline.parts.part import Batch, Chunk, Part
    from strandline.shard.settings import Settings
    from strandline.shard.state import State

MIB = 1024 * 1024
LEVEL_MAX = 60
RESIDUE = 61
BOTTOM = 62
"""The level of base parts."""
FULL = 63
"""The level of parts without places that were cut because they had become large enough."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers of the rules above."""

    part_bytes: int = 128 * MIB
    """A base part has at least this much, and at most twice as much."""
    range_rows: int = 4_000_000
    unit_bytes: int = 1024 * MIB
    unit_parts: int = 512
    runs_max: int = 8
    fold_ratio: float = 0.25
    fold_min: int = MIB
    flush_bytes: int = 512 * 1024
    flush_batches: int = 128
    direct_parts: int = 256
    """A state that lists more parts itself puts them into chunks."""
    slots: int = 0
    """So many tasks wait for units, if somebody else than this process carries them out."""

    @property
    def range_max(self) -> int:
        return 2 * self.part_bytes

    @property
    def row_bytes(self) -> int:
        return max(1, self.range_max // self.range_rows)


@dataclass(frozen=True, slots=True)
class Unit:
    """One piece of work: these pieces become others that hold the same updates."""

    reason: str
    parts: tuple[Part, ...] = ()
    inline: tuple[Time, ...] = ()
    """The lower bounds of batches whose inline rows take part."""
    base: bool = False
    """Whether rows that are live at `since` go into base parts."""
    halvings: int = 0
    """How often the range of the parts is halved for the output."""
    level: int = 0
    span: tuple[int, int] | None = None
    """If given, only what lies at its places, first to last; others merge the rest (`spans`)."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Gather:
    """Parts that a state lists itself, and small chunks, become chunks; no row is touched."""

    parts: tuple[Part, ...]
    chunks: tuple[Chunk, ...]


def policy_of(settings: Settings) -> Policy:
    return Policy(
        part_bytes=settings.part_target_bytes,
        range_rows=settings.part_target_rows,
        unit_bytes=settings.unit_max_bytes,
        runs_max=settings.fanout,
        flush_bytes=settings.inline_flush_bytes,
        flush_batches=settings.inline_flush_batches,
    )


def settled_batches(state: State, committed: Frontier | None) -> tuple[Batch, ...]:
    """The batches that may be rewritten: what a timeline has not committed may be withdrawn."""
    if state.timeline is None:
        return state.batches
    if committed is None:
        return ()
    return tuple(
        b for b in state.batches if committed.is_closed or b.upper <= (committed.time or 0)
    )


def foldable(part: Part, since: Time) -> float:
    """The share of a part's updates that `since` has passed, by its times; 0 for a base."""
    if part.base or part.t_min > since:
        return 0.0
    if part.level == RESIDUE:
        times = part.t_max - part.t_min
        return 0.0 if times == 0 else (min(since, part.t_max) - part.t_min) / times
    return (min(since, part.t_max) - part.t_min + 1) / (part.t_max - part.t_min + 1)


def gather(state: State, policy: Policy, committed: Frontier | None = None) -> Gather | None:
    """What to put into chunks, if the state itself lists too many parts or small chunks.

    Batches that lose a piece to a chunk are fused, so this too leaves alone what may still be
    withdrawn: a batch with committed and uncommitted times could never be cut again.
    """
    if state.dropped:
        return None
    batches = settled_batches(state, committed)
    direct = [part for batch in batches for part in batch.parts]
    small = [c for batch in batches for c in batch.chunks if c.parts < 1024]
    if len(direct) <= policy.direct_parts and len(small) <= 16:
        return None
    # The lightest ones will be rewritten soon, so they stay where that costs nothing.
    direct.sort(key=lambda part: (-part.level, -part.size, part.key))
    moved = direct[: max(0, len(direct) - policy.direct_parts // 4)]
    homes = {part.key for part in moved}
    touched = [
        at
        for at, batch in enumerate(batches)
        if any(part.key in homes for part in batch.parts) or any(c in small for c in batch.chunks)
    ]
    between = batches[touched[0] : touched[-1] + 1] if touched else ()
    if not touched or any(batch.inline is not None for batch in between):
        return None  # The next flush clears the way.
    return Gather(tuple(moved), tuple(small))


def manifest_due(state: State, *, every: int) -> bool:
    """Whether opening the shard has become slower than a manifest would make it.

    Records are counted, not measured: none is much larger than the largest inline append.
    """
    last = -1 if state.manifest is None else state.manifest.seqno
    return state.seqno.number - last >= every


def moments_due(state: State, *, loose: int) -> int:
    """How many of the oldest listed moments should move into an object; 0 if none."""
    return len(state.moments) // 2 if len(state.moments) > loose else 0


def rows_pile_up(state: State, settings: Settings) -> bool:
    """Whether so many rows stand in the metadata that moving them can't wait for a pause.

    Asked after every append, so it looks at a sum that is carried along and at one batch.
    """
    if state.inline_bytes() >= settings.inline_flush_bytes:
        return True
    many = settings.inline_flush_batches
    return len(state.batches) >= many and state.batches[-many].inline is not None
