"""What rows that came in make of the rows that were there, as updates. Pure.

A row that came in says what its key holds from its `_time` on: the row, or nothing if it deletes.

    1  a null in a key is refused; `_delete` left out or null means no
    2  of the rows of one key and time the last counts, by `_order0`, then `_order1`, and so on;
       a null is lower than all else, NaN higher; -0.0 and 0.0 are the same
    3  of rows of the same order a deletion is the last, else the row with the greatest row hash
    4  without order columns, different rows of one key and time are refused; equal rows are one,
       and so are deletions, whatever else they hold
    5  `rules.compare_stored`: a row or deletion of lower order than the row that its key holds is
       dropped; a key that holds nothing takes any, or with `rules.bury` none of lower order than
       the deletion: its tombstone says which (`tombstones`)
    6  a row that its key holds already, and a deletion of a key that holds nothing, say nothing
    7  what is left retracts the row that its key held, and inserts its own, both at its time
    8  a column that a row names in `_keep` has the value that its key's row had before (`kept`)

Rows are equal as the row hash sees it (`consolidate` says how). The result does not depend on the
order of the rows that came in, nor on how their times are divided among several calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from strandline.parts.kept import KEEP_COLUMN, holders, keep_flags
from strandline.parts.layout import lay_out
from strandline.parts.lookup import key_columns, repeats, rows_equal
from strandline.parts.ranks import ranks
from strandline.parts.tombstones import BURIED_AT, burials, tomb_columns, tomb_schema

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
    tombs: pa.Table | None = None
    """The updates of tombstones, if the rules ask for them."""


@dataclass(frozen=True, slots=True)
class _Events:
    """The rows and tombstones that were there and what came in, in order of (place, key, time)."""

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
    stands: I64
    """The same of what is compared with stored rows alone."""
    buried_at: I64
    """When a tombstone was made, or is if it is made now."""

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


def resolve(
    incoming: pa.Table,
    old: pa.Table,
    schema: Schema,
    rules: Rules,
    tombs: pa.Table | None = None,
) -> Resolved:
    """The updates that `incoming` means for a shard that holds `old`, by the rules above.

    `incoming` has the shard's columns, `_time`, and if there are any `_delete` and order columns;
    `old` has the rows that the keys of `incoming` hold before the first of these times, `tombs`
    the tombstones of those that hold none.
    """
    ordered = _check_columns(incoming, schema, rules) > 0
    there = _Stored(old, _tombs_given(tombs, schema, rules))
    keep = keep_flags(incoming, schema)
    events = _events(incoming, there, schema, rules, keep)
    if keep:
        events = _with_kept(events, keep, there.count, rules)
    chain = _last_of_each_time(events, ordered=ordered)
    superseded = len(events.times) - len(chain)
    late = _late(events, chain, rules)
    chain = chain[~late]
    unchanged = _unchanged(events, chain)
    updates, sources = _emitted(events, chain[~unchanged])
    return Resolved(
        updates,
        events.places[sources],
        events.hashes[sources],
        superseded,
        int(late.sum()),
        int((unchanged & (events.times[chain] != _STORED)).sum()),
        _buried(events, chain, rules) if rules.bury else None,
    )


# ---- what came in, checked


def _check_columns(incoming: pa.Table, schema: Schema, rules: Rules) -> int:
    """How many order columns there are."""
    names = incoming.schema.names
    orders = _count_orders(incoming, schema)
    orders_named = (f"{ORDER_COLUMN}{at}" for at in range(orders))
    own = [TIME_COLUMN, DELETE_COLUMN, KEEP_COLUMN, *orders_named]
    if taken := set(own) & set(schema.names):
        raise SchemaError(f"the shard's column {printable(min(taken))} has a name that upserts use")
    required = {*schema.names, *own} - {DELETE_COLUMN, KEEP_COLUMN}
    if missing := required - set(names):
        raise SchemaError(f"the rows have no column {printable(min(missing))}")
    allowed = {*schema.names, *own}
    if unknown := [name for name in names if name not in allowed or names.count(name) > 1]:
        raise SchemaError(f"column {printable(unknown[0])} of the rows is unknown or there twice")
    if len(rules.compare_stored) > orders:
        raise UsageError(
            f"{len(rules.compare_stored)} stored columns can't be compared with {orders} orders"
        )
    if rules.bury and not rules.compare_stored:
        raise UsageError(
            "tombstones need an order: say which columns are compared with stored ones"
        )
    return orders


@dataclass(frozen=True, slots=True)
class _Stored:
    """What was there before: rows, and tombstones of keys that hold none."""

    rows: pa.Table
    tombs: pa.Table

    @property
    def count(self) -> int:
        return int(self.rows.num_rows + self.tombs.num_rows)

    def column(self, each: Field) -> pa.ChunkedArray:
        live = cast(self.rows.column(each.name), each.type)
        if each.name in self.tombs.schema.names:
            gone = cast(self.tombs.column(each.name), each.type)
        else:
            gone = pa.chunked_array([pa.nulls(self.tombs.num_rows, each.type)])
        return pa.chunked_array([*live.chunks, *gone.chunks], each.type)


def _tombs_given(tombs: pa.Table | None, schema: Schema, rules: Rules) -> pa.Table:
    if tombs is None:
        return tomb_schema(schema, rules).arrow().empty_table()
    return tombs


def _count_orders(incoming: pa.Table, schema: Schema) -> int:
    own = set(incoming.schema.names) - set(schema.names)
    return sum(name.startswith(ORDER_COLUMN) for name in own)


def _events(
    incoming: pa.Table, there: _Stored, schema: Schema, rules: Rules, keep: dict[str, Mask]
) -> _Events:
    gone = _flags(incoming)
    ordered = _placed_by_order(incoming, gone, rules)
    joined = []
    for each in schema.fields:
        excused = gone | keep[each.name] if each.name in keep else gone
        before, after = there.column(each), _accepted(ordered[each.name], each, schema, excused)
        joined.append(pa.chunked_array([*before.chunks, *after.chunks], before.type))
    rows = pa.Table.from_arrays(joined, schema=schema.arrow()).combine_chunks()
    times = np.concatenate((np.full(there.count, _STORED, np.int64), _times(incoming)))
    keyed = key_columns(rows, schema).append_column(TIME_COLUMN, pa.array(times))
    laid = lay_out(keyed, schema)
    order = np.arange(len(times)) if laid.order is None else laid.order
    places = np.zeros(0, np.uint64) if laid.places is None else laid.places
    first = ~repeats(laid.updates.drop_columns([TIME_COLUMN]), places)
    live, dead = there.rows.num_rows, there.tombs.num_rows
    stored_gone = np.concatenate((np.zeros(live, np.bool_), np.ones(dead, np.bool_)))
    columns = _orders(incoming, there, schema, rules)
    full = ranks(columns, len(times))[order]
    compared = columns[: len(rules.compare_stored)]
    shorter = len(compared) < len(columns)
    buried_at = times.copy()
    if rules.buried_at is not None:
        buried_at[there.count :] = rules.buried_at
    buried_at[live : there.count] = there.tombs.column(BURIED_AT).to_numpy()
    return _Events(
        schema,
        rows,
        order,
        row_base(rows, schema.ids)[order],
        places,
        np.cumsum(first, dtype=np.int64),
        times[order],
        np.concatenate((stored_gone, gone))[order],
        full,
        ranks(compared, len(times))[order] if shorter else full,
        buried_at[order],
    )


def _placed_by_order(incoming: pa.Table, gone: Mask, rules: Rules) -> dict[str, pa.ChunkedArray]:
    """The columns; a deletion's place in the order is what its order columns say, not its row."""
    columns = dict(zip(incoming.schema.names, incoming.columns, strict=True))
    if rules.bury:
        for at, name in enumerate(rules.compare_stored):
            own = cast(columns[f"{ORDER_COLUMN}{at}"], columns[name].type)
            columns[name] = pc.if_else(pa.array(gone), own, columns[name])
    return columns


def _with_kept(events: _Events, keep: dict[str, Mask], stored: int, rules: Rules) -> _Events:
    """The events with the values that their rows keep."""
    by = (events.hashes, events.gone, events.ranks, events.times, events.keys)
    chain: I64 = np.lexsort(by)
    usable = ~_late(events, chain, rules)
    rows = events.rows
    for name, flags in keep.items():
        kept = np.concatenate((np.zeros(stored, np.bool_), flags))[events.sources[chain]]
        kept &= ~events.gone[chain]
        held = holders(events.keys[chain], kept, usable)
        nobody = (held < 0) | (kept & events.gone[chain[held]])
        origins: I64 = np.empty(len(chain), np.int64)
        origins[events.sources[chain]] = events.sources[chain[held]]
        lost = np.empty(len(chain), np.bool_)
        lost[events.sources[chain]] = nobody
        filled = rows.column(name).take(pa.array(origins, mask=lost))
        at = rows.schema.get_field_index(name)
        _refuse_lost(events, name, lost)
        rows = rows.set_column(at, rows.schema.field(at), filled)
    return replace(events, rows=rows, hashes=row_base(rows, events.schema.ids)[events.sources])


def _refuse_lost(events: _Events, name: str, lost: Mask) -> None:
    if lost.any() and not events.schema.field(name).nullable:
        at = int(np.flatnonzero(lost[events.sources])[0])
        raise SchemaError(
            f"key {events.named(at)} keeps {printable(name)}, but holds no row to keep it from, "
            "and the column may hold no null: declare it nullable"
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


def _orders(
    incoming: pa.Table, there: _Stored, schema: Schema, rules: Rules
) -> list[pa.ChunkedArray]:
    """The order columns of all events; stored rows have those that are compared with them."""
    columns = []
    for at in range(_count_orders(incoming, schema)):
        column = incoming.column(f"{ORDER_COLUMN}{at}")
        if at < len(rules.compare_stored):
            stored = schema.field(rules.compare_stored[at])
            before = there.column(stored)
            column = _cast(column, stored)
        else:
            before = pa.chunked_array([pa.nulls(there.count, column.type)])
        columns.append(pa.chunked_array([*before.chunks, *column.chunks], column.type))
    return columns


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
    # The last of these decides first.
    by = (events.hashes, events.gone, events.ranks, times, keys)
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


def _late(events: _Events, chain: I64, rules: Rules) -> Mask:
    """Which events have a lower order than what their key holds by then."""
    late: Mask = np.zeros(len(chain), np.bool_)
    if not rules.compare_stored:
        return late
    follows = _follows(events, chain)
    keys, gone = events.keys[chain], events.gone[chain]
    orders: I64 = events.stands[chain] + 1
    # A key holds the greatest order it has seen; one number for both makes that one pass.
    greatest = np.maximum.accumulate((keys << 32) + orders)
    late[1:] = follows[1:] & (orders[1:] < (greatest[:-1] & 0xFFFFFFFF))
    if rules.bury:
        return late
    # That is so until a deletion counts: keys that go on after one are looked at event by event.
    resumed = np.flatnonzero(np.isin(keys, keys[1:][gone[:-1] & follows[1:]]))
    late[resumed] = _late_one_by_one(keys[resumed], orders[resumed], gone[resumed])
    return late


def _late_one_by_one(keys: I64, orders: I64, gone: Mask) -> list[bool]:
    late = []
    held, before = 0, None
    for key, order, deletes in zip(keys.tolist(), orders.tolist(), gone.tolist(), strict=True):
        held = held if key == before else 0
        before = key
        late.append(order < held)
        if order >= held:
            held = 0 if deletes else order
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


def _buried(events: _Events, chain: I64, rules: Rules) -> pa.Table:
    """The updates of tombstones."""
    came: Mask = events.times[chain] != _STORED
    causes, tombs, diffs = burials(
        events.keys[chain], events.gone[chain], events.stands[chain], came
    )
    schema = tomb_schema(events.schema, rules)
    rows = events.taken(chain[tombs]).select(tomb_columns(events.schema, rules))
    columns = [
        *rows.columns,
        pa.array(events.buried_at[chain[tombs]]),
        pa.array(events.times[chain[causes]]),
        pa.array(diffs),
    ]
    return pa.Table.from_arrays(columns, schema=schema.updates())


def _shown(value: pa.Scalar) -> str:
    textual = is_.is_string(value.type) or is_.is_large_string(value.type)
    return printable(value.as_py()) if textual else printable(str(value)).strip("'")
