"""A whole program held against its rules, and its views planned; all troubles are found at once.

names      one namespace for tables, views and sinks, whatever the case; error collections too
tables     a known connector, columns that can be kept, a key where rows replace each other
views      allowed (X8), acyclic, every column named; linear, or REFRESH FULL in so many words
sinks      from a table or a view, of a kind that exists
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.errors import SchemaError
from strandline.model.columntype import key_refusal
from strandline.model.schema import Schema
from strandline.views.declared import CONNECTORS, SINKS, Sink, Table, View, ViewQuery
from strandline.views.options import (
    SINK_REQUIRED,
    check_choice,
    check_options,
    check_required,
    envelope_of,
    on_error_of,
)
from strandline.views.planning import planned
from strandline.views.sqltypes import described, digest_of
from strandline.views.troubles import Refused, Troubles, named

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Checked:
    """A program that may run; views in an order in which each comes after what it reads."""

    tables: tuple[Table, ...]
    views: tuple[View, ...]
    sinks: tuple[Sink, ...]
    hash: str


def checked(
    tables: Sequence[Table],
    views: Sequence[ViewQuery],
    sinks: Sequence[Sink],
    troubles: Troubles | None = None,
    *,
    recorded: bool = False,
) -> Checked:
    """The program that these declare, or `ProgramError` with all that is wrong with it.

    `troubles` has what was already found while they were read.
    """
    troubles = Troubles() if troubles is None else troubles
    _check_names(tables, views, sinks, troubles)
    good = [
        kept
        for each in tables
        if (kept := _kept_table(each, troubles, recorded=recorded)) is not None
    ]
    broken = [each.name for each in tables if all(each.name != kept.name for kept in good)]
    broken.extend(troubles.unread)
    done = planned(good, views, troubles, broken=broken)
    collections = {name.casefold(): name for name in troubles.unread}
    collections.update((each.name.casefold(), each.name) for each in tables)
    collections.update((each.name.casefold(), each.name) for each in views)
    published = [_kept_sink(each, collections, troubles, recorded=recorded) for each in sinks]
    troubles.raise_any()
    kept_sinks = tuple(each for each in published if each is not None)
    return Checked(tuple(good), tuple(done), kept_sinks, _hash(good, done, kept_sinks))


def _check_names(
    tables: Sequence[Table],
    views: Sequence[ViewQuery],
    sinks: Sequence[Sink],
    troubles: Troubles,
) -> None:
    taken: dict[str, str] = {}
    kinds = (("table", tables), ("view", views), ("sink", sinks))
    for what, declared in kinds:
        for one in declared:
            if not _NAME.fullmatch(str(one.name)):
                troubles.add(
                    one.line,
                    f"{what} name {named(one.name)} is refused",
                    "use up to 64 ASCII letters, digits and '_', starting with a letter",
                )
                continue
            other = taken.setdefault(one.name.casefold(), f"{what} {one.name}")
            if other != f"{what} {one.name}" or _repeated(one, declared):
                troubles.add(one.line, f"{what} {one.name} has the name of {other}", "rename one")
    for table in tables:
        _check_own(table, taken, troubles)


def _check_own(table: Table, taken: dict[str, str], troubles: Troubles) -> None:
    """A table has collections of its own, under names that are made from its own."""
    own = {"errors": "error collection"}
    if table.sequence_by:
        own |= {"tombs": "tombstones", "floor": "last truncation"}
    for suffix, what in own.items():
        other = taken.get(f"{table.name}_{suffix}".casefold(), "")
        if other and not other.startswith("sink"):
            troubles.add(
                table.line,
                f"{other} has the name of the {what} of table {table.name}",
                "rename one",
            )


def _repeated(one: Table | ViewQuery | Sink, declared: Sequence[Table | ViewQuery | Sink]) -> bool:
    return next(each for each in declared if each.name == one.name) is not one


def _kept_table(table: Table, troubles: Troubles, *, recorded: bool) -> Table | None:
    """The table with its columns as they are kept, or `None` if something is wrong with it."""
    before = len(troubles.found)
    what = f"table {named(table.name)}"
    connector = partial(_check_connector, recorded=recorded)
    for check in (connector, _check_envelope, _check_sequence):
        try:
            check(table, what)
        except Refused as refused:
            troubles.take(refused, line=table.line)
    try:
        columns = _kept_columns(table, what)
    except Refused as refused:
        troubles.take(refused, line=table.line)
        return None
    return replace(table, columns=columns) if len(troubles.found) == before else None


def _check_connector(table: Table, what: str, *, recorded: bool) -> None:
    if table.connector not in CONNECTORS:
        raise Refused(
            f"{what}: no connector {named(table.connector)}",
            f"use one of: {', '.join(CONNECTORS)}",
        )
    check_options(table.options.items(), what, recorded=recorded)
    check_required(table.connector, table.options)
    on_error_of(table.on_error)


def _check_envelope(table: Table, what: str) -> None:
    envelope = envelope_of(table.envelope)
    if envelope != "append" and not table.key:
        raise Refused(
            f"{what}: envelope {envelope} replaces rows by their key, and there is none",
            "add PRIMARY KEY (…), or say envelope 'append'",
        )
    if envelope == "append" and table.key:
        raise Refused(
            f"{what}: envelope append keeps every row, and PRIMARY KEY keeps one a key",
            "leave out the key, or say envelope 'upsert'",
        )


def _check_sequence(table: Table, what: str) -> None:
    if not table.sequence_by:
        return
    if table.envelope == "append":
        raise Refused(
            f"{what}: sequenceBy orders the rows of a key, and envelope append has no keys",
            "leave it out, or add PRIMARY KEY (…)",
        )
    if len(set(table.sequence_by)) != len(table.sequence_by):
        raise Refused(f"{what}: sequenceBy names a column twice", "keep one")
    for name in table.sequence_by:
        if name not in table.columns.names:
            if table.envelope == "debezium":
                continue  # It may be a field of Debezium's own block `source`, like its lsn.
            raise Refused(f"{what}: sequenceBy names no column: {named(name)}", "declare it")
        reason = key_refusal(table.columns.field(name).type)
        if reason:
            raise Refused(f"{what}: sequenceBy {named(name)}: {reason}", "order by another column")


def _kept_columns(table: Table, what: str) -> pa.Schema:
    if not isinstance(table.columns, pa.Schema):
        raise Refused(f"{what}: columns are no pyarrow Schema", "build one with pyarrow.schema")
    for name in table.columns.names:
        if name.startswith("_"):
            raise Refused(
                f"{what}: column {named(name)} starts with '_', which is ours", "rename it"
            )
    missing = [name for name in table.key if name not in table.columns.names]
    if missing:
        raise Refused(f"{what}: the key names no column: {named(', '.join(missing))}", "declare it")
    try:
        schema = Schema.create(table.columns, table.key)
    except SchemaError as error:
        raise Refused(f"{what}: {error}", "change the column") from error
    fields = [
        pa.field(each.name, each.type, each.nullable and each.name not in table.key)
        for each in schema.fields
    ]
    return pa.schema(fields)


def _kept_sink(
    sink: Sink, collections: dict[str, str], troubles: Troubles, *, recorded: bool
) -> Sink | None:
    what = f"sink {named(sink.name)}"
    try:
        check_options(sink.options.items(), what, recorded=recorded)
        _check_sink(sink, what)
        source = _source_of(sink, what, collections)
    except Refused as refused:
        troubles.take(refused, line=sink.line)
        return None
    return replace(sink, source=source)


def _check_sink(sink: Sink, what: str) -> None:
    check_choice(sink.connector, SINKS, f"{what}: connector")
    check_required(sink.connector, sink.options, SINK_REQUIRED)


def _source_of(sink: Sink, what: str, collections: dict[str, str]) -> str:
    source = collections.get(str(sink.source).casefold())
    if source is None:
        raise Refused(
            f"{what}: no table or view {named(sink.source)}",
            f"publish one of: {named(', '.join(sorted(collections.values())) or 'none')}",
        )
    return source


def _hash(tables: Sequence[Table], views: Sequence[View], sinks: Sequence[Sink]) -> str:
    """Of everything that decides what is computed and published, in no order of declaration."""
    return digest_of(
        [
            "program",
            sorted(
                [
                    each.name, [[c.name, described(c.type), c.nullable] for c in each.columns],
                    list(each.key), each.connector, sorted(map(list, each.options.items())),
                    each.envelope, list(each.sequence_by), each.on_error,
                ]
                for each in tables
            ),
            sorted([each.name, each.kind, each.plan_hash] for each in views),
            sorted(
                [each.name, each.source, each.connector, sorted(map(list, each.options.items()))]
                for each in sinks
            ),
        ]
    )  # fmt: skip
