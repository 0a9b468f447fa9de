"""An engine of plain lists and dicts: slow, and meant to be obviously right. Pure.

It goes through times one by one and through keys one by one, and holds nothing but the updates
that it was given. Of the product it uses the schema and the row hash, one row at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.errors import BoundsError, SchemaError, UsageError
from strandline.model.digest import Digest
from strandline.model.engine import DELETE_COLUMN, ORDER_COLUMN, Engine, Rules, Written
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema

Row = dict[str, object]
Rows = list[Row]


@dataclass(slots=True)
class _Shard:
    schema: Schema
    upper: Time = 0
    updates: Rows = field(default_factory=list)

    def key_of(self, row: Row) -> Hashable:
        return tuple(canonical(row[name]) for name in self.schema.key)

    def row_of(self, row: Row) -> Row:
        return {name: row[name] for name in self.schema.names}


class ReferenceEngine:
    """What every other engine is compared with; frames are lists of dicts."""

    def __init__(self) -> None:
        self._shards: dict[str, _Shard] = {}

    def create(self, shard: str, schema: Schema) -> None:
        self._shards[shard] = _Shard(schema)

    def write(self, shard: str, updates: Rows, upper: Time) -> Written:
        at = self._shards[shard]
        stamped: Rows = [{TIME_COLUMN: at.upper, DIFF_COLUMN: 1, **update} for update in updates]
        for update in stamped:
            if not at.upper <= number(update, TIME_COLUMN) < upper:
                raise BoundsError(f"{update} is outside [{at.upper}, {upper})")
        at.updates += stamped
        at.upper = upper
        total = Digest.ZERO
        for update in stamped:
            total += self._digest_of(at, update)
        return Written(upper, len(stamped), total)

    def upsert(self, shard: str, rows: Rows, upper: Time, rules: Rules) -> Written:
        at = self._shards[shard]
        for name in at.schema.key:
            if any(row[name] is None for row in rows):
                raise SchemaError(f"a row has a null in {name}, which is part of the key")
        held = self._held(at, {at.key_of(row) for row in rows})
        pending: dict[tuple[Time, Hashable], Rows] = defaultdict(list)
        for row in rows:
            time = number(row, TIME_COLUMN) if TIME_COLUMN in row else at.upper
            pending[time, at.key_of(row)].append(row)
        found: Rows = []
        superseded = late = unchanged = 0
        for time, key in sorted(pending, key=lambda moment: moment[0]):
            last = self._last(at, pending[time, key])
            superseded += len(pending[time, key]) - 1
            before = held.get(key)
            after = None if last.get(DELETE_COLUMN) else at.row_of(last)
            if before is not None and rules.compare_stored and _lower(last, before, rules):
                late += 1
            elif canonical(before) == canonical(after):
                unchanged += 1
            else:
                changes = ((before, -1), (after, 1))
                found += [
                    {**row, TIME_COLUMN: time, DIFF_COLUMN: diff} for row, diff in changes if row
                ]
                held[key] = after
        written = self.write(shard, found, upper)
        return replace(written, superseded=superseded, late=late, unchanged=unchanged)

    def read(self, shard: str, as_of: Time) -> Rows:
        at = self._shards[shard]
        if not as_of < at.upper:
            raise BoundsError(f"{as_of} is not settled: the upper is {at.upper}")
        past: Rows = [
            {**at.row_of(update), DIFF_COLUMN: update[DIFF_COLUMN]}
            for update in at.updates
            if number(update, TIME_COLUMN) <= as_of
        ]
        found: Rows = []
        for update in self.consolidate(past):
            if number(update, DIFF_COLUMN) < 0:
                raise UsageError(f"{update} was retracted more often than inserted")
            found += [at.row_of(update)] * number(update, DIFF_COLUMN)
        return found

    def changes(self, shard: str, start: Time, end: Time) -> Rows:
        updates = self._shards[shard].updates
        return self.consolidate([u for u in updates if start <= number(u, TIME_COLUMN) < end])

    def lookup(self, shard: str, keys: Rows, as_of: Time) -> Rows:
        at = self._shards[shard]
        wanted = {at.key_of(row) for row in keys}
        return [row for row in self.read(shard, as_of) if at.key_of(row) in wanted]

    def consolidate(self, updates: Rows) -> Rows:
        first: dict[Hashable, Row] = {}
        sums: dict[Hashable, int] = defaultdict(int)
        for update in updates:
            row = canonical({name: x for name, x in update.items() if name != DIFF_COLUMN})
            first.setdefault(row, update)
            sums[row] += number(update, DIFF_COLUMN)
        return [{**update, DIFF_COLUMN: sums[row]} for row, update in first.items() if sums[row]]

    def digest(self, shard: str, as_of: Time) -> Digest:
        at = self._shards[shard]
        total = Digest.ZERO
        for update in at.updates:
            if number(update, TIME_COLUMN) <= as_of:
                total += self._digest_of(at, update)
        return total

    def _held(self, at: _Shard, touched: Iterable[Hashable]) -> dict[Hashable, Row | None]:
        """The row of each touched key before the upper; none may have two."""
        wanted = set(touched)
        past: Rows = [{**at.row_of(each), DIFF_COLUMN: each[DIFF_COLUMN]} for each in at.updates]
        held: dict[Hashable, Row | None] = {}
        for update in self.consolidate(past):
            key = at.key_of(update)
            if key in wanted and (key in held or update[DIFF_COLUMN] != 1):
                raise UsageError(f"the shard holds more than one row of key {key}")
            held[key] = at.row_of(update)
        return held

    def _last(self, at: _Shard, rows: Rows) -> Row:
        """The row that counts of those of one key and time."""

        def meaning(row: Row) -> Hashable:
            return "gone" if row.get(DELETE_COLUMN) else canonical(at.row_of(row))

        names = sorted(
            (name for name in rows[0] if name.startswith(ORDER_COLUMN)),
            key=lambda name: int(name.removeprefix(ORDER_COLUMN)),
        )
        if not names and len({meaning(row) for row in rows}) > 1:
            raise UsageError(f"key {at.key_of(rows[0])} has different rows at one time")

        def order(row: Row) -> tuple[object, ...]:
            gone = bool(row.get(DELETE_COLUMN))
            tie = 0 if gone else int(row_base(self._table(at, row), at.schema.ids)[0])
            return *(ordinal(row[name]) for name in names), gone, tie

        return max(rows, key=order)

    def _digest_of(self, at: _Shard, update: Row) -> Digest:
        diff = np.array([update[DIFF_COLUMN]], np.int64)
        return Digest.of(row_base(self._table(at, update), at.schema.ids), diff)

    @staticmethod
    def _table(at: _Shard, row: Row) -> pa.Table:
        return pa.Table.from_pylist([at.row_of(row)], schema=at.schema.arrow())


def canonical(value: object) -> Hashable:
    """A value that is equal wherever the row hash sees an equal one.

    >>> canonical([-0.0, float("nan"), None]) == canonical([0.0, float("nan"), None])
    True
    """
    match value:
        case float() if math.isnan(value):
            return "NaN", float
        case float():
            return value + 0.0
        case dict():
            return tuple((name, canonical(each)) for name, each in sorted(value.items()))
        case list() | tuple():
            return tuple(canonical(each) for each in value)
        case _:
            found: Hashable = value
            return found


def ordinal(value: object) -> tuple[int, Any]:
    """What values of one order column are sorted by: null, then the rest, then NaN.

    >>> sorted([2.0, float("nan"), None, -1.0], key=ordinal)
    [None, -1.0, 2.0, nan]
    """
    if value is None:
        return 0, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    return 1, value


def number(row: Row, name: str) -> int:
    value = row[name]
    if not isinstance(value, int):
        raise SchemaError(f"{name} must be a whole number, not {value!r}")
    return value


def _lower(came: Row, stored: Row, rules: Rules) -> bool:
    names = rules.compare_stored
    mine = [ordinal(came[f"{ORDER_COLUMN}{at}"]) for at in range(len(names))]
    return mine < [ordinal(stored[name]) for name in names]


if TYPE_CHECKING:
    _CHECKED: Engine[Rows] = ReferenceEngine()
