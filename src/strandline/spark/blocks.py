"""The updates of some keys out of a part, at a cost that follows the keys.

    index of the part ─► groups that may hold a key ─► blocks ─► binary search ─► take
    (cached)              (neighbours in one read)      (cached, mapped)

A block is what one row group holds, in order of (place, key, time), with the place of each update
beside it. A cold key costs two reads: the index, and one row group. A part that is small, or too
old to have an index that can be trusted, is read whole and is one block.

A block is known by its part's key and checksum, its group and the columns as which it was decoded:
a version is not enough, since copies of a store may change their schemas differently. What is the
same for all updates of a part stands in its facts and not in its blocks, so a part that is stamped
anew keeps them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import CorruptionError
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.envelope import checksum
from strandline.parts.index import TAIL_BYTES, PartIndex, decode_group, read_index, tail_length
from strandline.parts.layout import places_of
from strandline.parts.lookup import find, take_rows
from strandline.parts.parquet import corrupt, decode_part, with_constants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.model.valuehash import I64, U64
    from strandline.parts.lookup import Keys
    from strandline.parts.parquet import Owner
    from strandline.parts.part import Part
    from strandline.spark.cache import BlockCache
    from strandline.store.blob import Blob, Content

_Read = TypeVar("_Read", bound="bytes | memoryview")
PLACE_COLUMN = "_place"
SMALL = 1024 * 1024
"""A part of up to this size is read at once: a second read would cost more than its bytes."""
_READ_MAX = 64 * 1024 * 1024
"""Neighbouring groups are read together, up to so many bytes; all of it is in memory at once."""
_LAYOUT = 1
"""Raised when blocks come to hold something else: another version may share the folder."""
_FOOTER_COLUMN = "footer"
_INDEXES_MAX = 1024
_WHOLE = -1
"""Stands for a group where a part is one block."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A part, and how it is to be read."""

    part: Part
    schema: Schema
    owner: Owner

    @property
    def is_whole(self) -> bool:
        return self.part.size <= SMALL or not self.part.footer

    @property
    def columns(self) -> list[str]:
        """What its blocks hold beside the place of each update."""
        own = [] if self.part.base else [DIFF_COLUMN]
        timed = not (self.part.base or self.part.untimed)
        return [*self.schema.names, *([TIME_COLUMN] if timed else []), *own]

    def index_name(self) -> str:
        return f"index{_LAYOUT} {self.part.key} {self.part.checksum:016x}"

    def block_name(self, group: int) -> str:
        part = self.part
        return f"block{_LAYOUT} {part.key} {part.checksum:016x} {group} {_fingerprint(self.schema)}"


@lru_cache(maxsize=64)
def _fingerprint(schema: Schema) -> str:
    """Equal for schemas of which blocks are the same."""
    columns = [(each.id, each.name, str(each.type), each.nullable) for each in schema.fields]
    return f"{schema.version} {checksum(repr((columns, schema.key)).encode()):016x}"


class Blocks:
    """Blocks of parts, from the cache or from the store.

    Every call may raise what the Blob port raises, and `CorruptionError` for a part that is
    missing or damaged. The lease that keeps the part is the caller's affair.
    """

    def __init__(self, blob: Blob, cache: BlockCache) -> None:
        self.counts: Counter[str] = Counter()
        """reads and read_bytes of the store, blocks searched, hits taken."""
        self._blob = blob
        self._cache = cache
        self._indexes: dict[str, PartIndex] = {}

    def lookup(
        self, part: Part, schema: Schema, owner: Owner, wanted: Keys, *, as_of: Time
    ) -> pa.Table:
        """The updates of the wanted keys at or before `as_of`, each at its own time, in order."""
        asked = _Asked(part, schema, owner)
        wanted = wanted.between(part.place_lo, part.place_hi)
        if not len(wanted) or part.t_min > as_of:
            return schema.updates().empty_table()
        # Whatever lies at a wanted place is taken; whose it is is looked at once, at the end.
        near = []
        for block, places in self._touched(asked, _once(wanted.places)):
            positions = _at(block.column(PLACE_COLUMN).chunk(0).to_numpy(), places)
            self.counts["blocks"] += 1
            if len(positions):
                near.append(block.to_batches()[0].take(pa.array(positions)))
        if not near:
            return schema.updates().empty_table()
        rows = pa.Table.from_batches(near).combine_chunks()
        hits = find(rows, rows.column(PLACE_COLUMN).to_numpy(), wanted)
        self.counts["hits"] += len(hits)
        rows = take_rows(rows.select(asked.columns), hits)
        return _until(with_constants(rows, part), part, as_of)

    def whole(self, part: Part, schema: Schema, owner: Owner, *, as_of: Time) -> pa.Table:
        """All updates of a part at or before `as_of`; of a large part nothing is kept."""
        asked = _Asked(part, schema, owner)
        if part.t_min > as_of:
            return schema.updates().empty_table()
        if part.size > SMALL or not schema.key:
            updates = decode_part(self._object(asked), part, schema, owner=owner)
        else:
            updates = with_constants(self._whole_block(asked).select(asked.columns), part)
        return _until(updates, part, as_of)

    def within(
        self, part: Part, schema: Schema, owner: Owner, span: tuple[int, int], *, as_of: Time
    ) -> pa.Table:
        """All updates at or before `as_of` of the places from the first of `span` to the last, and
        maybe of their neighbours; of a large part nothing is kept."""
        asked = _Asked(part, schema, owner)
        if part.t_min > as_of:
            return schema.updates().empty_table()
        if asked.is_whole:
            found = [self._whole_block(asked)]
        else:
            found = self._span(asked, self._index(asked), *span)
        blocks = [each.select(asked.columns) for each in found]
        if not blocks:
            return schema.updates().empty_table()
        return _until(with_constants(pa.concat_tables(blocks), part), part, as_of)

    def _span(self, asked: _Asked, index: PartIndex, lo: int, hi: int) -> list[pa.Table]:
        """The groups that may hold something at these places: neighbours, in one read."""
        if index.places is None:
            raise corrupt(asked.part, asked.owner, "its footer does not say where its keys lie")
        groups = index.groups_within(lo, hi)
        if not groups:
            return []
        start, stop = int(index.starts[groups[0]]), int(index.stops[groups[-1]])
        content = self._range(asked, start, stop - start)
        found = []
        for group in groups:
            piece = content[index.starts[group] - start : index.stops[group] - start]
            found.append(decode_group(index, group, piece, asked.part, asked.schema, asked.owner))
        return found

    # Which blocks.

    def _touched(self, asked: _Asked, places: U64) -> Iterator[tuple[pa.Table, U64]]:
        """The blocks that may hold something at these places, in order, each with its own."""
        if asked.is_whole:
            yield self._whole_block(asked), places
            return
        index = self._index(asked)
        if index.places is None:
            raise corrupt(asked.part, asked.owner, "its footer does not say where its keys lie")
        # A place may begin in one group and end in the next one.
        starts = np.searchsorted(places, index.places, side="left")
        stops = np.append(np.searchsorted(places, index.places[1:], side="right"), len(places))
        for group, block in self._groups(asked, index, index.groups_of(places)):
            yield block, places[starts[group] : stops[group]]

    def _groups(
        self, asked: _Asked, index: PartIndex, groups: Sequence[int]
    ) -> Iterator[tuple[int, pa.Table]]:
        """The blocks of these groups in order; those that are not at hand are read in runs."""
        rest = list(groups)
        while rest:
            known = self._cache.get(asked.block_name(rest[0]))
            if known is not None:
                yield rest.pop(0), known
                continue
            run = self._run(asked, index, rest)
            yield from self._read_groups(asked, index, run)
            del rest[: len(run)]

    def _run(self, asked: _Asked, index: PartIndex, groups: Sequence[int]) -> list[int]:
        """How many of the first groups are neighbours, not at hand, and not too large together."""
        first = groups[0]
        run = [first]
        for group in groups[1:]:
            if group != run[-1] + 1 or index.stops[group] - index.starts[first] > _READ_MAX:
                break
            if self._cache.get(asked.block_name(group)) is not None:
                break
            run.append(group)
        return run

    def _read_groups(
        self, asked: _Asked, index: PartIndex, run: Sequence[int]
    ) -> Iterator[tuple[int, pa.Table]]:
        start, stop = int(index.starts[run[0]]), int(index.stops[run[-1]])
        content = self._range(asked, start, stop - start)
        for group in run:
            piece = content[index.starts[group] - start : index.stops[group] - start]
            updates = decode_group(index, group, piece, asked.part, asked.schema, asked.owner)
            yield group, self._kept(asked, group, updates)

    def _whole_block(self, asked: _Asked) -> pa.Table:
        known = self._cache.get(asked.block_name(_WHOLE))
        if known is not None:
            return known
        encoded = self._object(asked)
        updates = decode_part(encoded, asked.part, asked.schema, owner=asked.owner)
        return self._kept(asked, _WHOLE, updates)

    def _kept(self, asked: _Asked, group: int, updates: pa.Table) -> pa.Table:
        places = places_of(updates, asked.schema)
        if places is None or (places[1:] < places[:-1]).any():
            raise corrupt(asked.part, asked.owner, "its updates are not in order of their places")
        block = updates.select(asked.columns).append_column(PLACE_COLUMN, pa.array(places))
        block = block.replace_schema_metadata(None).combine_chunks()
        return self._cache.put(asked.block_name(group), block)

    # The index.

    def _index(self, asked: _Asked) -> PartIndex:
        name = asked.index_name()
        found = self._indexes.get(name)
        if found is None:
            footer = self._cached_footer(asked) or self._read_footer(asked)
            found = self._indexes[name] = read_index(footer, asked.part, asked.owner)
            if len(self._indexes) > _INDEXES_MAX:
                self._indexes.pop(next(iter(self._indexes)), None)
        return found

    def _cached_footer(self, asked: _Asked) -> bytes | None:
        known = self._cache.get(asked.index_name())
        if known is None or known.column_names != [_FOOTER_COLUMN]:
            return None
        footer: bytes = known.column(_FOOTER_COLUMN)[0].as_py()
        return footer if checksum(footer) == asked.part.footer else None

    def _read_footer(self, asked: _Asked) -> bytes:
        """One read; two if the footer is unusually long."""
        tail = self._range(asked, -TAIL_BYTES, TAIL_BYTES)
        length = tail_length(tail, asked.part, asked.owner)
        if length > len(tail):
            tail = self._range(asked, -length, length)
        footer = tail[-length:]
        if checksum(footer) == asked.part.footer:
            self._cache.put(asked.index_name(), pa.table({_FOOTER_COLUMN: [footer]}))
        return footer

    # The store.

    def _range(self, asked: _Asked, start: int, length: int) -> bytes:
        found = self._blob.get_range(asked.part.key, start, length)
        return self._counted(asked, found)

    def _object(self, asked: _Asked) -> Content:
        return self._counted(asked, self._blob.get(asked.part.key))

    def _counted(self, asked: _Asked, read: _Read | None) -> _Read:
        if read is None:
            raise CorruptionError(f"shard {asked.owner.shard}: part {asked.part.key} is missing")
        self.counts["reads"] += 1
        self.counts["read_bytes"] += len(read)
        return read


def _at(places: U64, wanted: U64) -> I64:
    """The positions of all that lies at places that are wanted; both ascend, the second strictly.

    Of `places` only what the binary search looks at is read: it is a memory map.
    """
    starts = np.searchsorted(places, wanted, side="left")
    counts = np.searchsorted(places, wanted, side="right") - starts
    positions: I64 = np.arange(counts.sum(), dtype=np.int64)
    positions += np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return positions


def _once(ascending: U64) -> U64:
    """Each place once; they are in order, so nothing has to be sorted."""
    if len(ascending) < 2:
        return ascending
    first = np.concatenate(([True], ascending[1:] != ascending[:-1]))
    return ascending[first]


def _until(updates: pa.Table, part: Part, as_of: Time) -> pa.Table:
    if part.t_max <= as_of:
        return updates
    return updates.filter(pc.less_equal(updates.column(TIME_COLUMN), as_of))
