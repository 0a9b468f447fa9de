"""One CREATE statement at a time, from tokens to what it declares.

CREATE TABLE name (column type [NOT NULL] [COMMENT 'text'], …, [PRIMARY KEY (column, …)])
  USING connector [OPTIONS (key 'value', …)]
CREATE MATERIALIZED VIEW name [REFRESH FULL] AS query
CREATE SINK name FROM collection USING connector [OPTIONS (key 'value', …)]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.views.declared import Sink, Table, ViewQuery
from strandline.views.options import check_options, split_ours
from strandline.views.sqltypes import read_type
from strandline.views.tokens import Cursor
from strandline.views.troubles import Refused, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

_INSTEAD = {
    "view": "CREATE MATERIALIZED VIEW",
    "temporary": "CREATE MATERIALIZED VIEW",
    "or": "CREATE without OR REPLACE: a program says what there is",
    "function": "functions of Spark: a program runs no code of its own",
    "external": "CREATE TABLE",
    "database": "tables alone",
    "schema": "tables alone",
}
_KNOWN = "CREATE TABLE, CREATE MATERIALIZED VIEW or CREATE SINK"


def read_statement(
    tokens: Sequence[Token], text: str, *, recorded: bool = False
) -> Table | ViewQuery | Sink:
    """What one statement declares, or `Refused`; of what is `recorded` see `parse`."""
    cursor = Cursor(tokens)
    line = cursor.line
    if not cursor.accept("create"):
        raise Refused(
            f"{named(tokens[0].text.upper())} is no statement of a program", f"use {_KNOWN}",
            line=line,
        )  # fmt: skip
    if cursor.accept("table"):
        return _read_table(cursor, line, recorded=recorded)
    if cursor.accept("materialized", "view"):
        return _read_view(cursor, text, line)
    if cursor.accept("sink"):
        return _read_sink(cursor, line, recorded=recorded)
    what = cursor.name("TABLE, MATERIALIZED VIEW or SINK")
    instead = _INSTEAD.get(what.casefold(), _KNOWN)
    raise Refused(f"CREATE {named(what.upper())} is refused", f"use {instead}", line=line)


def meant_name(tokens: Sequence[Token]) -> list[str]:
    """The name that a statement which can't be read was about to declare, if it got so far."""
    words = [each.text for each in tokens[:4]]
    lowered = [each.casefold() for each in words]
    if lowered[:2] == ["create", "table"]:
        return words[2:3]
    return words[3:4] if lowered[:3] == ["create", "materialized", "view"] else []


@dataclass(slots=True)
class _Columns:
    fields: list[pa.Field] = field(default_factory=list)
    key: list[str] = field(default_factory=list)


def _read_table(cursor: Cursor, line: int, *, recorded: bool) -> Table:
    _refuse_if_not_exists(cursor)
    name = _read_name(cursor, "a name of the table")
    columns = _read_columns(cursor)
    connector = _read_using(cursor)
    ours, options = split_ours(_read_options(cursor, f"table {named(name)}", recorded=recorded))
    cursor.end("the table")
    sequence = tuple(each.strip() for each in ours.get("sequenceby", "").split(",") if each.strip())
    return Table(
        name,
        pa.schema(columns.fields),
        connector,
        tuple(columns.key),
        options,
        ours.get("envelope", "").casefold(),
        sequence,
        ours.get("onerror", "collect").casefold(),
        line,
    )


def _read_columns(cursor: Cursor) -> _Columns:
    columns = _Columns()
    cursor.expect("(")
    while True:
        if cursor.accept("primary", "key"):
            _read_key(cursor, columns)
        elif cursor.accept("constraint") or cursor.accept("foreign") or cursor.accept("check"):
            raise Refused("a constraint other than PRIMARY KEY", "leave it out", line=cursor.line)
        else:
            _read_column(cursor, columns)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    known = {each.name.casefold(): each.name for each in columns.fields}
    columns.key = [known.get(each.casefold(), each) for each in columns.key]
    return columns


def _read_key(cursor: Cursor, columns: _Columns) -> None:
    if columns.key:
        raise Refused("a second PRIMARY KEY", "keep one", line=cursor.line)
    cursor.expect("(")
    while True:
        columns.key.append(cursor.name("a column of the key"))
        if not cursor.accept(","):
            break
    cursor.expect(")")


def _read_column(cursor: Cursor, columns: _Columns) -> None:
    name = cursor.name("a column")
    kind = read_type(cursor)
    nullable = True
    while True:
        if cursor.accept("not", "null"):
            nullable = False
        elif cursor.accept("primary", "key"):
            if columns.key:
                raise Refused("a second PRIMARY KEY", "keep one", line=cursor.line)
            columns.key.append(name)
        elif cursor.accept("comment"):
            cursor.text("the comment")
        else:
            break
    for word in ("default", "generated", "references", "unique", "collate", "null"):
        if cursor.accept(word):
            raise Refused(
                f"{word.upper()} of column {named(name)} is refused", "leave it out",
                line=cursor.line,
            )  # fmt: skip
    columns.fields.append(pa.field(name, kind, nullable))


def _read_view(cursor: Cursor, text: str, line: int) -> ViewQuery:
    _refuse_if_not_exists(cursor)
    name = _read_name(cursor, "a name of the view")
    full = False
    if cursor.accept("refresh"):
        cursor.expect("full")
        full = True
    cursor.expect("as")
    rest = cursor.rest
    if not rest:
        raise Refused("there is no query after AS", "write one: SELECT … FROM …", line=line)
    # Lines before it stay, as empty ones: so what is wrong in it is found on the program's lines.
    sql = "\n" * (rest[0].line - 1) + text[rest[0].start : rest[-1].end + 1]
    return ViewQuery(name, sql, full, line)


def _read_sink(cursor: Cursor, line: int, *, recorded: bool) -> Sink:
    _refuse_if_not_exists(cursor)
    name = _read_name(cursor, "a name of the sink")
    cursor.expect("from")
    source = _read_name(cursor, "a table or a view to publish")
    connector = _read_using(cursor)
    options = _read_options(cursor, f"sink {named(name)}", recorded=recorded)
    cursor.end("the sink")
    return Sink(name, source, connector, options, line)


def _read_name(cursor: Cursor, what: str) -> str:
    line = cursor.line
    name = cursor.name(what)
    if cursor.accept("."):
        raise Refused(
            f"{named(name)}. is refused: names have one part", "leave the database out", line=line
        )
    return name


def _read_using(cursor: Cursor) -> str:
    if cursor.accept("location") or cursor.accept("as") or cursor.accept("partitioned"):
        raise Refused("LOCATION, PARTITIONED BY or AS is refused", "say USING …", line=cursor.line)
    cursor.expect("using")
    return cursor.word("a connector").casefold()


def _read_options(cursor: Cursor, what: str, *, recorded: bool) -> dict[str, str]:
    options: dict[str, str] = {}
    if not cursor.accept("options"):
        return options
    cursor.expect("(")
    while not cursor.accept(")"):
        line = cursor.line
        key = cursor.dotted("an option")
        cursor.accept("=")
        value = cursor.text(f"the value of option {named(key)}")
        try:
            check_options([*options.items(), (key, value)], what, recorded=recorded)
        except Refused as refused:
            raise Refused(refused.what, refused.todo, line=line) from refused
        options[key] = value
        if not cursor.accept(","):
            cursor.expect(")")
            break
    return options


def _refuse_if_not_exists(cursor: Cursor) -> None:
    if cursor.accept("if", "not", "exists"):
        raise Refused("IF NOT EXISTS is refused", "a program says what there is", line=cursor.line)
