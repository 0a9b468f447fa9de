"""What rows that came in make of the rows that were there, as updates. Pure.

A row that came in says what its key holds from its `_time` on: the row, or nothing if it deletes.

    1  a null in a key is refused; `_delete` left out or null means no
    2  of the rows of one key and time the last counts, by `_order0`, then `_order1`, and so on;
       a null is lower than all else, NaN higher; -0.0 and 0.0 are the same
    3  of rows of the same order a deletion is the last, else the row with the greatest row hash
    4  without order columns, different rows of one key and time are refused; equal rows are one,
       and so are deletions, whatever else they hold
    5  `rules.compare_stored`: a row or deletion of lower order than the row that its key holds is
       dropped; a key that holds nothing takes any
    6  a row that its key holds already, and a deletion of a key that holds nothing, say nothing
    7  what is left retracts the row that its key held, and inserts its own, both at its time

Rows are equal as the row hash sees it (`consolidate` says how). The result does not depend on the
order of the rows that came in, nor on how their times are divided among several calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as is_

from strandline.errors import BoundsError, SchemaError, UsageError
from strandline.model.columntype import cast
from strandline.model.engine import DELETE_COLUMN, ORDER_COLUMN, Rules
from strandline.model.ids import printable
from strandline.model.rowhash import row_base
from strandline.model.schema import TIME_COLUMN
from strandline.parts.layout import lay_out
from strandline.parts.lookup import key_columns, repeats, rows_equal
from strandline.parts.ranks import ranks

if TYPE_CHECKING:
    from strandline.model.schema import Field, Schema
    from strandline.model.valuehash import I64, U64, Mask

__all__ = ["DELETE_COLUMN", "ORDER_COLUMN", "Resolved", "Rules", "resolve"]

_STORED = -1
"""The time of rows that were there: before every other."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The updates, in order of (place, key, time), retractions first; and what made none.

    Every row that came in is superseded, late, unchanged, or in the updates.
    """

    updates: pa.Table
    places: U64
    hashes: U64
    """The place and the salt-free row hash of each update, which whoever writes them needs."""
    superseded: int = 0
    """Not the last of their key and time."""
    late: int = 0
    """Of lower order than the row that was there."""
    unchanged: int = 0
    """There already, or to be deleted and not there."""


@dataclass(frozen=True, slots=True)
class _Events:
    """The rows that were there and those that came in, in order of (place, key, time)."""

    schema: Schema
    rows: pa.Table
    """In the order in which they were given."""
    sources: I64
    """Where among `rows` each event is; all below are in the order of events."""
    hashes: U64
    places: U64
    keys: I64
    """Equal for equal keys, ascending."""
    times: I64
    gone: Mask
    """Whether it deletes."""
    ranks: I64
    """The order as a whole number from 0 on."""

    def taken(self, events: I64) -> pa.Table:
        return self.rows.take(pa.array(self.sources[events]))

    def same(self, one: I64, other: I64) -> Mask:
        """Whether events say the same, pair by pair."""
        same: Mask = self.gone[one] & self.gone[other]
        rows = ~self.gone[one] & ~self.gone[other]
        alike = np.flatnonzero(rows & (self.hashes[one] == self.hashes[other]))
        # Different rows may have one hash, so values have the last word.
        same[alike] = rows_equal(self.taken(one[alike]), self.taken(other[alike]))
        return same

    def named(self, at: int) -> str:
        row = int(self.sources[at])
        parts = ((name, self.rows.column(name)[row]) for name in self.schema.key)
        return ", ".join(f"{printable(name)} = {_shown(value)}" for name, value in parts)


def resolve(incoming: pa.Table, old: pa.Table, schema: Schema, rules: Rules) -> Resolved:
    """The updates that `incoming` means for a shard that holds `old`, by the rules above.

    `incoming` has the shard's columns, `_time`, and if there are any `_delete` and order columns;
    `old` has the rows that the keys of `incoming` hold before the first of these times.
    """
    ordered = _check_columns(incoming, schema, rules) > 0
    events = _events(incoming, old, schema, rules)
    chain = _last_of_each_time(events, ordered=ordered)
    superseded = len(events.times) - len(chain)
    late = _late(events, chain) if rules.compare_stored else np.zeros(len(chain), np.bool_)
    chain = chain[~late]
    unchanged = _unchanged(events, chain)
    updates, sources = _emitted(events, chain[~unchanged])
    return Resolved(
        updates,
        events.places[sources],
        events.hashes[sources],
        superseded,
        int(late.sum()),
        int(unchanged.sum()),
    )


# ---- what came in, checked


def _check_columns(incoming: pa.Table, schema: Schema, rules: Rules) -> int:
    """How many order columns there are."""
    names = incoming.schema.names
    orders = _count_orders(incoming, schema)
    own = [TIME_COLUMN, DELETE_COLUMN, *(f"{ORDER_COLUMN}{at}" for at in range(orders))]
    if taken := set(own) & set(schema.names):
        raise SchemaError(f"the shard's column {printable(min(taken))} has a name that upserts use")
    required = {*schema.names, *own} - {DELETE_COLUMN}
    if missing := required - set(names):
        raise SchemaError(f"the rows have no column {printable(min(missing))}")
    allowed = {*schema.names, *own}
    if unknown := [name for name in names if name not in allowed or names.count(name) > 1]:
        raise SchemaError(f"column {printable(unknown[0])} of the rows is unknown or there twice")
    if rules.compare_stored and len(rules.compare_stored) != orders:
        raise UsageError(
            f"{len(rules.compare_stored)} stored columns can't be compared with {orders} orders"
        )
    return orders


def _count_orders(incoming: pa.Table, schema: Schema) -> int:
    own = set(incoming.schema.names) - set(schema.names)
    return sum(name.startswith(ORDER_COLUMN) for name in own)


def _events(incoming: pa.Table, old: pa.Table, schema: Schema, rules: Rules) -> _Events:
    gone = _flags(incoming)
    stored = [cast(old.column(each.name), each.type) for each in schema.fields]
    came = [_accepted(incoming.column(each.name), each, schema, gone) for each in schema.fields]
    joined = [
        pa.chunked_array([*before.chunks, *after.chunks], before.type)
        for before, after in zip(stored, came, strict=True)
    ]
    rows = pa.Table.from_arrays(joined, schema=schema.arrow()).combine_chunks()
    times = np.concatenate((np.full(old.num_rows, _STORED, np.int64), _times(incoming)))
    keyed = key_columns(rows, schema).append_column(TIME_COLUMN, pa.array(times))
    laid = lay_out(keyed, schema)
    order = np.arange(len(times)) if laid.order is None else laid.order
    places = np.zeros(0, np.uint64) if laid.places is None else laid.places
    first = ~repeats(laid.updates.drop_columns([TIME_COLUMN]), places)
    return _Events(
        schema,
        rows,
        order,
        row_base(rows, schema.ids)[order],
        places,
        np.cumsum(first, dtype=np.int64),
        times[order],
        np.concatenate((np.zeros(old.num_rows, np.bool_), gone))[order],
        _orders(incoming, old, schema, rules)[order],
    )


def _accepted(column: pa.ChunkedArray, field: Field, schema: Schema, gone: Mask) -> pa.ChunkedArray:
    """The column in the shard's type; nulls where none may be are refused, but in deletions."""
    if column.null_count and (field.name in schema.key or not field.nullable):
        nulls: Mask = column.is_null().to_numpy()
        wrong = nulls if field.name in schema.key else nulls & ~gone
        if wrong.any():
            raise SchemaError(
                f"row {int(np.flatnonzero(wrong)[0])} (counted from 0) has a null in "
                f"{printable(field.name)}, which may hold none: leave the row out, or fill it"
            )
    return _cast(column, field)


def _cast(column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
    try:
        return cast(column, field.type)
    except SchemaError as error:
        raise SchemaError(f"column {printable(field.name)} of the rows: {error}") from error


def _flags(incoming: pa.Table) -> Mask:
    if DELETE_COLUMN not in incoming.schema.names:
        return np.zeros(incoming.num_rows, np.bool_)
    column = incoming.column(DELETE_COLUMN)
    if not is_.is_boolean(column.type):
        raise SchemaError(f"column {DELETE_COLUMN} must be of type bool, not {column.type}")
    flags: Mask = pc.fill_null(column, False).to_numpy()
    return flags


def _times(incoming: pa.Table) -> I64:
    column = incoming.column(TIME_COLUMN)
    if column.null_count:
        raise BoundsError(f"the rows have a null in {TIME_COLUMN}")
    times: I64 = cast(column, pa.int64()).to_numpy()
    if len(times) and times.min() < 0:
        raise BoundsError(f"the rows have {TIME_COLUMN} {times.min()}, which is no time")
    return times


def _orders(incoming: pa.Table, old: pa.Table, schema: Schema, rules: Rules) -> I64:
    """The rank of each event's order among all of them; without order columns 0."""
    columns = []
    for at in range(_count_orders(incoming, schema)):
        column = incoming.column(f"{ORDER_COLUMN}{at}")
        if rules.compare_stored:
            stored = schema.field(rules.compare_stored[at])
            before = cast(old.column(stored.name), stored.type)
            column = _cast(column, stored)
        else:
            before = pa.chunked_array([pa.nulls(old.num_rows, column.type)])
        columns.append(pa.chunked_array([*before.chunks, *column.chunks], column.type))
    return ranks(columns, old.num_rows + incoming.num_rows)


# ---- what happens to each key


def _last_of_each_time(events: _Events, *, ordered: bool) -> I64:
    """Of each key and time the event that counts, in order of (key, time)."""
    keys, times = events.keys, events.times
    chain: I64 = np.arange(len(keys), dtype=np.int64)
    again: Mask = np.zeros(len(keys) + 1, np.bool_)
    again[1:-1] = (keys[1:] == keys[:-1]) & (times[1:] == times[:-1])
    # Whether an event has another one of its key and time before it, or after it.
    before, after = again[:-1], again[1:]
    if not again.any():
        return chain
    _refuse_two_live(events, np.flatnonzero(after))
    several = np.flatnonzero(before | after)
    # A deletion has no row, so what else it holds must not decide.
    hashes = np.where(events.gone, np.uint64(0), events.hashes)
    by = (hashes, events.gone, events.ranks, times, keys)
    chain[several] = several[np.lexsort([each[several] for each in by])]
    if not ordered:
        _refuse_ambiguous(events, chain[:-1][before[1:]], chain[before])
    return chain[~after]


def _refuse_two_live(events: _Events, followed: I64) -> None:
    double = followed[events.times[followed] == _STORED]
    if len(double):
        raise UsageError(
            f"the shard holds more than one row of key {events.named(int(double[0]))}: retract "
            "all but one before the key can be upserted"
        )


def _refuse_ambiguous(events: _Events, one: I64, other: I64) -> None:
    different = np.flatnonzero(~events.same(one, other))
    if len(different):
        at = int(one[different[0]])
        raise UsageError(
            f"key {events.named(at)} has different rows at time {events.times[at]} and nothing "
            "says which is the last: give the columns that do (sequenceBy)"
        )


def _follows(events: _Events, chain: I64) -> Mask:
    """Which events of a chain have one of the same key before them."""
    keys = events.keys[chain]
    follows: Mask = np.zeros(len(chain), np.bool_)
    follows[1:] = keys[1:] == keys[:-1]
    return follows


def _late(events: _Events, chain: I64) -> Mask:
    """Which events have a lower order than the row that their key holds by then."""
    follows = _follows(events, chain)
    keys, gone = events.keys[chain], events.gone[chain]
    orders: I64 = events.ranks[chain] + 1
    # A key holds the greatest order it has seen; one number for both makes that one pass.
    greatest = np.maximum.accumulate((keys << 32) + np.where(gone, 0, orders))
    late: Mask = np.zeros(len(chain), np.bool_)
    late[1:] = follows[1:] & (orders[1:] < (greatest[:-1] & 0xFFFFFFFF))
    # That is so until a deletion counts: keys that go on after one are looked at event by event.
    resumed = np.unique(keys[1:][gone[:-1] & follows[1:]])
    held, before = 0, -1
    for at in np.flatnonzero(np.isin(keys, resumed)).tolist():
        held = held if keys[at] == before else 0
        before = keys[at]
        late[at] = orders[at] < held
        if not late[at]:
            held = 0 if gone[at] else int(orders[at])
    return late


def _unchanged(events: _Events, chain: I64) -> Mask:
    """Which events find their key as they would leave it."""
    unchanged: Mask = events.gone[chain] & ~_follows(events, chain)
    after = np.flatnonzero(_follows(events, chain))
    unchanged[after] = events.same(chain[after - 1], chain[after])
    return unchanged


def _emitted(events: _Events, chain: I64) -> tuple[pa.Table, I64]:
    """The updates of a chain in which every event changes its key, and where each came from."""
    after = np.flatnonzero(events.times[chain] != _STORED)
    before = after - 1
    retracts = _follows(events, chain)[after] & ~events.gone[chain[before]]
    emitted = np.stack((retracts, ~events.gone[chain[after]]), axis=1).ravel()
    sources: I64 = np.stack((chain[before], chain[after]), axis=1).ravel()[emitted]
    times = np.repeat(events.times[chain[after]], 2)[emitted]
    diffs = np.tile(np.array([-1, 1], np.int64), len(after))[emitted]
    rows = events.taken(sources)
    columns = [*rows.columns, pa.array(times), pa.array(diffs)]
    return pa.Table.from_arrays(columns, schema=events.schema.updates()), sources


def _shown(value: pa.Scalar) -> str:
    textual = is_.is_string(value.type) or is_.is_large_string(value.type)
    return printable(value.as_py()) if textual else printable(str(value)).strip("'")
