"""Whether two multisets of rows are the same, in bounded memory, and a few rows that differ. Pure.

first look    of each side a digest for each of `PLACES` places, where rows are put by their hash
second look   at some of the places whose digests differ: rows that are on both sides go at once,
              and what is left are rows that differ

A row on one side and not on the other is found for sure: digests add up whatever the order, and
a place holds a thousandth of all rows, so what the second look keeps is small. The entries of a
map have no order here: not every target keeps the one that they came in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.model.digest import Digest, per_time
from strandline.model.rowhash import PLACE_SALT, row_base, salted
from strandline.model.schema import DIFF_COLUMN
from strandline.parts.consolidate import consolidate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from strandline.model.valuehash import I64, U64

PLACES = 1_024
ROWS_MAX = 200_000
"""The second look keeps about so many rows, at most; at least those of one place."""
_SHIFT = np.uint64(64 - PLACES.bit_length() + 1)


@dataclass(frozen=True, slots=True)
class Columns:
    """What is compared: the columns, and the ids that their hashes are made with."""

    schema: pa.Schema
    ids: tuple[int, ...]

    def rows(self, found: pa.Table | pa.RecordBatch) -> pa.Table:
        """The columns and `_diff`, with the types that the digests are about."""
        table = found if isinstance(found, pa.Table) else pa.Table.from_batches([found])
        diff = pa.field(DIFF_COLUMN, pa.int64(), nullable=False)
        wanted = pa.schema([*self.schema, diff])
        return _unordered(table.select(wanted.names).cast(wanted))

    def hashes(self, rows: pa.Table) -> U64:
        return row_base(rows.select(self.schema.names), self.ids)


@dataclass(slots=True)
class Side:
    """What one side adds up to, place by place."""

    columns: Columns
    digests: dict[int, Digest] = field(default_factory=dict)
    updates: dict[int, int] = field(default_factory=dict)
    """How many rows came, of each place."""

    def add(self, found: pa.Table | pa.RecordBatch) -> int:
        """Count some rows in; returns how many they are."""
        rows = self.columns.rows(found)
        base = self.columns.hashes(rows)
        places = _places(base)
        for place, digest in per_time(base, places, _diffs(rows)).items():
            self.digests[place] = self.digests.get(place, Digest.ZERO) + digest
        for place, count in zip(*np.unique(places, return_counts=True), strict=True):
            self.updates[int(place)] = self.updates.get(int(place), 0) + int(count)
        return int(rows.num_rows)

    @property
    def total(self) -> Digest:
        return sum(self.digests.values(), Digest.ZERO)


def differing(one: Side, other: Side) -> list[int]:
    """The places that do not hold the same, those with the fewest rows first."""
    found = [
        place
        for place in {*one.digests, *other.digests}
        if one.digests.get(place, Digest.ZERO) != other.digests.get(place, Digest.ZERO)
    ]
    return sorted(found, key=lambda place: (_size(place, one, other), place))


def affordable(places: Sequence[int], one: Side, other: Side) -> frozenset[int]:
    """Those that the second look can take."""
    chosen, rows = set[int](), 0
    for place in places:
        rows += _size(place, one, other)
        if chosen and rows > ROWS_MAX:
            break
        chosen.add(place)
    return frozenset(chosen)


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that one side has more often."""

    row: Mapping[str, object]
    more: int
    """How many more the first side has; negative if it lacks some."""


class Rest:
    """What is left of two sides in some places, once what is on both is gone."""

    def __init__(self, columns: Columns, places: Collection[int]) -> None:
        self._columns = columns
        self._places = np.array(sorted(places), dtype=np.int64)
        self._kept: list[pa.Table] = []
        self._new = 0

    def add(self, found: pa.Table | pa.RecordBatch, sign: int) -> None:
        """Rows of the first side (+1) or of the other one (-1)."""
        rows = self._columns.rows(found)
        here = np.isin(_places(self._columns.hashes(rows)), self._places)
        rows = rows.filter(pa.array(here))
        at = rows.column_names.index(DIFF_COLUMN)
        signed = pc.multiply(rows.column(DIFF_COLUMN), sign)
        self._kept.append(rows.set_column(at, rows.schema.field(at), signed))
        self._new += rows.num_rows
        if self._new > ROWS_MAX:
            self._sum()

    def differences(self, count: int) -> list[Difference]:
        """Some of the rows that differ."""
        self._sum()
        found = []
        for row in self._kept[0].slice(0, count).to_pylist() if self._kept else []:
            more = row.pop(DIFF_COLUMN)
            found.append(Difference(row, more))
        return found

    def _sum(self) -> None:
        self._kept = [consolidate(pa.concat_tables(self._kept))] if self._kept else []
        self._new = 0


def _unordered(rows: pa.Table) -> pa.Table:
    """The rows with the entries of their maps in one order, whatever it was."""
    for at, column in enumerate(rows.schema):
        if _has_map(column.type):
            values = [_in_order(each, column.type) for each in rows.column(at).to_pylist()]
            rows = rows.set_column(at, column, pa.array(values, column.type))
    return rows


def _has_map(kind: pa.DataType) -> bool:
    inside = (kind.field(at).type for at in range(kind.num_fields))
    return is_.is_map(kind) or any(_has_map(each) for each in inside)


def _in_order(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - whatever Arrow holds
    if value is None or not _has_map(kind):
        return value
    if is_.is_map(kind):
        entries = [(key, _in_order(item, kind.item_type)) for key, item in value]
        return sorted(entries, key=lambda each: repr(each[0]))
    if is_.is_struct(kind):
        return {each.name: _in_order(value[each.name], each.type) for each in kind}
    return [_in_order(each, kind.value_type) for each in value]


def _places(base: U64) -> I64:
    places: I64 = (salted(base, PLACE_SALT) >> _SHIFT).astype(np.int64)
    return places


def _diffs(rows: pa.Table) -> I64:
    diffs: I64 = rows.column(DIFF_COLUMN).to_numpy()
    return diffs


def _size(place: int, one: Side, other: Side) -> int:
    return max(one.updates.get(place, 0), other.updates.get(place, 0))
