"""Rows as a small HTML table for notebooks; everything in it is escaped. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_CELL_MAX = 80


def html_rows(title: str, schema: pa.Schema, rows: pa.Table | None, total: int | None) -> str:
    """A table with a caption; `rows` are the first ones, `None` if they were not read."""
    head = "".join(
        f"<th>{escape(column.name)}<br><small>{escape(str(column.type))}</small></th>"
        for column in schema
    )
    lines = [] if rows is None else rows.to_pylist()
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(line[name])}</td>" for name in schema.names) + "</tr>"
        for line in lines
    )
    shown = "" if total is None else f"{total:,} rows"
    if rows is None:
        shown += ", not read yet: call to_arrow()" if shown else "closed"
    elif total is not None and len(lines) < total:
        shown += f", the first {len(lines)} of them"
    caption = f"<caption>{escape(title)}: {escape(shown)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "<i>null</i>"
    text = str(value)
    return escape(text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 1] + "…")
