"""A program back to text that parses to the same program: what the journal keeps of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.views.linear import quoted
from strandline.views.sqltypes import write_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.views.declared import Sink, Table, View
    from strandline.views.program import Program


def render(program: Program) -> str:
    """Text with the hash of `program`; tables whose types SQL has no words for are refused."""
    statements = [
        *(_table(each) for each in program.tables),
        *(_view(each) for each in program.views),
        *(_sink(each) for each in program.sinks),
    ]
    return "".join(f"{each};\n" for each in statements)


def _table(table: Table) -> str:
    lines = [
        f"{quoted(each.name)} {write_type(each.type)}{'' if each.nullable else ' NOT NULL'}"
        for each in table.columns
    ]
    if table.key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quoted, table.key))})")
    options = {**table.options, "envelope": table.envelope, "onError": table.on_error}
    if table.sequence_by:
        options["sequenceBy"] = ",".join(table.sequence_by)
    columns = ",\n  ".join(lines)
    return f"CREATE TABLE {table.name} (\n  {columns}\n) USING {table.connector}{_options(options)}"


def _view(view: View) -> str:
    how = " REFRESH FULL" if view.kind == "full" else ""
    return f"CREATE MATERIALIZED VIEW {view.name}{how} AS\n  {view.sql}"


def _sink(sink: Sink) -> str:
    using = f"USING {sink.connector}{_options(sink.options)}"
    return f"CREATE SINK {sink.name} FROM {sink.source} {using}"


def _options(options: Mapping[str, str]) -> str:
    if not options:
        return ""
    pairs = (f"{_text(key)} {_text(value)}" for key, value in sorted(options.items()))
    return f"\n  OPTIONS ({', '.join(pairs)})"


def _text(value: str) -> str:
    return exp.Literal.string(value).sql(dialect="spark")
