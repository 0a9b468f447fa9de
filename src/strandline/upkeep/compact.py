"""Carries out one unit of compaction.

The order in which it touches durable things; every crash point is safe:

    1  writer   registered before anything is put    crash: the lease ends, then 3 are orphans
    2  pin      taken before the state is listed      crash: the lease ends, inputs may go
    3  outputs  objects that nothing refers to yet    crash: orphans, swept later
    4  digests  what was read == what was written     else nothing is swapped
    5  swap     one commit: outputs in, inputs out    crash before: orphans; after: done
    6  inputs   are garbage now, deleted by `collect` once no hold needs them

Steps 1 and 2 are the caller's (`upkeep`). Appends never wait for any of it. Where somebody else
was faster, the outcome is stale and the outputs are deleted, if nothing refers to them for sure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import CorruptionError
from strandline.model.digest import Digest
from strandline.parts.chunk import PartTable, chunk_key, encode_chunk
from strandline.parts.part import CHUNK_PARTS, chunk_keys
from strandline.shard import command as c
from strandline.shard.cancel import check_cancel
from strandline.shard.machine import raise_refusal
from strandline.upkeep.merge import merge, output_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.model.valuehash import Mask
    from strandline.parts.part import Chunk, Part
    from strandline.shard.cancel import Cancel
    from strandline.shard.chunks import Chunks
    from strandline.shard.env import Env
    from strandline.shard.lease import WriteLease
    from strandline.shard.machine import Machine
    from strandline.shard.state import State
    from strandline.upkeep.units import Gather, Policy, Unit

Report: TypeAlias = "Callable[[str, int, int], None]"
"""Called as `report(what, done, total)`, now and then, by long work."""

_OUTPUTS_LISTED = 64
"""More parts than this go into a chunk, so that records stay small."""
_ATTEMPTS = 6


@dataclass(frozen=True, slots=True)
class Work:
    """What a unit is carried out with."""

    machine: Machine
    writer: WriteLease
    chunks: Chunks
    policy: Policy
    report: Report | None = None
    cancel: Cancel | None = None

    @property
    def env(self) -> Env:
        return self.machine.env


def carry_out(work: Work, state: State, unit: Unit) -> bool:
    """Merge one unit of `state`, which the caller has pinned; `False` if it was stale."""
    total = sum(part.rows for part in unit.parts)

    def watch(done: int) -> None:
        check_cancel(work.cancel, f"compaction of shard {state.name}")
        work.writer.check()
        if work.report is not None:
            work.report(f"{unit.reason} {state.name}", min(done, total), total)

    bytes_max = output_bytes(work.policy)
    merged = merge(work.env, state, unit, writer=work.writer.id, bytes_max=bytes_max, watch=watch)
    return finish(work, state, unit, merged.parts)


def finish(work: Work, state: State, unit: Unit, parts: Sequence[Part]) -> bool:
    """Swap a unit for the parts that its merge gave, wherever that was; `False` if stale."""
    total = Digest.ZERO
    for part in parts:
        total += part.total
    expected = _expected(state, unit)
    if total != expected:
        raise CorruptionError(
            f"shard {state.name}: what was read of {len(unit.parts)} parts adds up to "
            f"{total}, and the state says {expected}; run `strandline fsck --deep`"
        )
    if _swap(work, unit, parts):
        work.env.metrics.add("compactions", state.name)
        return True
    work.env.metrics.add("compactions_stale", state.name)
    _take_back(work, [part.key for part in parts])
    return False


def put_together(work: Work, wanted: Gather) -> bool:
    """Put parts that the state lists itself, and small chunks, into chunks."""
    state = work.machine.state
    tables = [work.chunks.table(each, shard_id=state.id, stats=True) for each in wanted.chunks]
    tables.append(PartTable.of(wanted.parts, state.schema))
    chunks = _chunked(work, state, PartTable.concat(tables))
    gone = tuple(key for chunk in wanted.chunks for key in chunk_keys(chunk))
    command = c.Replace(
        work.writer.id,
        remove_parts=frozenset(part.key for part in wanted.parts),
        remove_chunks=frozenset(chunk.key for chunk in wanted.chunks),
        chunks=tuple(chunks),
        garbage=gone,
        # Parts that were merged may carry a `since` that lies beyond the end of their batch.
        since=state.readable_from(),
    )
    outcome, _ = work.machine.commit(command)
    if isinstance(outcome, c.Stale):
        _take_back(work, [key for chunk in chunks for key in chunk_keys(chunk)])
        return False
    raise_refusal(state.name, outcome)
    return True


def _expected(state: State, unit: Unit) -> Digest:
    total = Digest.ZERO
    for part in unit.parts:
        total += part.total
    wanted = set(unit.inline)
    for batch in state.batches:
        if batch.inline is not None and batch.lower in wanted:
            total += batch.inline.total
    return total


# Swapping.


def _swap(work: Work, unit: Unit, outputs: Sequence[Part]) -> bool:
    """Commit. Inputs that moved to another list meanwhile are looked for there, a few times."""
    state = work.machine.state
    made: list[Chunk] = []
    listed = tuple(outputs)
    if len(outputs) > _OUTPUTS_LISTED:
        made = _chunked(work, state, PartTable.of(outputs, state.schema))
        listed = ()
    for _ in range(_ATTEMPTS):
        newest = work.machine.refresh()
        found = _found(work, newest, unit)
        if found is None:
            break
        rest = [new for old, table in found.cut for new in _chunked(work, state, table)]
        command = c.Replace(
            work.writer.id,
            remove_parts=found.direct,
            remove_chunks=frozenset(old.key for old, _ in found.cut),
            remove_inline=frozenset(unit.inline),
            parts=listed,
            chunks=(*made, *rest),
            garbage=(
                *sorted(part.key for part in unit.parts),
                *(key for old, _ in found.cut for key in chunk_keys(old)),
            ),
            # What is left of a cut chunk may have been merged later than our own outputs.
            since=newest.readable_from(),
        )
        outcome, _ = work.machine.commit(command)
        if not isinstance(outcome, c.Stale):
            raise_refusal(work.machine.name, outcome)
            return True
        _take_back(work, [key for chunk in rest for key in chunk_keys(chunk)])
    _take_back(work, [key for chunk in made for key in chunk_keys(chunk)])
    return False


@dataclass(frozen=True, slots=True)
class _Found:
    """Where the inputs of a unit are listed now."""

    direct: frozenset[str]
    cut: tuple[tuple[Chunk, PartTable], ...]
    """Chunks that list some of them, each with what would be left of it."""


def _found(work: Work, state: State, unit: Unit) -> _Found | None:
    """`None` if some input is gone, or if inline rows that stay lie between two inputs."""
    wanted = {part.key for part in unit.parts}
    direct = frozenset(p.key for b in state.batches for p in b.parts if p.key in wanted)
    missing = wanted - direct
    cut: list[tuple[Chunk, PartTable]] = []
    for chunk in (chunk for batch in state.batches for chunk in batch.chunks):
        if not missing:
            break
        table = work.chunks.table(chunk, shard_id=state.id, stats=False)
        keys = table.columns["key"]
        gone: Mask = pc.is_in(keys, pa.array(sorted(missing), pa.string())).to_numpy()
        if gone.any():
            table = work.chunks.table(chunk, shard_id=state.id, stats=True)
            cut.append((chunk, table.select(~gone)))
            missing -= set(keys.filter(pa.array(gone)).to_pylist())
    if missing:
        return None
    chunks = {chunk.key for chunk, _ in cut}
    inline = set(unit.inline)
    touched = [
        at
        for at, batch in enumerate(state.batches)
        if (batch.inline is not None and batch.lower in inline)
        or any(part.key in direct for part in batch.parts)
        or any(chunk.key in chunks for chunk in batch.chunks)
    ]
    between = state.batches[touched[0] : touched[-1] + 1] if touched else ()
    if {batch.lower for batch in between if batch.inline is not None} != inline:
        return None
    return _Found(direct, tuple(cut))


def _chunked(work: Work, state: State, table: PartTable) -> list[Chunk]:
    """Parts as chunks, put; as many as are needed."""
    made: list[Chunk] = []
    for start in range(0, len(table), CHUNK_PARTS):
        key = chunk_key(state.id, work.writer.id, work.env.random.token())
        encoded = encode_chunk(
            table.slice(start, min(len(table), start + CHUNK_PARTS)), shard=state.id, key=key
        )
        _put(work, encoded.chunk.key, encoded.listing)
        if encoded.chunk.stats_key:
            _put(work, encoded.chunk.stats_key, encoded.stats)
        made.append(encoded.chunk)
    return made


def _put(work: Work, key: str, value: bytes) -> None:
    work.env.patient(lambda: work.env.blob.put(key, value), shard=work.machine.name)


def _take_back(work: Work, keys: Sequence[str]) -> None:
    """Delete objects of a swap that was stale, unless something refers to them after all.

    A swap of unknown outcome may have counted, and somebody may have merged its outputs since:
    then they are garbage that a reader may hold. They could also be listed in a chunk by now. So
    only what the newest state does not name in any way is deleted; the rest is swept one day.
    A dropped shard's garbage lists chunks with all their parts, so there everything is left.
    """
    state = work.machine.refresh()
    if any(entry.chunks for entry in state.garbage):
        return
    named = {key for entry in state.garbage for key in entry.keys}
    for batch in state.batches:
        named.update(batch.object_keys())
        for chunk in batch.chunks:
            table = work.chunks.table(chunk, shard_id=state.id, stats=False)
            named.update(table.columns["key"].to_pylist())
    for key in keys:
        if key not in named:
            work.env.patient(lambda key=key: work.env.blob.delete(key), shard=state.name)  # type: ignore[misc]
