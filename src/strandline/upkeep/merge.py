"""Merges one unit of compaction: what its pieces add up to, as new parts.

The half of `compact` that needs nothing but the store's objects, so that another process can do
it as well: a task of Spark, which never sees Consensus. The lease of the writer and the pin on
the inputs stay with whoever asked for it, and so do the check and the swap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.parts import ranges
from strandline.parts.inline import decode_inline
from strandline.parts.layout import lay_out
from strandline.parts.sweep import Source, moved_to, retracted, settle, sift, sweep
from strandline.upkeep.groups import PartGroups
from strandline.upkeep.outputs import Outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.parts.part import Part
    from strandline.shard.env import Env
    from strandline.shard.state import State
    from strandline.upkeep.units import Policy, Unit


def output_bytes(policy: Policy) -> int:
    """Unpacked, rows take more than in a part; so a part that is cut at this is large enough."""
    return 2 * policy.range_max


def merge(
    env: Env,
    state: State,
    unit: Unit,
    *,
    writer: str,
    bytes_max: int,
    watch: Callable[[int], None] = lambda _: None,
) -> Outputs:
    """Read the unit's pieces and put what comes of them, under the writer's id.

    Of the state it takes the name, the id, the schema, `since`, and the inline rows of the unit.
    `watch` is told now and then how many updates are done, and may raise.
    """
    borders: list[int] = []
    if unit.parts and state.schema.key:
        borders = ranges.borders(ranges.hull(*ranges.span(unit.parts)), unit.halvings)
    if unit.span is not None:
        borders = [border for border in borders if unit.span[0] < border <= unit.span[1]]
    outputs = Outputs(env, state, unit, writer=writer, borders=borders, bytes_max=bytes_max)
    done = 0
    for updates in _merged(env, state, unit):
        watch(done)
        outputs.add(updates)
        done += updates.num_rows
        watch(done)
    outputs.close()
    return outputs


def _merged(env: Env, state: State, unit: Unit) -> Iterator[pa.Table]:
    """What the inputs add up to, in slices of ever higher places."""
    since = state.readable_from()
    if state.schema.key:
        for updates in sweep(_inputs(env, state, unit), state.schema):
            yield settle(updates, since)
        return
    touched = retracted(_one_by_one(env, state, unit), state.schema)
    for updates, may_cancel in sift(_one_by_one(env, state, unit), state.schema, touched):
        yield settle(updates, since) if may_cancel else moved_to(updates, since)


def _inputs(env: Env, state: State, unit: Unit) -> list[Source]:
    """Each part, and all inline rows together (they are few), as tables in order of place."""
    span = unit.span
    sources = [
        Source(part.place_lo, _groups(env, state, part, span))
        for part in sorted(unit.parts, key=lambda part: (part.t_min, part.key))
        if span is None or (part.place_lo <= span[1] and span[0] <= part.place_hi)
    ]
    inline = list(_inline(state, unit))
    if inline:
        laid = lay_out(pa.concat_tables(inline).combine_chunks(), state.schema)
        if span is not None:
            laid = laid.between(*span)
        sources.append(Source(laid.span()[0], iter([laid.updates])))
    return sources


def _groups(env: Env, state: State, part: Part, span: tuple[int, int] | None) -> Iterator[pa.Table]:
    groups = PartGroups(env, part, state.schema, shard=state.name, shard_id=state.id)
    return groups.tables(span)


def _one_by_one(env: Env, state: State, unit: Unit) -> Iterator[pa.Table]:
    for source in _inputs(env, state, unit):
        yield from source.tables


def _inline(state: State, unit: Unit) -> Iterator[pa.Table]:
    wanted = set(unit.inline)
    for batch in state.batches:
        if batch.inline is not None and batch.lower in wanted:
            yield decode_inline(batch.inline, state.schema, shard=state.name)
