"""What rows make of a table that is emptied among them. Pure.

    truncation   an event with a place in the order: rows before it go, those that were there and
                 those that came; rows after it count
    floor        the order of the last truncation on record: a key that holds nothing takes no row
                 of lower order, as if each key there could be had been deleted at it
    reload       what came is all there is, as it is: no order of a stored row or of a tombstone is
                 compared, and keys that go are buried with the order that their rows had

Only differences come out: a row that goes and comes back the same is no update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.model.columntype import cast
from strandline.model.engine import ORDER_COLUMN, Rules
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN
from strandline.parts.consolidate import consolidate, constant
from strandline.parts.layout import lay_out
from strandline.parts.lookup import Keys, find, key_columns
from strandline.parts.ranks import ranks
from strandline.parts.tombstones import BURIED_AT, tomb_columns, tomb_schema
from strandline.parts.upsert import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.model.frontier import Time
    from strandline.model.schema import Schema
    from strandline.model.valuehash import I64, Mask


@dataclass(frozen=True, slots=True)
class Emptying:
    """What empties a table in a transaction, and what did so before."""

    reload: bool = False
    at: pa.Table | None = None
    """The last truncation: one row of order columns."""
    floor: pa.Table | None = None
    """The floor, this truncation included: one row of the columns that are compared."""

    def __bool__(self) -> bool:
        return self.empties or self.floor is not None

    @property
    def empties(self) -> bool:
        """Whether rows of any key may go, so that all that is there has to be looked at."""
        return self.reload or self.at is not None


NOTHING = Emptying()


@dataclass(frozen=True, slots=True)
class There:
    """What is there: all rows if the table is emptied, else those of the keys that came."""

    rows: pa.Table
    tombs: pa.Table | None = None


def resolve_emptied(
    incoming: pa.Table, there: There, schema: Schema, rules: Rules, emptying: Emptying, time: Time
) -> tuple[pa.Table, pa.Table | None]:
    """The updates of a table and of its tombstones, as `resolve` gives them."""
    if emptying.reload:
        return _reloaded(incoming, there, schema, rules, time)
    stays, goes = there.rows, there.rows.slice(0, 0)
    if emptying.at is not None:
        incoming = incoming.filter(pa.array(_against(incoming, emptying.at) > 0))
        newer = _newer(there.rows, emptying.at, rules)
        stays, goes = there.rows.filter(pa.array(newer)), there.rows.filter(pa.array(~newer))
    if emptying.floor is not None:
        low = _against(incoming, _as_orders(emptying.floor)) < 0
        incoming = incoming.filter(pa.array(~low | among(incoming, stays, schema)))
    found = resolve(incoming, stays, schema, rules, there.tombs)
    if not goes.num_rows:
        return found.updates, found.tombs
    return _sum([_updates(goes, schema, time, -1), found.updates], schema), found.tombs


def later(marks: Sequence[pa.Table | None]) -> pa.Table | None:
    """Of single rows of the same columns the one of the highest order; `None` if there is none."""
    some = [each for each in marks if each is not None and each.num_rows]
    if not some:
        return None
    whole = pa.concat_tables(some).combine_chunks()
    return whole.slice(int(np.argmax(ranks(whole.columns, whole.num_rows))), 1)


def among(rows: pa.Table, others: pa.Table, schema: Schema) -> Mask:
    """Of each row, whether its key is that of one of the others."""
    found: Mask = np.zeros(rows.num_rows, np.bool_)
    if not rows.num_rows or not others.num_rows:
        return found
    laid = lay_out(key_columns(rows, schema), schema)
    places = np.zeros(0, np.uint64) if laid.places is None else laid.places
    hits = find(laid.updates, places, Keys.of(others, schema))
    found[hits if laid.order is None else laid.order[hits]] = True
    return found


def _reloaded(
    incoming: pa.Table, there: There, schema: Schema, rules: Rules, time: Time
) -> tuple[pa.Table, pa.Table | None]:
    # Order columns still tell which of several rows of a key is the last.
    came = resolve(incoming, there.rows.slice(0, 0), schema, Rules()).updates
    updates = _sum([_updates(there.rows, schema, time, -1), came], schema)
    if not rules.bury:
        return updates, None
    own = tomb_schema(schema, rules)
    gone = there.rows.filter(pa.array(~among(there.rows, came, schema)))
    buried = gone.select(tomb_columns(schema, rules))
    when = time if rules.buried_at is None else rules.buried_at
    buried = buried.append_column(BURIED_AT, constant(when, buried.num_rows))
    tombs = own.arrow().empty_table() if there.tombs is None else there.tombs
    back = tombs.filter(pa.array(among(tombs, came, schema)))
    return updates, _sum([_updates(back, own, time, -1), _updates(buried, own, time, 1)], own)


def _sum(updates: Sequence[pa.Table], schema: Schema) -> pa.Table:
    """What updates add up to, those given first first at their place."""
    return lay_out(consolidate(pa.concat_tables(updates).combine_chunks()), schema).updates


def _updates(rows: pa.Table, schema: Schema, time: Time, diff: int) -> pa.Table:
    columns = [cast(rows.column(each.name), each.type) for each in schema.fields]
    count = rows.num_rows
    arrays = [*columns, constant(time, count), constant(diff, count)]
    names = [*schema.names, TIME_COLUMN, DIFF_COLUMN]
    made = pa.Table.from_arrays(arrays, names=names)
    return made.select(schema.updates().names).cast(schema.updates())


def _as_orders(mark: pa.Table) -> pa.Table:
    return mark.rename_columns([f"{ORDER_COLUMN}{at}" for at in range(mark.num_columns)])


def _against(rows: pa.Table, mark: pa.Table) -> I64:
    """Of each row, below zero if its order is lower than the mark's, zero if it is the same."""
    columns = []
    for name in mark.column_names:
        own = rows.column(name)
        columns.append(pa.chunked_array([*own.chunks, *cast(mark.column(name), own.type).chunks]))
    found = ranks(columns, rows.num_rows + 1)
    against: I64 = found[:-1] - found[-1]
    return against


def _newer(rows: pa.Table, at: pa.Table, rules: Rules) -> Mask:
    """Of rows that are there, which are of higher order than a truncation."""
    if not rules.compare_stored:
        return np.zeros(rows.num_rows, np.bool_)
    compared = list(rules.compare_stored)
    mark = at.select(range(len(compared)))
    orders = rows.select(compared).rename_columns(mark.column_names)
    newer: Mask = _against(orders, mark) > 0
    return newer
