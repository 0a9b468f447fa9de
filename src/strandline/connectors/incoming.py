"""From a source's rows to rows that the upsert kernel takes, and to error rows. Pure.

`decode` never raises for what a source sent. Its table has the columns of the table that is fed,
in all rows but errors, and beside them

    `_delete`      bool          its key holds nothing from now on
    `_truncate`    bool          no key holds anything from now on; it has no row and no key
    `_diff`        int64         how often: 1, but for changes of a shard that is appended
    `_keep`        list<string>  columns that keep what the row of its key has
    `_partition`, `_offset`      where it came from
    `_id`          binary        what an error is known by: the key columns of the message's own key
                                 where it has one, or that key as it is if it does not give them
                                 all; without one its key columns, where they can be read, else its
                                 place. A good row carries the id of the error that it heals
    `_error`       string        why there is no row; null for good rows
    `_raw`         binary        the value that could not be decoded, or its first `KEPT_MAX` bytes

The order of a key's rows is `sequenceBy`, then `_partition`, then `_offset`, everywhere, and so is
that of truncations. Without `sequenceBy`, of the rows of one transaction those come before it that
are of an earlier partition or, in its own, of a lower offset. Errors have the source's order alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.connectors import raw as layout
from strandline.connectors.envelopes import Envelope, Event, notation_in
from strandline.connectors.formats import CSV_COLUMNS, Refused, reason_of
from strandline.connectors.keys import key_parser, key_text, named_by
from strandline.connectors.values import REFUSALS, column, unreadable
from strandline.errors import SchemaError
from strandline.model.columntype import cast
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.connectors.reading import Reading
    from strandline.connectors.values import Notation

ORDER = "_order"
VALUE_MAX = 64 * 1024 * 1024
"""A value of more bytes is no row: nobody fills our memory with what it becomes (X11)."""
KEPT_MAX = 1024 * 1024
"""So many bytes are kept of a value that could not be decoded."""
OURS = (
    pa.field("_delete", pa.bool_(), nullable=False),
    pa.field("_truncate", pa.bool_(), nullable=False),
    pa.field("_diff", pa.int64(), nullable=False),
    pa.field("_keep", pa.list_(pa.string())),
    *layout.PLACE,
    pa.field("_id", pa.binary(), nullable=False),
    pa.field("_error", pa.string()),
    pa.field("_raw", pa.binary()),
)
ERRORS = pa.schema(
    [
        pa.field("id", pa.binary(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)
"""The columns of a table's error collection; `id` is its key."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """What a source's rows mean."""

    table: pa.Table
    fresh: Mapping[str, pa.DataType]
    """Fields that the table has no column for, where it adds them."""

    def appended(self, reading: Reading) -> pa.Table:
        """The good rows of envelope append: columns and `_diff`."""
        return self._good().select([*reading.schema.names, layout.DIFF])

    def rows(self, reading: Reading) -> pa.Table:
        """The good rows for the upsert kernel: columns, `_delete`, `_keep` and order columns."""
        good = self._good()
        kept = good.select([*reading.schema.names, "_delete", "_keep"])
        for at, name in enumerate(_order(reading)):
            kept = kept.append_column(f"{ORDER}{at}", good[name])
        return kept

    def truncations(self, reading: Reading) -> pa.Table:
        """The order columns of all truncations; no other row has a part in them."""
        names = _order(reading)
        found = self.table.filter(self.table["_truncate"]).select(names)
        return found.rename_columns([f"{ORDER}{at}" for at in range(len(names))])

    def _good(self) -> pa.Table:
        rows = pc.and_not(self.table["_error"].is_null(), self.table["_truncate"])
        return self.table.filter(rows)

    def errors(self) -> pa.Table:
        """What happens to error rows: set by errors, deleted by good rows of the same id; for the
        upsert kernel, in the order of the source."""
        found = self.table.filter(pc.invert(self.table["_truncate"]))
        columns = [found[each] for each in ("_id", "_partition", "_offset", "_error", "_raw")]
        gone = found["_error"].is_null()
        columns[3] = pc.fill_null(columns[3], "")
        made = pa.Table.from_arrays(columns, schema=ERRORS).append_column("_delete", gone)
        made = made.append_column(f"{ORDER}0", found["_partition"])
        return made.append_column(f"{ORDER}1", found["_offset"])


def _order(reading: Reading) -> list[str]:
    """The columns that order rows, the first decides first."""
    return [*reading.sequence_by, layout.PARTITION, layout.OFFSET]


def out_schema(reading: Reading) -> pa.Schema:
    """The columns of `Incoming.table`; all of the table's own may be null in it."""
    return pa.schema([*(pa.field(each.name, each.type) for each in reading.schema), *OURS])


def decode(source: pa.Table | pa.RecordBatch, reading: Reading) -> Incoming:
    """What the rows of a source mean for a table."""
    given = source if isinstance(source, pa.Table) else pa.Table.from_batches([source])
    if not layout.is_raw(given.schema):
        return _typed(given, reading)
    fresh: dict[str, pa.DataType] = {}
    parts = [_decoded(rows, reading, header, fresh) for rows, header in _by_header(given, reading)]
    whole = parts or [out_schema(reading).empty_table()]
    return Incoming(pa.concat_tables(whole).combine_chunks(), fresh)


def _by_header(given: pa.Table, reading: Reading) -> list[tuple[pa.Table, tuple[str, ...]]]:
    """Rows with the names in the first line of their file, which only CSV has."""
    if reading.format != "csv" or given.num_rows == 0:
        return [(given, ())]
    lines = [dict(each or ()).get(CSV_COLUMNS, b"") for each in given[layout.HEADERS].to_pylist()]
    cuts = [0, *(at for at in range(1, len(lines)) if lines[at] != lines[at - 1]), len(lines)]
    return [
        (given.slice(start, stop - start), _header_names(lines[start]))
        for start, stop in pairwise(cuts)
    ]


def _header_names(line: bytes) -> tuple[str, ...]:
    return tuple(msgspec.json.decode(line, type=list[str])) if line else ()


@dataclass(slots=True)
class _Found:
    """Good events and refused ones of some rows, each with the row's place."""

    places: list[int]
    events: list[Event]
    refused: dict[int, str]
    keys: dict[int, Event] = field(default_factory=dict)
    """Of refused ones, the key columns, where those could be read."""


def _decoded(
    given: pa.Table, reading: Reading, header: tuple[str, ...], fresh: dict[str, pa.DataType]
) -> pa.Table:
    envelope = Envelope(reading, header, fresh)
    found = _events(given[layout.VALUE].to_pylist(), envelope)
    columns = _columns(found, reading)
    if reading.keyed:
        _fill_keys(columns, found, given, reading)
        _refuse_unplaced(columns, found, reading)
    return _assembled(columns, found, given, reading)


def _events(values: Sequence[bytes | None], envelope: Envelope) -> _Found:
    found = _Found([], [], {})
    for place, value in enumerate(values):
        if value is not None and len(value) > VALUE_MAX:
            found.refused[place] = f"it has {len(value)} bytes, and {VALUE_MAX} are taken"
            continue
        try:
            event = envelope.event(value)
        except REFUSALS as error:
            found.refused[place] = reason_of(error)
            if value is not None and envelope.reading.keyed:
                key = envelope.key_of(value)
                found.keys |= {} if key is None else {place: key}
            continue
        if isinstance(event, Refused):
            found.refused[place] = event.reason
        elif event is not None:
            found.places.append(place)
            found.events.append(event)
    return found


def _columns(found: _Found, reading: Reading) -> list[pa.Array]:
    """The table's columns of all good events; those with a value that does not fit turn bad."""
    rows = [event.row for event in found.events]
    columns: list[Any] = []
    for at, each in enumerate(reading.schema):
        get = attrgetter(f"c{at}")
        values = [None if row is None else get(row) for row in rows]
        how = _notations(found.events, each.name, reading)
        if each.name in reading.sequence_by and reading.envelope == "debezium":
            place = reading.sequence_by.index(each.name)
            values, how = _sequenced(
                found.events, values, how, reading.notation_of(each.name), place
            )
        columns.append(_column(values, each, found, how))
    return columns


def _notations(events: Sequence[Event], name: str, reading: Reading) -> list[Notation]:
    """How a column of each event is written; one for all if they are alike."""
    said = {id(event.written): event.written for event in events}
    notations = {at: notation_in(each, name, reading) for at, each in said.items()}
    if len(set(notations.values())) < 2:
        return list(notations.values())[:1] or [reading.notation_of(name)]
    return [notations[id(event.written)] for event in events]


def _sequenced(
    events: Sequence[Event],
    values: list[Any],
    how: list[Notation],
    options: Notation,
    at: int,
) -> tuple[list[Any], list[Notation]]:
    """The values of a `sequenceBy` column: of the source, of the message, else of the row. What is
    not of the row is written as the options say."""
    name = f"s{at}"
    filled, notations = [], []
    for event, value, notation in zip(
        events, values, how if len(how) > 1 else how * len(values), strict=True
    ):
        message = event.sequence
        own = None
        if message is not None:
            # Neither has a place for a name that means another thing in it.
            own = getattr(message.source, name, None)
            own = getattr(message, name, None) if own is None else own
        filled.append(value if own is None else own)
        notations.append(notation if own is None else options)
    return filled, notations or how


def _column(values: list[Any], each: pa.Field, found: _Found, how: Sequence[Notation]) -> pa.Array:
    """A column of values, of which each is written in its own way, or all in one."""
    try:
        return _mixed(values, each.type, how)
    except REFUSALS:
        for at, value in enumerate(values):
            try:
                column([value], each.type, how[at] if len(how) > 1 else how[0])
            except REFUSALS as error:
                values[at] = None
                place = found.places[at]
                why = f"column {printable(each.name)}: {reason_of(error)}"
                found.refused.setdefault(place, why)
        return _mixed(values, each.type, how)


def _mixed(values: list[Any], kind: pa.DataType, how: Sequence[Notation]) -> pa.Array:
    alike: dict[Notation, list[int]] = {}
    if len(how) > 1:
        for at, notation in enumerate(how):
            alike.setdefault(notation, []).append(at)
    if len(alike) < 2:
        return column(values, kind, how[0])
    parts = [column([values[at] for at in of], kind, each) for each, of in alike.items()]
    places = np.argsort(np.concatenate([np.array(of, np.int64) for of in alike.values()]))
    return pa.concat_arrays(parts).take(pa.array(places))


# ---- keys


def _fill_keys(columns: list[pa.Array], found: _Found, given: pa.Table, reading: Reading) -> None:
    """Key columns that a row leaves out are taken from the message's own key."""
    at = [reading.schema.get_field_index(name) for name in reading.key]
    lacks = np.zeros(len(found.places), np.bool_)
    for each in at:
        lacks |= columns[each].is_null().to_numpy(zero_copy_only=False)
    lacking = np.flatnonzero(lacks).tolist()
    if not lacking:
        return
    keys = given[layout.KEY].take(pa.array([found.places[each] for each in lacking]))
    parse = key_parser(reading)
    filled: dict[int, list[Any]] = {where: [None] * len(found.places) for where in at}
    how = {where: [reading.notation_of(reading.schema.names[where])] for where in at}
    how = {where: each * len(found.places) for where, each in how.items()}
    for event, key in zip(lacking, keys.to_pylist(), strict=True):
        parsed = parse(key) if key is not None else None
        for where, value, notation in () if parsed is None else zip(at, *parsed, strict=True):
            filled[where][event], how[where][event] = value, notation
    for where in at:
        taken = _column(filled[where], reading.schema.field(where), found, how[where])
        columns[where] = pc.coalesce(columns[where], taken)


def _refuse_unplaced(columns: list[pa.Array], found: _Found, reading: Reading) -> None:
    """Deletions and truncations without a place in the order would lose against every row that has
    one, and nobody would know."""
    delete, truncate = (_flags(found, flag) for flag in ("delete", "truncate"))
    for name in reading.sequence_by if (delete | truncate).any() else ():
        nulls = columns[reading.schema.get_field_index(name)].is_null()
        missing = (delete | truncate) & nulls.to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(missing).tolist():
            what = "op t" if truncate[at] else "a deletion"
            why = f"{what} has no {printable(name)}, so no place in the order that sequenceBy gives"
            found.refused.setdefault(found.places[at], why)


# ---- what comes out


def _assembled(
    columns: list[pa.Array], found: _Found, given: pa.Table, reading: Reading
) -> pa.Table:
    rows = pa.Table.from_arrays(columns, names=reading.schema.names)
    keep = [event.keep or None for event in found.events]
    _refuse_nulls(rows, keep, found, reading)
    delete, truncate = (_flags(found, flag) for flag in ("delete", "truncate"))
    places = np.array(found.places, np.int64)
    bad = sorted(found.refused.keys() - set(found.places))
    places = np.concatenate((places, np.array(bad, np.int64)))
    extra = len(places) - len(found.places)
    truncate = np.concatenate((truncate, np.zeros(extra, np.bool_)))
    errors = pa.array([found.refused.get(place) for place in places.tolist()], pa.string())
    taken = given.take(pa.array(places))
    wrong = errors.is_valid()
    ours = {
        "_delete": pa.array(np.concatenate((delete, np.zeros(extra, np.bool_)))),
        # One that has no place in the order is an error and empties nothing.
        "_truncate": pc.and_(pa.array(truncate), pc.invert(wrong)),
        "_diff": _diffs(taken),
        "_keep": pa.array([*keep, *([None] * extra)], pa.list_(pa.string())),
        "_partition": taken[layout.PARTITION],
        "_offset": taken[layout.OFFSET],
        "_error": errors,
        "_raw": pc.binary_slice(pc.if_else(wrong, taken[layout.VALUE], None), 0, KEPT_MAX),
    }
    padded = [
        pa.chunked_array([*rows[each.name].chunks, *_refused(each, bad, found, reading)], each.type)
        for each in reading.schema
    ]
    whole = pa.Table.from_arrays(padded, names=reading.schema.names)
    ours["_id"] = _ids(whole, taken, reading)
    arrays = [*whole.columns, *(ours[each.name] for each in OURS)]
    made = pa.Table.from_arrays(arrays, schema=out_schema(reading))
    return made.take(pa.array(np.argsort(places, kind="stable")))


def _refused(
    each: pa.Field, places: list[int], found: _Found, reading: Reading
) -> Sequence[pa.Array]:
    """A column of values that were refused: null, but for keys."""
    if not found.keys or each.name not in reading.key:
        return [pa.nulls(len(places), each.type)]
    get = attrgetter(f"c{reading.key.index(each.name)}")
    keys = [found.keys.get(place) for place in places]
    values = [None if key is None else get(key.row) for key in keys]
    how = _notations([key or Event() for key in keys], each.name, reading)
    return [_column(values, each, _Found(places, [], found.refused), how)]


def _diffs(taken: pa.Table) -> pa.ChunkedArray:
    if layout.DIFF in taken.schema.names:
        return taken[layout.DIFF]
    return pa.chunked_array([pa.repeat(pa.scalar(1, pa.int64()), taken.num_rows)])


def _flags(found: _Found, name: str) -> np.typing.NDArray[np.bool_]:
    get = attrgetter(name)
    return np.fromiter(map(get, found.events), np.bool_, len(found.events))


def _refuse_nulls(
    rows: pa.Table,
    keep: Sequence[tuple[str, ...] | None],
    found: _Found,
    reading: Reading,
) -> None:
    """Rows with a null where none may be are errors; deletions need their key alone."""
    delete, truncate = (_flags(found, flag) for flag in ("delete", "truncate"))
    for each in reading.schema:
        is_key = reading.keyed and each.name in reading.key
        if not rows[each.name].null_count or not (is_key or not each.nullable):
            continue
        nulls = rows[each.name].is_null().to_numpy()
        for at in np.flatnonzero(nulls & ~truncate & (is_key | ~delete)).tolist():
            if not is_key and each.name in (keep[at] or ()):
                continue
            what = "the key's column" if is_key else "column"
            why = f"{what} {printable(each.name)} is null or left out, and may not be"
            found.refused.setdefault(found.places[at], why)


def _ids(rows: pa.Table, taken: pa.Table, reading: Reading) -> pa.ChunkedArray:
    """What the error of each row is known by, whether there is one or not."""
    place = pc.binary_join_element_wise(
        "at", taken[layout.PARTITION], taken[layout.OFFSET].cast(pa.string()), "\x1f"
    )
    given = taken[layout.KEY] if layout.KEY in taken.schema.names else None
    if not reading.keyed:
        return place.cast(pa.binary())
    keys = rows.select(list(reading.key))
    whole = pc.coalesce(key_text(keys).cast(pa.binary()), place.cast(pa.binary()))
    if given is None or given.null_count == len(given):
        return whole
    return pc.coalesce(named_by(given, keys, reading), whole)


# ---- rows that are typed already


def _typed(given: pa.Table, reading: Reading) -> Incoming:
    known = set(reading.schema.names)
    fresh = {
        each.name: each.type
        for each in layout.own_columns(given.schema)
        if reading.new_columns == "add" and each.name not in known
    }
    found = _Found([*range(given.num_rows)], [], {})
    columns = [_cast_column(given, each, found) for each in reading.schema]
    deletes = pa.chunked_array([pa.repeat(False, given.num_rows)])
    if layout.DELETE in given.schema.names:
        deletes = pc.fill_null(given[layout.DELETE], False)
    found.events = [Event(delete=each) for each in deletes.to_pylist()]
    value = pa.nulls(given.num_rows, pa.binary())
    raw = given.append_column(layout.VALUE, value)
    return Incoming(_assembled(columns, found, raw, reading), fresh)


def _cast_column(given: pa.Table, each: pa.Field, found: _Found) -> pa.ChunkedArray:
    if each.name not in given.schema.names:
        return pa.chunked_array([pa.nulls(given.num_rows, each.type)])
    have = given[each.name]
    try:
        made = cast(have, each.type)
    except SchemaError as error:
        made = _cast_one_by_one(have, each, found, reason_of(error))
    wrong = unreadable(made)
    for at, why in wrong.items():
        found.refused.setdefault(at, f"column {printable(each.name)}: {why}")
    if not wrong:
        return made
    good = np.ones(len(made), np.bool_)
    good[list(wrong)] = False
    # Taken, as a value that is no value must not be looked at.
    return made.take(pa.array(np.arange(len(made)), mask=~good))


def _cast_one_by_one(
    have: pa.ChunkedArray, each: pa.Field, found: _Found, reason: str
) -> pa.ChunkedArray:
    parts = []
    for at in range(len(have)):
        try:
            parts += cast(have.slice(at, 1), each.type).chunks
        except SchemaError:
            found.refused.setdefault(at, f"column {printable(each.name)}: {reason}")
            parts.append(pa.nulls(1, each.type))
    return pa.chunked_array(parts, each.type)
