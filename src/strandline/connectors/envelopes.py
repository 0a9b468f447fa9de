"""What a message means for its table: the types that values are decoded into, and their reading.

    envelope  message                                  meaning
    --------  ---------------------------------------  --------------------------------------------
    append    a row                                    one more row
    upsert    a row                                    what its key holds from now on
              null, or a row with `_delete`            its key holds nothing
    debezium  op c, r, u                               `after` is what its key holds
              op d                                     the key of `before` holds nothing
              op t                                     all keys hold nothing; see `incoming`
              op m                                     nothing
              null (a tombstone)                       its key holds nothing; nothing at all where
                                                       `sequenceBy` orders rows, as it has no place
                                                       in that order and follows a d that has

Debezium's messages may be wrapped as `{"schema": …, "payload": …}`; then each column is written as
that schema says (`connect_schema`), else as the options say. A `sequenceBy` column is
filled from `source`, else from the message itself, else from the row, so that deletions have
their place, too. Fields of `source` that say where an event is from, and not when, never fill one
(`NO_ORDER`), and one of another type than the column's leaves it to what the row has. A value that
says `__debezium_unavailable_value` keeps what the row has: the column is named in `keep`. Fields
without a column are `fresh` where the table adds new columns, with the type that the message's
schema says, else the one that they seem to have; elsewhere they are ignored.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from strandline.connectors.connect_schema import schema_in, written_row
from strandline.connectors.formats import Refused, json_of, parser
from strandline.connectors.values import REFUSALS, python_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.connectors.connect_schema import Written
    from strandline.connectors.reading import Reading
    from strandline.connectors.values import Notation

NO_ORDER = frozenset(
    (
        *("version", "connector", "name", "snapshot", "db", "schema", "table", "collection"),
        *("server_id", "thread", "query", "redo_sql", "user_name", "row_id"),
    )
)
"""What Debezium's `source` says of the connector, the table, the session or the statement: a column
of such a name is the table's own."""
_OWN = frozenset(("op", "before", "after", "source", "payload", "schema", "transaction"))
"""What a message has, wherever it is from."""
UNAVAILABLE = b"__debezium_unavailable_value"
_UNAVAILABLE_BYTES = base64.b64encode(UNAVAILABLE)
_UNAVAILABLE_FORMS = {
    b'"%b"' % UNAVAILABLE,
    b'["%b"]' % UNAVAILABLE,
    b'"%b"' % _UNAVAILABLE_BYTES,
}
_DELETES = "deletes"
_Raws = dict[str, msgspec.Raw]
_SCHEMAS_MAX = 64
"""So many schemas of messages are remembered at once."""


@dataclass(slots=True)
class Event:
    """What one message says; `row` has the columns as attributes `c0` and so on."""

    row: Any = None
    delete: bool = False
    truncate: bool = False
    """Whether it empties the table."""
    keep: tuple[str, ...] = ()
    sequence: Any = None
    """Where `sequenceBy` columns come from if not from the row: attributes `s0` and so on."""
    written: Written | None = None
    """How the row is written, where its message says so."""


@dataclass
class Envelope:
    """A table's messages, ready to be parsed and read."""

    reading: Reading
    names: Sequence[str] = ()
    fresh: dict[str, pa.DataType] = field(default_factory=dict)
    """Fields without a column that were seen so far, and their types."""
    written: Written | None = None
    """What the schema of these messages says of their rows."""

    def __post_init__(self) -> None:
        add = self.reading.new_columns == "add"
        csv = self.reading.format == "csv"
        strict, lax = (
            _message(self.reading, self.written, forbid=each) for each in (add and not csv, False)
        )
        self._parse = parser(self.reading, strict, self.names)
        # Mended messages are JSON, whatever they were.
        self._parse_mended: Callable[[bytes], Any] = msgspec.json.Decoder(lax).decode
        self._as_json = json_of(self.reading)
        self._by_schema: dict[bytes, Envelope] = {}
        self._mends = not csv and (add or self.reading.envelope == "debezium")
        if csv and add:
            known = {*self.reading.schema.names, "_delete"}
            self.fresh |= {name: pa.string() for name in self.names if name not in known}

    def event(self, value: bytes | None) -> Event | Refused | None:
        """What a value says, `None` if nothing; one of `REFUSALS` if it can't be parsed."""
        if value is None:
            return self.read(None, ())
        how = self._how(value)
        return how.read(*how.parse(value))

    def _how(self, value: bytes) -> Envelope:
        """What reads a value: where it carries a schema, another one for each."""
        if self.reading.envelope != "debezium" or self.reading.format != "json":
            return self
        schema = schema_in(value)
        if schema is None:
            return self
        found = self._by_schema.get(schema)
        if found is None:
            if len(self._by_schema) >= _SCHEMAS_MAX:
                self._by_schema.clear()
            written = written_row(schema, self.reading.notation_of)
            found = replace(self, written=written) if written.notations else self
            self._by_schema[schema] = found
        return found

    def parse(self, value: bytes) -> tuple[Any, tuple[str, ...]]:
        """The message in a value, and the columns that keep what they hold."""
        debezium = self.reading.envelope == "debezium"
        if debezium and (UNAVAILABLE in value or _UNAVAILABLE_BYTES in value):
            return self._mended(value)
        try:
            return self._parse(value), ()
        except msgspec.ValidationError:
            if not self._mends:
                raise
            return self._mended(value)

    def key_of(self, value: bytes) -> Event | None:
        """Of a value that can't be parsed the key columns alone, if they can be without the others:
        `c0` and so on are those of the key."""
        try:
            event = self._keys.event(value)
        except REFUSALS:
            return None
        return event if isinstance(event, Event) and event.row is not None else None

    @cached_property
    def _keys(self) -> Envelope:
        key = pa.schema([self.reading.schema.field(name) for name in self.reading.key])
        envelope = "debezium" if self.reading.envelope == "debezium" else "append"
        alone = replace(
            self.reading, schema=key, envelope=envelope, sequence_by=(), new_columns="ignore"
        )
        return Envelope(alone, self.names or self.reading.columns or self.reading.schema.names)

    def _mended(self, value: bytes) -> tuple[Any, tuple[str, ...]]:
        """Parsed without the fields that can't be; each other value stays as it was written."""
        whole = msgspec.json.decode(self._as_json(value), type=_Raws)
        keep: list[str] = []
        if self.reading.envelope != "debezium":
            return self._parse_mended(msgspec.json.encode(self._fitting(whole, keep))), ()
        wrapped = "payload" in whole
        inner = msgspec.json.decode(whole["payload"], type=_Raws | None) if wrapped else whole
        rows: list[_Raws] = []
        for side, kept in (("after", keep), ("before", [])):
            row = msgspec.json.decode((inner or {}).get(side, b"null"), type=_Raws | None)
            if inner is not None and row is not None:
                rows.append(self._fitting(row, kept))
                inner[side] = msgspec.Raw(msgspec.json.encode(rows[-1]))
        if inner is not None and rows and self.reading.sequence_by:
            self._clear_places(inner, rows[0])
        return self._parse_mended(msgspec.json.encode(inner)), tuple(keep)

    def _clear_places(self, message: _Raws, row: _Raws) -> None:
        """A field of `source`, or of the message, that is no value for a `sequenceBy` column that
        the row has itself, is another thing of the same name."""
        own = {name for name, raw in row.items() if bytes(raw) != b"null"}
        source = msgspec.json.decode(message.get("source", b"null"), type=_Raws | None) or {}
        for holder, names in ((source, _ordering(self.reading, NO_ORDER)),
                              (message, _ordering(self.reading, _OWN))):  # fmt: skip
            for name in names.values():
                column = self.reading.schema.field(name)
                kind = python_type(column.type, self.reading.notation_of(name))
                if name in own and name in holder and not _decodes(holder[name], kind):
                    del holder[name]
        if "source" in message:
            message["source"] = msgspec.Raw(msgspec.json.encode(source))

    def _fitting(self, row: _Raws, keep: list[str]) -> _Raws:
        types = {} if self.written is None else self.written.types
        fitting = {}
        for name, raw in row.items():
            written = bytes(raw)
            if name not in self.reading.schema.names and name != "_delete":
                self._note_fresh(name, types.get(name) or _seeming(written))
            elif self.reading.envelope == "debezium" and written in _UNAVAILABLE_FORMS:
                keep.append(name)
            else:
                fitting[name] = raw
        return fitting

    def _note_fresh(self, name: str, kind: pa.DataType | None) -> None:
        if kind is None or name.startswith("_") or self.reading.new_columns != "add":
            return
        known = self.fresh.setdefault(name, kind)
        if known != kind and {known, kind} == {pa.int64(), pa.float64()}:
            self.fresh[name] = pa.float64()

    def read(self, message: Any, keep: tuple[str, ...]) -> Event | Refused | None:  # noqa: ANN401 - a message
        """What a parsed message says, `None` if nothing; a null is one, too."""
        if self.reading.envelope == "debezium":
            return self._read_debezium(message, keep)
        if message is not None:
            deletes = self.reading.envelope == "upsert" and message.deletes is True
            return Event(message, delete=deletes)
        if self.reading.envelope == "append":
            return Refused("a null is no row to append")
        if self.reading.sequence_by:
            return Refused("a null deletes, but has no place in the order that sequenceBy gives")
        return Event(delete=True)

    def _read_debezium(self, message: Any, keep: tuple[str, ...]) -> Event | Refused | None:  # noqa: ANN401 - a message
        if message is not None and message.payload is not None:
            message = message.payload
        if message is None:
            return None if self.reading.sequence_by else Event(delete=True)
        if message.op in {"c", "r", "u"}:
            if message.after is None:
                return Refused(f"op {message.op} without `after`")
            return Event(message.after, keep=keep, sequence=message, written=self.written)
        if message.op == "d":
            return Event(message.before, delete=True, sequence=message, written=self.written)
        if message.op == "t":
            return Event(truncate=True, sequence=message)
        return None if message.op == "m" else Refused("no operation that Debezium has (op)")


def notation_in(written: Written | None, name: str, reading: Reading) -> Notation:
    """How a column is written in rows of which this is said."""
    said = None if written is None else written.notations.get(name)
    return reading.notation_of(name) if said is None else said


def row_type(
    reading: Reading, written: Written | None, *, forbid: bool, deletes: bool
) -> type[msgspec.Struct]:
    """A row's type: columns by place, so that any name may be a column's."""
    fields = [
        (f"c{at}", python_type(each.type, notation_in(written, each.name, reading)), None)
        for at, each in enumerate(reading.schema)
    ]
    rename = {f"c{at}": each.name for at, each in enumerate(reading.schema)}
    if deletes:
        fields.append((_DELETES, bool | None, None))
        rename[_DELETES] = "_delete"
    return msgspec.defstruct(
        "Row", fields, rename=rename, forbid_unknown_fields=forbid, gc=False, frozen=True
    )


def _message(reading: Reading, written: Written | None, *, forbid: bool) -> Any:  # noqa: ANN401 - a type
    row = row_type(reading, written, forbid=forbid, deletes=reading.envelope == "upsert")
    if reading.envelope != "debezium":
        return row
    place = _struct("Place", [], reading, NO_ORDER)
    own = [("op", str | None, None), ("before", row | None, None), ("after", row | None, None)]
    fields = [*own, ("source", place | None, None)]
    message = _struct("Message", fields, reading, _OWN)
    return _struct("Wrapped", [*fields, ("payload", message | None, None)], reading, _OWN)


def _struct(
    name: str, fields: list[tuple[str, Any, Any]], reading: Reading, never: frozenset[str]
) -> Any:  # noqa: ANN401 - a type
    """These fields, and those that may fill a `sequenceBy` column."""
    rename = _ordering(reading, never)
    ordered = [
        (at, python_type(reading.schema.field(column).type, reading.notation_of(column)), None)
        for at, column in rename.items()
    ]
    return msgspec.defstruct(name, [*fields, *ordered], rename=rename, gc=False, frozen=True)


def _ordering(reading: Reading, never: frozenset[str]) -> dict[str, str]:
    """By attribute, the `sequenceBy` columns that a block may fill; not those of other fields."""
    names = enumerate(reading.sequence_by)
    return {f"s{at}": name for at, name in names if name not in never}


def _decodes(raw: msgspec.Raw, kind: Any) -> bool:  # noqa: ANN401 - a type
    try:
        msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        return False
    return True


def _seeming(written: bytes) -> pa.DataType | None:
    """The type that a new field seems to have; `None` for null, objects and arrays."""
    value = msgspec.json.decode(written)
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    return {float: pa.float64(), str: pa.string()}.get(type(value))
