"""Which pieces of a state answer a read, and at which time each is owed. Pure.

    snapshot at t     the pieces that hold something at or before t
    changes [a, b)    the pieces that hold something in it; a base part only from 0 on: its rows
                      came at its time or before, so before any later a, and at 0 if it is of 0

A piece is left out only if its times, its places or its statistics prove that it holds nothing
that is asked for; a piece whose statistics can't be decoded is listed. What statistics alone
left out may be audited: a fixed share of it, chosen by a seed, is read all the same.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import SinceError, invariant
from strandline.model.rowhash import salted
from strandline.parts.layout import places_of
from strandline.parts.part import PLACE_MAX, Batch, Chunk, Inline, Part
from strandline.reading.descriptor import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.model.frontier import Frontier, Time
    from strandline.model.schema import Schema
    from strandline.model.valuehash import U64, Mask
    from strandline.parts.chunk import PartTable
    from strandline.parts.filters import Filter
    from strandline.shard.state import State

_PLACES_MAX = 4096
"""So many keys are looked up by their places; a filter with more is judged by statistics."""


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked for, as far as it decides what is listed."""

    filter: Filter = EVERYTHING
    places: U64 | None = None
    """Sorted; only rows of keys at these places match. `None`: anywhere."""
    audit_share: float = 0.0
    audit_seed: int = 0

    def audited(self, checksums: U64) -> Mask:
        """Which parts, if they are left out, are to be read all the same."""
        # A checksum is as good as chance; the seed makes it another chance for each reader.
        drawn = salted(checksums, self.audit_seed)
        chosen: Mask = drawn < np.uint64(min(int(self.audit_share * 2**64), 2**64 - 1))
        return chosen


@dataclass(frozen=True, slots=True)
class Piece:
    """A part or inline rows, with the time that waits for it."""

    lower: Time
    """The lower bound of its batch."""
    piece: Part | Inline
    owed: Time


@dataclass(slots=True)
class Listing:
    """The pieces to read, and what was left out."""

    pieces: list[Piece] = field(default_factory=list)
    pruned: int = 0
    audits: list[Piece] = field(default_factory=list)
    """Pieces that were left out, and are read to prove that this was right."""


@dataclass(frozen=True, slots=True)
class _Times:
    """Pieces with `t_max >= after` and `t_min < upto` are asked for."""

    after: Time
    upto: Time
    owed: Time
    base: bool


def list_snapshot(
    state: State, as_of: Time, want: Want, tables: Callable[[Chunk], PartTable]
) -> Listing:
    """The pieces whose updates at or before `as_of` add up to the snapshot."""
    check_since(state, as_of)
    listing = Listing()
    times = _Times(0, as_of + 1, as_of, base=True)
    for batch in state.batches:
        if batch.lower > as_of:
            break
        _list_batch(batch, times, want, tables, listing)
    return listing


def list_changes(
    state: State,
    bounds: tuple[Time, Time],
    want: Want,
    tables: Callable[[Chunk], PartTable],
) -> Listing:
    """The pieces that hold every update in `bounds`, `[after, upto)`."""
    after, upto = bounds
    check_since(state, max(after - 1, 0))
    listing = Listing()
    times = _Times(after, upto, after, base=after == 0)
    first = bisect_right(state.batches, after, key=lambda batch: batch.upper)
    for batch in state.batches[first:]:
        if batch.lower >= upto:
            break
        _list_batch(batch, times, want, tables, listing)
    return listing


def check_since(state: State, time: Time) -> None:
    """Refuse a time that the state can no longer tell from those before it."""
    oldest = state.readable_from()
    if time < oldest:
        raise SinceError(
            f"shard {state.name} can't be read as of {time}: history before {oldest} has been "
            f"merged; the oldest time that can be read is {oldest}",
            oldest=oldest,
        )


def newest_time(state: State, upper: Frontier) -> Time:
    """What a read without `as_of` reads: the newest settled time, or the first there will be."""
    last = upper.last()
    if upper.is_closed:
        last = state.moments[-1].time if state.moments else None
    return state.readable_from() if last is None else max(last, state.readable_from())


def wanted_places(wanted: Filter, schema: Schema) -> U64 | None:
    """The places of all keys that a filter names, sorted; `None` if it does not name them."""
    if not wanted or not schema.key:
        return None
    keys: list[tuple[object, ...]] = []
    for group in wanted.alternatives:
        named = {c.name: c.values for c in reversed(group) if c.op in ("=", "in")}
        if not set(schema.key) <= set(named):
            return None
        values = [named[name].to_pylist() for name in schema.key]
        if len(keys) + int(np.prod([len(each) for each in values])) > _PLACES_MAX:
            return None
        keys.extend(product(*values))
    columns = [
        pa.array([key[at] for key in keys], each.type)
        for at, each in enumerate(schema.key_fields())
    ]
    found = places_of(pa.table(columns, list(schema.key)), schema)
    return None if found is None else np.unique(found)


def _list_batch(
    batch: Batch,
    times: _Times,
    want: Want,
    tables: Callable[[Chunk], PartTable],
    listing: Listing,
) -> None:
    inline = batch.inline
    if inline is not None and _in_times(inline, times):
        _list_part(_piece(batch, inline, times), want, listing)
    for part in batch.parts:
        if _in_times(part, times) and (times.base or not part.base):
            _list_part(_piece(batch, part, times), want, listing)
    for chunk in batch.chunks:
        if not _in_times(chunk, times):
            continue
        if not _in_places(chunk, want.places):
            listing.pruned += chunk.parts
            continue
        kept, audits, pruned = _of_chunk(tables(chunk), times, want)
        listing.pieces.extend(_piece(batch, part, times) for part in kept)
        listing.audits.extend(_piece(batch, part, times) for part in audits)
        listing.pruned += pruned


def _list_part(piece: Piece, want: Want, listing: Listing) -> None:
    part = piece.piece
    if isinstance(part, Inline):  # They are in hand already, and have no statistics.
        listing.pieces.append(piece)
        return
    if _in_places(part, want.places) and want.filter.matches(part.stats, part.rows):
        listing.pieces.append(piece)
        return
    listing.pruned += 1
    if want.audit_share and want.audited(np.array([part.checksum], np.uint64))[0]:
        listing.audits.append(piece)


def _of_chunk(table: PartTable, times: _Times, want: Want) -> tuple[list[Part], list[Part], int]:
    """The parts to read, those to audit, and how many were left out."""
    asked = table.touching(after=times.after - 1, until=times.upto - 1)
    if not times.base:
        asked &= ~table.columns["base"].to_numpy().astype(np.bool_)
    table = table.select(asked)
    kept = table.matching(want.filter)
    if want.places is not None:
        at = np.searchsorted(want.places, table.column("place_lo"))
        ends = np.append(want.places, np.uint64(PLACE_MAX))[at]
        kept &= (at < len(want.places)) & (ends <= table.column("place_hi"))
    audits: list[Part] = []
    if want.audit_share and not kept.all():
        audits = table.select(~kept & want.audited(table.column("checksum"))).parts()
    return table.select(kept).parts(), audits, int((~kept).sum())


def _piece(batch: Batch, piece: Part | Inline, times: _Times) -> Piece:
    invariant(piece.t_min < times.upto, "a piece is listed only if it holds something asked for")
    return Piece(batch.lower, piece, max(times.owed, piece.t_min))


def _in_times(piece: Part | Inline | Chunk, times: _Times) -> bool:
    return piece.t_max >= times.after and piece.t_min < times.upto


def _in_places(piece: Part | Chunk, places: U64 | None) -> bool:
    if places is None:
        return True
    at = int(np.searchsorted(places, np.uint64(piece.place_lo)))
    return at < len(places) and int(places[at]) <= piece.place_hi
