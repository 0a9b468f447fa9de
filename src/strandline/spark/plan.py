"""What each task of a range job is told: ranges with what came for them and what is there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from strandline.model.schema import TIME_COLUMN
from strandline.parts.inline import decode_inline
from strandline.parts.layout import lay_out, overlapping, places_of
from strandline.parts.lookup import Keys, find
from strandline.parts.part import PLACE_MAX, Part
from strandline.spark import slices
from strandline.spark.instruction import RangeWork, Staged
from strandline.spark.schedule import (
    RANGE_BYTES,
    TASK_KEYS,
    TASK_PARTS,
    Span,
    pack,
    split_bytes,
    split_keys,
    task_count,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.model.schema import Schema
    from strandline.model.valuehash import U64
    from strandline.parts.part import Inline
    from strandline.spark.instruction import Answer


HEAVIER_MOST = 64
"""So many times finer than by what came, at most: a slice of it is read by no more tasks."""
RANGES_MOST = 4096
_UNPACKED = 3
"""What a part takes in memory beside its object, about."""
_FOOTER_BYTES = 8 * 1024
"""What of an object is no rows, about; of a small one that is most of it."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What came, where it is now: few rows here, in order of place; many in staged objects."""

    rows: pa.Table | None
    places: U64
    staged: tuple[Staged, ...] = ()
    version: int | None = None
    """Of the schema under which tasks took it in; `None` if it is keys alone."""

    @classmethod
    def of(cls, tables: Sequence[pa.Table], staged: Iterable[Staged], schema: Schema) -> Gathered:
        some = [table for table in tables if table.num_rows]
        if not some:
            return cls(None, np.zeros(0, np.uint64), tuple(staged), schema.version)
        rows = pa.concat_tables(some).combine_chunks()
        places = places_of(rows, schema)
        if places is None:
            places = np.zeros(rows.num_rows, np.uint64)
        order = np.argsort(places, kind="stable")
        return cls(rows.take(pa.array(order)), places[order], tuple(staged), schema.version)

    @classmethod
    def from_answers(cls, answers: Iterable[Answer], schema: Schema) -> Gathered:
        """What the tasks of a stage job gave back."""
        listed = list(answers)
        tables = [slices.from_stream(each.rows, "a task's rows") for each in listed if each.rows]
        return cls.of(tables, (staged for each in listed for staged in each.staged), schema)

    def __bool__(self) -> bool:
        return self.rows is not None or bool(self.staged)

    @property
    def wanted(self) -> U64 | None:
        """The places that matter, ascending; `None` if not all of them are known here."""
        return None if self.staged else np.unique(self.places)

    def keys(self, schema: Schema) -> Keys | None:
        if self.staged or self.rows is None:
            return None
        return Keys.of(self.rows.select(list(schema.key)), schema)


@dataclass(frozen=True, slots=True)
class Stored:
    """What is there: the parts that may hold old rows, and the updates in the metadata."""

    parts: tuple[Part, ...]
    inline: pa.Table
    """In order of place."""
    inline_places: U64

    @classmethod
    def of(
        cls, parts: Iterable[Part], inline: Sequence[pa.Table], schema: Schema, keys: Keys | None
    ) -> Stored:
        """`inline` are tables in order of place; only updates of `keys` are kept, if given."""
        if keys is not None:
            inline = [_hits(table, keys, schema) for table in inline]
        empty = schema.updates().empty_table()
        laid = lay_out(pa.concat_tables([empty, *inline]).combine_chunks(), schema)
        places = np.zeros(laid.updates.num_rows, np.uint64) if laid.places is None else laid.places
        # Statistics are for those who list; tasks need places and times alone.
        slim = tuple(replace(part, stats=b"") for part in parts)
        return cls(slim, laid.updates, places)


def _hits(inline: pa.Table, keys: Keys, schema: Schema) -> pa.Table:
    places = places_of(inline, schema)
    return inline if places is None else inline.take(pa.array(find(inline, places, keys)))


def decoded_inline(inline: Inline, schema: Schema, shard: str, as_of: int) -> pa.Table:
    """The updates of an inline batch at or before a time, in order of place."""
    updates = decode_inline(inline, schema, shard=shard)
    if inline.t_max > as_of:
        updates = updates.filter(pc.less_equal(updates.column(TIME_COLUMN), as_of))
    return lay_out(updates, schema).updates


def ranges(came: Gathered, there: Stored, slots: int) -> list[list[RangeWork]]:
    """The ranges of each task, in order of place."""
    works = [
        work
        for lo, hi in _stretches(came, there, slots)
        if (work := _work(came, there, lo, hi)).weight
    ]
    packed = pack([work.weight for work in works], task_count(len(works), slots))
    return [[works[at] for at in each] for each in packed]


def all_ranges(came: Gathered, there: Stored, slots: int) -> list[list[RangeWork]]:
    """The same where all that is there is looked at, whether anything came for it or not."""
    spans = [Span(part.place_lo, part.place_hi, part.size) for part in there.parts]
    spans += _spans(came)
    if len(there.inline_places):
        first, last = int(there.inline_places[0]), int(there.inline_places[-1])
        spans.append(Span(first, last, there.inline.nbytes))
    works = [_work(came, there, lo, hi) for lo, hi in _by_bytes(spans, slots)]
    packed = pack([work.weight + 1 for work in works], task_count(len(works), slots))
    return [[works[at] for at in each] for each in packed]


def everywhere(there: Stored) -> RangeWork:
    """One range over all places, to which each task brings its own rows."""
    return RangeWork(0, PLACE_MAX, parts=there.parts, inline=_stream(there.inline))


def _stretches(came: Gathered, there: Stored, slots: int) -> list[tuple[int, int]]:
    heavier = _heavier(came, there)
    if not came.staged:
        # Keys are counted, so each stretch has as many: one for each slot, and none waits.
        wanted = max(-(-len(came.places) // TASK_KEYS), -(-len(there.parts) // TASK_PARTS))
        tasks = min(slots, wanted)
        rows_bytes = 0 if came.rows is None else came.rows.nbytes * heavier
        return split_keys(came.places, max(tasks, -(-rows_bytes // RANGE_BYTES), 1))
    return _by_bytes(_spans(came), slots, heavier)


def _heavier(came: Gathered, there: Stored) -> int:
    """How many times as large as the rows that came the old rows of as many keys are, about.

    Both are in memory at once: what deletes a key is small, and what it deletes may not be.
    """
    listed = [each for staged in came.staged for each in staged.slices]
    rows = sum(each.rows for each in listed)
    size = sum(each.size for each in listed)
    if came.rows is not None:
        rows, size = rows + came.rows.num_rows, size + came.rows.nbytes
    old_rows = sum(part.rows for part in there.parts)
    if not size or not old_rows:
        return 1
    old_size = _UNPACKED * sum(max(0, part.size - _FOOTER_BYTES) for part in there.parts)
    return min(HEAVIER_MOST, max(1, old_size * rows // (old_rows * size)))


def _spans(came: Gathered) -> list[Span]:
    spans = [
        Span(each.place_lo, each.place_hi, each.size)
        for staged in came.staged
        for each in staged.slices
    ]
    if came.rows is not None:
        spans.append(Span(int(came.places[0]), int(came.places[-1]), came.rows.nbytes))
    return spans


def _by_bytes(spans: Sequence[Span], slots: int, heavier: int = 1) -> list[tuple[int, int]]:
    total = sum(span.size for span in spans)
    # Not fewer ranges than slots, if there is enough to do for each.
    target = min(RANGE_BYTES, total // (2 * slots) + 1)
    # Each range is told of all that is staged for it, so there can't be any number of them.
    target = min(target, max(RANGE_BYTES // heavier, total // RANGES_MOST))
    return split_bytes(spans, max(1, target))


def _work(came: Gathered, there: Stored, lo: int, hi: int) -> RangeWork:
    rows = b""
    if came.rows is not None:
        start, stop = _within(came.places, lo, hi)
        rows = _stream(came.rows.slice(start, stop - start))
    start, stop = _within(there.inline_places, lo, hi)
    staged = (slices.touching(each, lo, hi) for each in came.staged)
    return RangeWork(
        lo,
        hi,
        rows=rows,
        staged=tuple(each for each in staged if each is not None),
        parts=_overlapping(there.parts, lo, hi),
        inline=_stream(there.inline.slice(start, stop - start)),
    )


def _overlapping(parts: tuple[Part, ...], lo: int, hi: int) -> tuple[Part, ...]:
    if (lo, hi) == (0, PLACE_MAX):
        return parts
    firsts = np.array([part.place_lo for part in parts], np.uint64)
    lasts = np.array([part.place_hi for part in parts], np.uint64)
    return tuple(parts[at] for at in np.flatnonzero(overlapping(firsts, lasts, lo=lo, hi=hi)))


def _within(places: U64, lo: int, hi: int) -> tuple[int, int]:
    start = int(np.searchsorted(places, np.uint64(lo), side="left"))
    return start, int(np.searchsorted(places, np.uint64(hi), side="right"))


def _stream(table: pa.Table) -> bytes:
    return slices.to_stream(table) if table.num_rows else b""
