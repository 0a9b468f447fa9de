"""Puts strips of parts by place, in a task: what all parts hold of a range becomes one part.

A part is in order of place, so a range of it is some row groups that lie side by side: one read,
after one for its index, which is kept for the ranges that follow. What is in memory at once is one
range, and the groups at its edges. Rows go over as they are: nothing is summed, nothing gets lost,
and the driver compares digests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.errors import CorruptionError
from strandline.parts.index import TAIL_BYTES, decode_group, read_index, tail_length
from strandline.parts.layout import places_of
from strandline.parts.parquet import Owner, corrupt
from strandline.spark.instruction import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.parts.index import PartIndex
    from strandline.parts.part import Part
    from strandline.spark.placing import Placing
    from strandline.spark.put import Bench


def put_strips(bench: Bench, told: Placing) -> Answer:
    """The parts that come of some ranges of places; untimed, if those that they come of are."""
    strips = _Strips(bench)
    parts: list[Part] = []
    for lo, hi in told.ranges:
        for updates in _bounded(strips.within(told, lo, hi), told.bytes_max):
            parts += bench.put_updates(updates, untimed=told.parts[0].untimed)
    return Answer(tuple(parts))


def _bounded(tables: Iterator[pa.Table], bytes_max: int) -> Iterator[pa.Table]:
    """All of them together, unless that is far too much: all rows may be of one key."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size > 2 * bytes_max:
            whole = _as_one(held)
            held, size = [], 0
            yield whole
    if held:
        whole = _as_one(held)
        held = []
        yield whole


def _as_one(held: list[pa.Table]) -> pa.Table:
    """As one chunk: taking rows in another order takes twice as long out of many."""
    return pa.concat_tables(held).combine_chunks()


class _Strips:
    """Reads ranges of parts; the indexes of parts are read once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._indexes: dict[str, PartIndex] = {}

    def within(self, told: Placing, lo: int, hi: int) -> Iterator[pa.Table]:
        """What each part holds at the places from `lo` to `hi`, both inclusive."""
        for part in told.parts:
            if part.place_lo <= hi and part.place_hi >= lo:
                updates = self._strip(part, lo, hi)
                if updates.num_rows:
                    yield updates

    def _strip(self, part: Part, lo: int, hi: int) -> pa.Table:
        schema, owner = self._bench.ground.schema, self._owner(part)
        index = self._index(part)
        groups = index.groups_within(lo, hi)
        if not groups:
            return schema.updates().empty_table()
        first, last = int(index.starts[groups[0]]), int(index.stops[groups[-1]])
        content = memoryview(self._range(part, first, last - first))
        pieces = []
        for group in groups:
            piece = content[int(index.starts[group]) - first : int(index.stops[group]) - first]
            pieces.append(decode_group(index, group, piece, part, schema, owner))
        updates = pa.concat_tables(pieces)
        places = places_of(updates, schema)
        if places is None:
            raise corrupt(part, owner, "its shard has no key, so its rows have no places")
        if (places[1:] < places[:-1]).any():
            raise corrupt(part, owner, "its updates are not in order of their places")
        start = int(np.searchsorted(places, np.uint64(lo), side="left"))
        stop = int(np.searchsorted(places, np.uint64(hi), side="right"))
        return updates.slice(start, stop - start)

    def _index(self, part: Part) -> PartIndex:
        found = self._indexes.get(part.key)
        if found is None:
            found = self._indexes[part.key] = self._read_index(part)
        return found

    def _read_index(self, part: Part) -> PartIndex:
        owner = self._owner(part)
        length = min(part.size, TAIL_BYTES)
        tail = self._range(part, part.size - length, length)
        wanted = tail_length(tail, part, owner)
        if wanted > length:
            tail = self._range(part, part.size - wanted, wanted)
        return read_index(tail, part, owner)

    def _owner(self, part: Part) -> Owner:
        return Owner(self._bench.ground.shard_id, part.key)

    def _range(self, part: Part, start: int, length: int) -> bytes:
        found = self._bench.get_range(part.key, start, length)
        if found is None:
            raise CorruptionError(
                f"shard {self._bench.ground.shard}: part {part.key} is missing, though it was put "
                "a moment ago"
            )
        return found
