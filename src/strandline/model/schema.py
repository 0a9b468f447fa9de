"""A shard's columns, their ids, its key, and the only ways in which they may change.

Rules that hold for every schema and every change of one:

    R20  a field id names one column for ever; ids start at 1 and are never given again
    R21  names are told apart without regard to case; `_time` and `_diff` are ours
    R22  a change only adds: nullable columns, wider types, nulls where there were none
    R23  so every row ever written can be read under every later version, with the same row hash
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import CorruptionError, SchemaError, UsageError
from strandline.model.columntype import (
    cast,
    check_holdable,
    check_names,
    kept_type,
    key_refusal,
    widens,
)
from strandline.model.ids import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

TIME_COLUMN = "_time"
DIFF_COLUMN = "_diff"
TIME_FIELD_ID = 2147483001
DIFF_FIELD_ID = 2147483002

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Field:
    """One column: what it is called may be shown, what it is identified by is its id."""

    id: int
    name: str
    type: pa.DataType
    nullable: bool = True

    def arrow(self) -> pa.Field:
        return pa.field(self.name, self.type, self.nullable, {_FIELD_ID: str(self.id)})


_TIME = Field(TIME_FIELD_ID, TIME_COLUMN, pa.int64(), nullable=False)
_DIFF = Field(DIFF_FIELD_ID, DIFF_COLUMN, pa.int64(), nullable=False)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a shard under one version; build it with `create`, `evolve`, `from_wire`.

    >>> first = Schema.create(pa.schema([("k", pa.int32()), ("v", pa.string())]), key=("k",))
    >>> wider = pa.schema([("k", pa.int64()), ("v", pa.string()), ("note", pa.string())])
    >>> second = first.evolve(wider)
    >>> second.version, [(f.id, f.name, str(f.type)) for f in second.fields]
    (2, [(1, 'k', 'int64'), (2, 'v', 'string'), (3, 'note', 'string')])
    """

    version: int
    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    _arrow: pa.Schema = field(init=False, repr=False, compare=False)
    _updates: pa.Schema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        columns = [each.arrow() for each in self.fields]
        object.__setattr__(self, "_arrow", pa.schema(columns))
        updates = pa.schema([*columns, _TIME.arrow(), _DIFF.arrow()])
        object.__setattr__(self, "_updates", updates)

    @classmethod
    def create(cls, arrow_schema: pa.Schema, key: Sequence[str] = ()) -> Schema:
        """The first version of a shard's schema, from what a person declares."""
        declared = _declared(arrow_schema)
        fields = tuple(replace(each, id=place) for place, each in enumerate(declared, start=1))
        return cls(1, fields, _key(key))

    def arrow(self) -> pa.Schema:
        """The columns as Arrow knows them, each with its field id for Parquet and Iceberg."""
        return self._arrow

    def updates(self) -> pa.Schema:
        """The columns, `_time` and `_diff`: what a part holds and a reader gets."""
        return self._updates

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(each.id for each in self.fields)

    def field(self, name: str) -> Field:
        for each in self.fields:
            if each.name == name:
                return each
        raise SchemaError(f"no column {printable(name)}: there are {_listed(self.names)}")

    def key_fields(self) -> tuple[Field, ...]:
        return tuple(self.field(name) for name in self.key)

    def evolve(self, arrow_schema: pa.Schema, key: Sequence[str] | None = None) -> Schema:
        """This schema changed to what is declared now, or itself if nothing changes.

        The order in which old columns are declared has no meaning; new ones go to the end.
        """
        if key is not None and _key(key) != self.key:
            raise SchemaError(
                f"the key can't change from {_listed(self.key)} to {_listed(_key(key))}: rows are "
                "placed by it; write them to a new shard"
            )
        declared = {each.name: each for each in _declared(arrow_schema)}
        fields = [_evolved(old, declared.pop(old.name, None)) for old in self.fields]
        for new_id, new in enumerate(declared.values(), start=max(self.ids) + 1):
            if not new.nullable:
                raise SchemaError(
                    f"new column {printable(new.name)} can't be not-null: the rows that are there "
                    "have no value for it; declare it nullable"
                )
            fields.append(replace(new, id=new_id))
        if tuple(fields) == self.fields:
            return self
        return Schema(self.version + 1, tuple(fields), self.key)

    def accepts(self, table: pa.Table) -> pa.Table:
        """The rows as this schema keeps them: same values, its types, its order of columns.

        Nothing is guessed: a missing or unknown column, a value without an equal in the
        column's type, and a null where none may be are refused by name.
        """
        if not isinstance(table, pa.Table):
            raise SchemaError(f"rows must be a pyarrow Table, not {type(table).__name__}")
        if table.schema.names != self._arrow.names:
            self._check_columns(table.schema.names)
        columns = [_accepted(each, table.column(each.name)) for each in self.fields]
        for each, column in zip(self.fields, columns, strict=True):
            if column.null_count and (not each.nullable or each.name in self.key):
                self._refuse_null(each, column)
        try:
            return pa.Table.from_arrays(columns, schema=self._arrow)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"the rows are not valid Arrow: {printable(str(error))}") from error

    def migrate(
        self, table: pa.Table, written: Iterable[Field], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Rows that were written under the fields `written`, as rows of this schema.

        Columns are matched by id; those that are newer than the rows are null. Only `columns`
        are asked for, if given. `_time` and `_diff` come along if the table has them.
        """
        wanted = self.fields if columns is None else [self.field(name) for name in columns]
        before = {each.id: each for each in written}
        own = [each for each in (_TIME, _DIFF) if each.name in table.schema.names]
        before.update((each.id, each) for each in own)
        fields = [*wanted, *own]
        migrated = [_migrated(each, before.get(each.id), table) for each in fields]
        return pa.Table.from_arrays(migrated, schema=pa.schema([each.arrow() for each in fields]))

    def to_wire(self) -> dict[str, object]:
        """Plain values for a codec; the types as an Arrow IPC schema message."""
        plain = pa.schema([(each.name, each.type) for each in self.fields])
        return {
            "version": self.version,
            "ids": list(self.ids),
            "nullable": [each.nullable for each in self.fields],
            "key": list(self.key),
            "arrow": plain.serialize().to_pybytes(),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Schema:
        """The schema that `to_wire` gave, or `CorruptionError`."""
        try:
            return cls._from_wire(wire)
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, UsageError) as error:
            reason = printable(str(error), limit=200)
            raise CorruptionError(f"the stored schema can't be read: {reason}") from error

    @classmethod
    def _from_wire(cls, wire: Mapping[str, object]) -> Schema:
        version, ids, nullable, key, encoded = (
            wire[name] for name in ("version", "ids", "nullable", "key", "arrow")
        )
        if not (isinstance(version, int) and isinstance(ids, list) and isinstance(key, list)):
            raise TypeError("version, ids or key are not what they should be")
        if not (isinstance(nullable, list) and isinstance(encoded, bytes)):
            raise TypeError("nullable or arrow are not what they should be")
        columns = pa.ipc.read_schema(pa.py_buffer(encoded))
        fields = (
            Field(field_id, column.name, column.type, allows)
            for field_id, column, allows in zip(ids, columns, nullable, strict=True)
        )
        return cls(version, tuple(fields), tuple(key))

    def _check_columns(self, names: Sequence[str]) -> None:
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SchemaError(f"the rows have several columns {_listed(repeated)}: keep one")
        missing = [name for name in self.names if name not in names]
        extra = [name for name in names if name not in self.names]
        if missing:
            raise SchemaError(
                f"the rows lack {_listed(missing)} (they have {_listed(names)}): add what is "
                "missing, as nulls if it has no value"
            )
        if extra:
            raise SchemaError(
                f"the shard has no column {_listed(extra)}: drop it from the rows, or add it to "
                "the shard's schema first"
            )

    def _refuse_null(self, each: Field, column: pa.ChunkedArray) -> None:
        row = pc.index(pc.is_null(column), True).as_py()
        what = "part of the key" if each.name in self.key else "declared not-null"
        raise SchemaError(
            f"column {printable(each.name)} is {what} and row {row} (counted from 0) has a null "
            f"there, one of {column.null_count}: fill or drop them"
        )


def _check(schema: Schema) -> None:
    names, ids = schema.names, schema.ids
    if not names:
        raise SchemaError("a schema needs at least one column")
    check_names(names, "column")
    for name in names:
        if name.casefold() in (TIME_COLUMN, DIFF_COLUMN):
            raise SchemaError(f"column name {printable(name)} is ours: rename the column")
    whole = all(type(each) is int for each in (schema.version, *ids))
    if not whole or schema.version < 1 or len(set(ids)) != len(ids):
        raise SchemaError(f"version {schema.version} or field ids {list(ids)} are not valid")
    if not all(0 < each < TIME_FIELD_ID for each in ids):
        raise SchemaError(f"field ids {list(ids)} are outside [1, {TIME_FIELD_ID})")
    for each in schema.fields:
        if _kept(each.name, each.type) != each.type:
            raise SchemaError(f"column {printable(each.name)} can't be kept as {each.type}")
    _check_key(schema)


def _check_key(schema: Schema) -> None:
    if len(set(schema.key)) != len(schema.key):
        raise SchemaError(f"the key {_listed(schema.key)} names a column twice")
    for each in schema.key_fields():
        reason = key_refusal(each.type)
        if reason:
            raise SchemaError(
                f"column {printable(each.name)} of type {each.type} can't be part of a key: "
                f"{reason}; use an integer, a decimal, a date, a time, a string or binary"
            )


def _declared(arrow_schema: pa.Schema) -> list[Field]:
    """What a person declares, as fields that have no id yet."""
    if not isinstance(arrow_schema, pa.Schema):
        raise SchemaError(f"a schema must be a pyarrow Schema, not {type(arrow_schema).__name__}")
    check_names(arrow_schema.names, "column")
    return [
        Field(0, column.name, _kept(column.name, column.type, declared=True), column.nullable)
        for column in arrow_schema
    ]


def _kept(name: str, kind: pa.DataType, *, declared: bool = False) -> pa.DataType:
    try:
        if declared:
            check_holdable(kind)
        return kept_type(kind)
    except SchemaError as error:
        raise SchemaError(f"column {printable(name)}: {error}") from error


def _key(key: Sequence[str]) -> tuple[str, ...]:
    if isinstance(key, str):
        raise SchemaError(f"a key is a sequence of column names: write ({printable(key)},)")
    return tuple(key)


def _evolved(old: Field, new: Field | None) -> Field:
    column = f"column {printable(old.name)}"
    if new is None:
        raise SchemaError(
            f"{column} is missing from the new schema: columns can't be dropped or renamed; keep "
            "it, and write nulls to it if it is nullable"
        )
    if not widens(old.type, new.type):
        raise SchemaError(
            f"{column} can't change from {old.type} to {new.type}: not every value and hash would "
            "stay the same; add a new column"
        )
    if old.nullable and not new.nullable:
        raise SchemaError(f"{column} can't become not-null: it may hold nulls; keep it nullable")
    return replace(new, id=old.id)


def _accepted(wanted: Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return cast(column, wanted.type)
    except SchemaError as error:
        raise SchemaError(f"column {printable(wanted.name)} of the rows: {error}") from error


def _migrated(wanted: Field, before: Field | None, table: pa.Table) -> pa.ChunkedArray:
    if before is None:
        return pa.chunked_array([pa.nulls(table.num_rows, wanted.type)])
    if table.schema.names.count(before.name) != 1:
        raise CorruptionError(f"the stored rows have no single column {printable(before.name)}")
    try:
        return cast(table.column(before.name), wanted.type)
    except SchemaError as error:
        raise CorruptionError(f"stored column {printable(before.name)}: {error}") from error


def _listed(names: Iterable[str]) -> str:
    return printable(", ".join(names), limit=300)
