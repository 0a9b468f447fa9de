"""Writes what a merge gives, part by part, in the order of places.

At most one base part and one delta part are in the making at a time. A part ends where the plan
says that its range ends, or where it has become too large for memory, but never within a place.

A delta that is worth it is divided into single insertions and all else: what only inserts can
be read at any time by whoever can compare times, without summing anything. The planner takes
both for one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from strandline.model.digest import Digest
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.build import Built, build_base, build_delta, part_key
from strandline.parts.layout import Laid, lay_out
from strandline.parts.parquet import Owner
from strandline.parts.sweep import split_live
from strandline.upkeep.units import BOTTOM, FULL, RESIDUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.valuehash import U64, Mask
    from strandline.parts.part import Part
    from strandline.shard.env import Env
    from strandline.shard.state import State
    from strandline.upkeep.units import Unit


DIVIDE_BYTES = 1024 * 1024
"""Smaller deltas (unpacked) stay whole: two objects would cost more than they save."""


class _Heap:
    """Rows for one part to come."""

    def __init__(self) -> None:
        self._laid: list[Laid] = []
        self.bytes = 0

    def add(self, laid: Laid) -> None:
        if laid.updates.num_rows:
            self._laid.append(laid)
            self.bytes += laid.updates.nbytes

    def take(self) -> Laid | None:
        """All of it, in order, and start anew."""
        laid, self._laid, self.bytes = self._laid, [], 0
        if not laid:
            return None
        places: list[U64] = [each.places for each in laid if each.places is not None]
        return Laid(
            pa.concat_tables([each.updates for each in laid]),
            np.concatenate(places) if places else None,
        )


class Outputs:
    """The parts that come of one unit."""

    def __init__(
        self,
        env: Env,
        state: State,
        unit: Unit,
        *,
        writer: str,
        borders: Sequence[int],
        bytes_max: int,
    ) -> None:
        self.parts: list[Part] = []
        self._env = env
        self._state = state
        self._unit = unit
        self._writer = writer
        self._borders = np.array(borders, np.uint64)
        self._bytes_max = bytes_max
        self._since = state.readable_from()
        self._region = 0
        self._base = _Heap()
        self._delta = _Heap()

    @property
    def total(self) -> Digest:
        total = Digest.ZERO
        for part in self.parts:
            total += part.total
        return total

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(part.key for part in self.parts)

    def add(self, updates: pa.Table) -> None:
        """Consolidated updates whose places all lie after those of the calls before."""
        live, rest = updates.slice(0, 0), updates
        if self._unit.base:
            live, rest = split_live(updates, self._since)
        base, delta = lay_out(live, self._state.schema), lay_out(rest, self._state.schema)
        if not len(self._borders) or delta.places is None:
            self._pile(base, delta)
            return
        for region in range(self._region, len(self._borders) + 1):
            if region > self._region:
                if not self._goes_on(region, base, delta):
                    return
                self.close()
                self._region = region
            self._pile(self._within(base, region), self._within(delta, region))

    def close(self, *, full: bool = False) -> None:
        """End the parts in the making; `full` if only because they are large enough."""
        rows = self._base.take()
        if rows is not None:
            self._put_base(rows, level=FULL if full and rows.places is None else BOTTOM)
        updates = self._delta.take()
        if updates is not None:
            for piece in _divided(updates):
                self._put_delta(piece, full=full)

    def _put_delta(self, updates: Laid, *, full: bool) -> None:
        level = FULL if full and updates.places is None else self._unit.level
        built = build_delta(updates, self._state.schema, self._owner(), level=level)
        if self._unit.base and built.part.t_min <= self._since:
            built = _at_level(built, RESIDUE)
        self._put(built)

    def _put_base(self, rows: Laid, *, level: int) -> None:
        built = build_base(rows, self._state.schema, self._owner(), time=self._since, level=level)
        self._put(built)

    def _pile(self, base: Laid, delta: Laid) -> None:
        self._base.add(base)
        self._delta.add(delta)
        if self._base.bytes >= self._bytes_max or self._delta.bytes >= self._bytes_max:
            self.close(full=True)

    def _goes_on(self, region: int, *laids: Laid) -> bool:
        return any(self._edges(laid, region)[0] < laid.updates.num_rows for laid in laids)

    def _within(self, laid: Laid, region: int) -> Laid:
        return laid.slice(*self._edges(laid, region))

    def _edges(self, laid: Laid, region: int) -> tuple[int, int]:
        """Where the rows of a region begin and end."""
        count = laid.updates.num_rows
        if laid.places is None or not count:
            return 0, 0
        first, last = 0, count
        if region:
            first = int(np.searchsorted(laid.places, self._borders[region - 1], side="left"))
        if region < len(self._borders):
            last = int(np.searchsorted(laid.places, self._borders[region], side="left"))
        return first, last

    def _owner(self) -> Owner:
        key = part_key(self._state.id, self._writer, self._env.random.token())
        return Owner(self._state.id, key)

    def _put(self, built: Built) -> None:
        name = self._state.name
        self._env.patient(lambda: self._env.blob.put(built.part.key, built.encoded), shard=name)
        self.parts.append(built.part)
        self._env.metrics.add("parts_written", name)
        self._env.metrics.add("bytes_written", name, built.part.size)
        self._env.metrics.add("compaction_bytes", name, built.part.size)


def _divided(laid: Laid) -> list[Laid]:
    """The single insertions and all else, each in order, if both are there and not few."""
    single: Mask = laid.updates.column(DIFF_COLUMN).to_numpy() == 1
    if laid.updates.nbytes < DIVIDE_BYTES or single.all() or not single.any():
        return [laid]
    return [
        Laid(
            laid.updates.filter(pa.array(mask)),
            None if laid.places is None else laid.places[mask],
        )
        for mask in (single, ~single)
    ]


def _at_level(built: Built, level: int) -> Built:
    return Built(msgspec.structs.replace(built.part, level=level), built.encoded)
