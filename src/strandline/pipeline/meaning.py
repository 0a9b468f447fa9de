"""What the rows of a transaction mean for a table, in Arrow; every computer calls this. Pure.

envelope append     each good row is one more, or one less where the source says `_diff`
upsert, debezium    the last row of each key counts: by `sequenceBy`, then partition and offset
tombstones          of keys deleted more than `keepDeleted` ago, by the transaction's own clock, go
                    now and then, before what comes is compared with those that stay
errors              kept by id; a good row of the same id heals, and so retracts, the error
truncation          what comes before it in the order goes; the order of the last one is the floor
reload              what came is all there is: what the table holds besides is retracted
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.connectors.incoming import ERRORS, ORDER
from strandline.connectors.reading import Reading, is_about_rows, reading
from strandline.errors import invariant
from strandline.model.digest import Digest
from strandline.model.engine import Rules
from strandline.model.rowhash import row_base
from strandline.model.schema import DIFF_COLUMN, TIME_COLUMN, Schema
from strandline.parts.consolidate import as_updates, consolidate
from strandline.parts.emptied import NOTHING, Emptying, There, later, resolve_emptied
from strandline.pipeline.evolve import word_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.connectors.incoming import Incoming
    from strandline.model.frontier import Time
    from strandline.views.declared import Table, View

ERROR_SCHEMA = Schema.create(ERRORS, ["id"])
SWEEP_EVERY = 64
"""So many transactions share the cost of looking for old tombstones."""
DIVISION = "division by zero"
MISFIT = "a value does not fit its type"
"""Why a view's query raised, in words that do not depend on who computed it: engines word the
rest differently, and what they say of the value depends on how they got there."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Values of a table that can't be decoded: how many, and the first of them."""

    rows: int
    partition: str
    offset: int
    reason: str
    strict: bool = True
    """Whether they do not fit the columns that are declared: others were made by the source itself,
    and what does not fit them stops nothing."""

    def with_others(self, others: Undecoded | None) -> Undecoded:
        """These and those; the order in which they are found does not matter."""
        if others is None:
            return self
        some = [each for each in (self, others) if each.strict] or [self, others]
        first = min(some, key=lambda each: (each.partition, each.offset))
        return replace(first, rows=sum(each.rows for each in some))


def reading_of(table: Table) -> Reading:
    """How a table of a program reads its source."""
    return reading(table.columns, table.key, reading_options(table))


def reading_options(table: Table) -> dict[str, str]:
    """What a table says about its rows, as `reading` takes it."""
    options = {name: value for name, value in table.options.items() if is_about_rows(name)}
    options["envelope"] = table.envelope
    if table.sequence_by:
        options["sequenceBy"] = ",".join(table.sequence_by)
    return options


def input_digest(rows: pa.Table | pa.RecordBatch) -> Digest:
    """Of rows as a source gave them, in whatever pieces: digests of pieces add up."""
    hashes = row_base(rows, range(1, rows.num_columns + 1))
    return Digest.of(hashes, np.ones(rows.num_rows, np.int64))


def updates_digest(updates: pa.Table, schema: Schema) -> Digest:
    """Of updates of a shard."""
    rows = updates.select(list(schema.names))
    return Digest.of(row_base(rows, schema.ids), updates[DIFF_COLUMN].to_numpy())


def appended(
    incoming: Incoming, how: Reading, schema: Schema, replaced: pa.Table | None = None
) -> pa.Table:
    """The updates of a table without a key; `replaced` is what it held, if it is reloaded."""
    came = consolidate(fitted(incoming.appended(how), schema))
    return came if replaced is None else difference(expanded(came), replaced)


def fitted(rows: pa.Table, schema: Schema) -> pa.Table:
    """Rows of a time when the table had fewer columns than it has now: those are null."""
    missing = [each for each in schema.fields if each.name not in rows.column_names]
    for each in missing:
        rows = rows.append_column(each.name, pa.nulls(rows.num_rows, each.type))
    if not missing:
        return rows
    ours = [name for name in rows.column_names if name not in schema.names]
    return rows.select([*schema.names, *ours])


def fresh_words(fresh: Mapping[str, pa.DataType]) -> dict[str, str]:
    """Fields without a column that can have one, with its type."""
    words = {name: word_of(kind) for name, kind in fresh.items()}
    return {name: word for name, word in words.items() if word is not None}


def rules_of(how: Reading, now_ms: int | None = None) -> Rules:
    """A sequence is compared with the stored one, deleted keys included."""
    buries = bool(how.sequence_by)
    return Rules(compare_stored=how.sequence_by, bury=buries, buried_at=now_ms if buries else None)


def sweep_before(how: Reading, at: Time, now_ms: int) -> int | None:
    """The instant before which tombstones go in a transaction; `None` if it sweeps none.

    Everybody who computes the transaction decides the same: by its number and its own clock.
    """
    if not how.sequence_by or how.keep_deleted_ms is None or (at + 1) % SWEEP_EVERY:
        return None
    return now_ms - how.keep_deleted_ms


def emptying_of(
    truncations: Sequence[pa.Table], how: Reading, floor: pa.Table | None, *, reload: bool
) -> Emptying:
    """What empties a table, from all truncations that came and the floor that it has."""
    at = later(truncations)
    raised = None
    if at is not None and how.sequence_by:
        raised = at.select(range(len(how.sequence_by))).rename_columns(list(how.sequence_by))
    return Emptying(reload, at, later([floor, raised]))


def errors_emptying(truncations: Sequence[pa.Table], how: Reading, *, reload: bool) -> Emptying:
    """What empties the table's errors: their order is that of the source alone."""
    skipped = len(how.sequence_by)
    places = [
        each.select([skipped, skipped + 1]).rename_columns([f"{ORDER}0", f"{ORDER}1"])
        for each in truncations
    ]
    return Emptying(reload, later(places))


def floor_updated(emptying: Emptying, old: pa.Table) -> pa.Table:
    """The updates of a table's floor."""
    new = old if emptying.floor is None else emptying.floor.cast(old.schema)
    return difference(new, old)


def upserted(
    rows: pa.Table,
    how: Reading,
    held: There,
    schema: Schema,
    at: tuple[Time, int],
    emptying: Emptying = NOTHING,
) -> tuple[pa.Table, pa.Table | None]:
    """The updates of a keyed table, and those of its tombstones where it has any; `at` is the
    transaction's time and what its clock said."""
    time, now_ms = at
    came, rules = _timed(fitted(rows, schema), time), rules_of(how, now_ms)
    updates, tombs = resolve_emptied(came, held, schema, rules, emptying, time)
    buried = None if tombs is None else tombs.drop_columns([TIME_COLUMN])
    return updates.drop_columns([TIME_COLUMN]), buried


def errors_updated(
    incoming: Incoming, old: pa.Table, at: Time, emptying: Emptying = NOTHING
) -> pa.Table:
    """The updates of a table's error collection that holds `old`."""
    rows = _timed(incoming.errors(), at)
    updates, _ = resolve_emptied(rows, There(old), ERROR_SCHEMA, Rules(), emptying, at)
    return updates.drop_columns([TIME_COLUMN])


def declared_only(how: Reading, names: Sequence[str]) -> Reading | None:
    """How a table reads its source without the columns that it was given; `None` if it was
    given none."""
    declared = [each for each in how.schema if each.name in names]
    if not names or len(declared) == len(how.schema):
        return None
    return replace(how, schema=pa.schema(declared))


def undecoded(
    incoming: Incoming, declared: Callable[[], Incoming] | None = None
) -> Undecoded | None:
    """The values that could not be decoded, if there are any; `declared` decodes them again without
    the columns that the table was given."""
    found = _undecoded(incoming)
    if found is None or declared is None:
        return found
    return _undecoded(declared()) or replace(found, strict=False)


def _undecoded(incoming: Incoming) -> Undecoded | None:
    bad = incoming.table.filter(incoming.table["_error"].is_valid())
    if not bad.num_rows:
        return None
    order = [("_partition", "ascending"), ("_offset", "ascending")]
    (first,) = (
        bad.select(["_partition", "_offset", "_error"]).sort_by(order).slice(0, 1).to_pylist()
    )
    return Undecoded(bad.num_rows, first["_partition"], first["_offset"], first["_error"])


def difference(new: pa.Table, old: pa.Table) -> pa.Table:
    """The updates that turn the rows `old` into the rows `new`."""
    names = new.schema.names
    gone = as_updates(old, names)
    gone = gone.set_column(
        gone.schema.get_field_index(DIFF_COLUMN),
        gone.schema.field(DIFF_COLUMN),
        pa.array(-gone[DIFF_COLUMN].to_numpy()),
    )
    return consolidate(pa.concat_tables([as_updates(new, names), gone]))


def expanded(updates: pa.Table) -> pa.Table:
    """The rows of a collection from its consolidated updates, each as often as it occurs."""
    diffs = updates[DIFF_COLUMN].to_numpy()
    invariant(not len(diffs) or diffs.min() > 0, "a row was retracted more often than inserted")
    places = np.repeat(np.arange(len(diffs)), diffs)
    return updates.drop_columns([DIFF_COLUMN]).take(pa.array(places))


def row_text(view: View, collection: str, row: pa.Table) -> str:
    """One row in words, the same from every computer, for whoever looks for it.

    By what the view sees of it, whatever columns the table has got or declares by now: the row's
    error is retracted by the same words.
    """
    seen = view.sees.get(collection, row.column_names)
    names = [name for name in seen if not name.startswith("_")]
    values = ", ".join(f"{name} = {row[name][0].as_py()!r}" for name in names)
    return f"{collection}: {values}"


def packed_rows(rows: pa.Table) -> bytes:
    """Rows as they are staged."""
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(out, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(out.getvalue())


def unpacked_rows(payload: bytes) -> pa.Table:
    """Rows that were staged."""
    return pa.ipc.open_stream(payload).read_all()


def _timed(rows: pa.Table, at: Time) -> pa.Table:
    return rows.append_column(TIME_COLUMN, pa.array(np.full(rows.num_rows, at, np.int64)))
